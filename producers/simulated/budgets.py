"""PodDisruptionBudgets of the simulated cluster: how many pods may go, and may this one be evicted now?

Counts as the disruption controller does: healthy pods are Running and not terminating; the expected
count of a percentage or of maxUnavailable comes from the pods' controllers where they have one. The
status is written by `reconcile_budgets`, called by `producers.simulated.controllers` after each
change; an eviction asks the status, as the API server does.
"""

from typing import Any, Final

from producers.simulated.kinds import KINDS, POD, kinds_named
from producers.simulated.store import ObjectStore, Raw, uid_of

_BUDGET: Final = kinds_named("PodDisruptionBudget")[0]
_OWNERS: Final = tuple(kind for kind in KINDS if kind.group in ("apps", "batch"))


def reconcile_budgets(store: ObjectStore) -> None:
    """The disruption controller: brings the status of every budget up to date."""
    for budget in store.list(_BUDGET):
        status = _status(store, budget)
        if status != budget.get("status"):
            store.replace(_BUDGET, {**budget, "status": status})


def budget_in_the_way(store: ObjectStore, pod: Raw) -> str | None:
    """The name of a budget that an eviction of `pod` would break now, or None."""
    if not _is_healthy(pod):
        return None  # as the API server: no budget protects a pod that does not run
    for budget in store.list(_BUDGET):
        if _covers(budget, pod) and budget["status"]["disruptionsAllowed"] < 1:
            return str(budget["metadata"]["name"])
    return None


def matches(selector: Raw | None, labels: dict[str, str]) -> bool:
    """Whether a label selector matches; an absent one matches nothing, an empty one everything."""
    if selector is None:
        return False
    wanted = selector.get("matchLabels") or {}
    if any(labels.get(key) != value for key, value in wanted.items()):
        return False
    return all(_meets(item, labels) for item in selector.get("matchExpressions") or ())


def _meets(requirement: Raw, labels: dict[str, str]) -> bool:
    key, values = requirement["key"], requirement.get("values") or ()
    match requirement["operator"]:
        case "In":
            return key in labels and labels[key] in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case _:
            return key not in labels


def _covers(budget: Raw, pod: Raw) -> bool:
    same_namespace = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    selector = (budget.get("spec") or {}).get("selector")
    return same_namespace and matches(selector, pod["metadata"].get("labels") or {})


def _is_healthy(pod: Raw) -> bool:
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and not pod["metadata"].get("deletionTimestamp")


def _status(store: ObjectStore, budget: Raw) -> Raw:
    spec = budget.get("spec") or {}
    covered = [pod for pod in store.list(POD) if _covers(budget, pod)]
    healthy = sum(map(_is_healthy, covered))
    expected = _expected(store, covered)
    if spec.get("maxUnavailable") is not None:
        desired = max(expected - _amount(spec["maxUnavailable"], expected), 0)
    else:
        desired = _amount(spec.get("minAvailable") or 0, expected)
    return {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": max(healthy - desired, 0),
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation") or 0,
    }


def _amount(value: Any, expected: int) -> int:
    text = str(value)
    if text.endswith("%"):
        return -(-expected * int(text[:-1]) // 100)  # rounded up, as the disruption controller does
    return int(text)


def _expected(store: ObjectStore, pods: list[Raw]) -> int:
    """How many pods there should be: each controller's scale, and those without a controller."""
    owners = {uid_of(raw): raw for kind in _OWNERS for raw in store.list(kind)}
    scales: dict[str, int] = {}
    bare = 0
    for pod in pods:
        references = pod["metadata"].get("ownerReferences") or ()
        uids = [
            item["uid"] for item in references if item.get("controller") and item["uid"] in owners
        ]
        if uids:
            spec = owners[uids[0]].get("spec") or {}
            counts = (spec.get("replicas"), spec.get("parallelism"), 1)
            scales[uids[0]] = int(next(count for count in counts if count is not None))
        else:
            bare += 1
    return bare + sum(scales.values())
