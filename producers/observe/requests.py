"""The effective request of a pod, as the scheduler and the kubelet of Kubernetes reckon it.

Sum of containers and sidecars; at least the peak of the init phase, in which each init container
runs beside the sidecars started before it; pod-level requests in place of that; overhead on top. A
container that is being resized counts with the largest of what it asks, was allotted, and has. Must
not place or judge: `pods` calls it.
"""

from typing import Any

from producers.observe.fields import amounts, mapping, sequence, text
from schemas.quantities import AMOUNT_MAX

Amounts = dict[str, int]


def effective_requests(spec: dict[str, Any], status: dict[str, Any]) -> tuple[Amounts, str | None]:
    """Amounts by canonical resource name without zeros, and why they can never be met (else None).

    Negative parts count as 0; amounts over `AMOUNT_MAX` count as that. Both are named in the text.
    """
    complaints: list[str] = []
    total = _containers(spec, status, complaints)
    total.update(_pod_level(spec, total, complaints))
    _add(total, _checked(amounts(spec.get("overhead"), "spec.overhead"), "overhead", complaints))
    total = {name: min(total[name], AMOUNT_MAX) for name in sorted(total) if total[name]}
    return total, "; ".join(complaints) or None


def is_sidecar(container: dict[str, Any]) -> bool:
    """Whether an init container goes on running beside the containers (restartPolicy Always)."""
    return container.get("restartPolicy") == "Always"


def _containers(spec: dict[str, Any], status: dict[str, Any], complaints: list[str]) -> Amounts:
    running: Amounts = {}
    resized = _resized(status, "containerStatuses")
    for container in sequence(spec.get("containers"), "spec.containers"):
        _add(running, _container(container, "spec.containers", resized, complaints))
    sidecars: Amounts = {}
    peak: Amounts = {}
    resized = _resized(status, "initContainerStatuses")
    for container in sequence(spec.get("initContainers"), "spec.initContainers"):
        if is_sidecar(container):
            asked = _container(container, "spec.initContainers", resized, complaints)
            _add(running, asked)
            _add(sidecars, asked)
            _raise_to(peak, sidecars)
        else:
            asked = _container(container, "spec.initContainers", {}, complaints)
            _add(asked, sidecars)
            _raise_to(peak, asked)
    _raise_to(running, peak)
    return running


def _container(
    container: dict[str, Any], path: str, resized: dict[str, Amounts], complaints: list[str]
) -> Amounts:
    name = text(container.get("name"), f"{path}.name", default="")
    resources = mapping(container.get("resources"), f"{path}.resources")
    asked = amounts(resources.get("limits"), f"{path}.resources.limits")
    asked.update(amounts(resources.get("requests"), f"{path}.resources.requests"))
    asked = _checked(asked, f"container {name}", complaints)
    _raise_to(asked, resized.get(name, {}))
    return asked


def _resized(status: dict[str, Any], field: str) -> dict[str, Amounts]:
    """What the kubelet says containers hold: the larger of allotted and actual requests."""
    found: dict[str, Amounts] = {}
    for item in sequence(status.get(field), f"status.{field}"):
        path = f"status.{field}"
        if "allocatedResources" not in item and "resources" not in item:
            continue
        actual = mapping(item.get("resources"), f"{path}.resources")
        held = amounts(item.get("allocatedResources"), f"{path}.allocatedResources")
        _raise_to(held, amounts(actual.get("requests"), f"{path}.resources.requests"))
        found[text(item.get("name"), f"{path}.name")] = {
            name: max(amount, 0) for name, amount in held.items()
        }
    return found


def _pod_level(spec: dict[str, Any], containers: Amounts, complaints: list[str]) -> Amounts:
    """Pod-level requests; a pod-level limit stands in where neither pod nor containers ask."""
    resources = mapping(spec.get("resources"), "spec.resources")
    limits = amounts(resources.get("limits"), "spec.resources.limits")
    asked = {name: amount for name, amount in limits.items() if name not in containers}
    asked.update(amounts(resources.get("requests"), "spec.resources.requests"))
    asked = {name: amount for name, amount in asked.items() if _is_pod_level(name)}
    return _checked(asked, "pod-level resources", complaints)


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _checked(asked: Amounts, who: str, complaints: list[str]) -> Amounts:
    for name, amount in sorted(asked.items()):
        if amount < 0:
            complaints.append(f"{who} requests {name} {amount}, which is negative")
        elif amount > AMOUNT_MAX:
            complaints.append(f"{who} requests {name} {amount}, more than {AMOUNT_MAX}")
    return {name: min(max(amount, 0), AMOUNT_MAX) for name, amount in asked.items()}


def _add(total: Amounts, part: Amounts) -> None:
    for name, amount in part.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: Amounts, least: Amounts) -> None:
    for name, amount in least.items():
        total[name] = max(total.get(name, 0), amount)
