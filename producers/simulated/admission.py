"""What the API server adds to an object before it stores it: defaults, priority, labels.

Pure functions on manifests. No validation: objects are taken as already stored (design section 8).
Used by `producers.simulated.cluster`.
"""

from typing import Any, Final

from producers.simulated.kinds import Kind
from producers.simulated.store import Raw, changed
from schemas.errors import InvalidMessage

#: Classes that every API server has.
_SYSTEM_CLASSES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}


def with_name(kind: Kind, document: Raw) -> Raw:
    """The document with its namespace filled in or left out. Raises `InvalidMessage`."""
    for part in ("metadata", "spec", "status"):
        if document.get(part) is not None and not isinstance(document[part], dict):
            raise InvalidMessage("InvalidField", f"{kind.name} {part}: a map is wanted")
    metadata = dict(document.get("metadata") or {})
    if not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise InvalidMessage(
            "InvalidField", f"{kind.name} metadata.name: a name is wanted, as text"
        )
    version = str(metadata.get("resourceVersion") or "0")
    if not version.isdecimal():
        raise InvalidMessage(
            "InvalidField",
            f"{kind.name} {metadata['name']} metadata.resourceVersion: {version!r} is not a number",
        )
    if kind.namespaced:
        metadata["namespace"] = metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    return {**document, "metadata": metadata}


def admitted(kind: Kind, document: Raw, priority_classes: list[Raw]) -> Raw:
    """The document as the API server would store it. `document` has passed `with_name`."""
    name = document["metadata"]["name"]
    if kind.name == "Pod":
        return _admit_pod(document, priority_classes)
    if kind.name == "Node":
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        status = document.get("status") or {}
        if "allocatable" not in status and "capacity" in status:
            document = changed(document, status={"allocatable": status["capacity"]})
        return _with_labels(document, labels)
    if kind.name == "Namespace":
        return _with_labels(document, {"kubernetes.io/metadata.name": name})
    return document


def _with_labels(document: Raw, labels: dict[str, str]) -> Raw:
    own = document["metadata"].get("labels") or {}
    return changed(document, metadata={"labels": {**labels, **own}})


def _admit_pod(document: Raw, priority_classes: list[Raw]) -> Raw:
    spec = document.get("spec") or {}
    additions: dict[str, Any] = {
        field: [_with_requests(item) for item in spec[field]]
        for field in ("initContainers", "containers")
        if isinstance(spec.get(field), list)
    }
    if spec.get("priority") is None:
        additions.update(_priority(spec, priority_classes))
    return changed(document, spec=additions)


def _with_requests(container: Any) -> Any:
    """Limits stand in for requests that are not given."""
    resources = container.get("resources") if isinstance(container, dict) else None
    if not isinstance(resources, dict) or not isinstance(resources.get("limits"), dict):
        return container
    requests = {**resources["limits"], **(resources.get("requests") or {})}
    return {**container, "resources": {**resources, "requests": requests}}


def _priority(spec: Raw, priority_classes: list[Raw]) -> Raw:
    wanted = spec.get("priorityClassName")
    if wanted in _SYSTEM_CLASSES:
        return {"priority": _SYSTEM_CLASSES[wanted]}
    defaults = [item for item in priority_classes if item.get("globalDefault")]
    chosen = (
        [item for item in priority_classes if item["metadata"]["name"] == wanted]
        if wanted
        else sorted(defaults, key=lambda item: (item.get("value", 0), item["metadata"]["name"]))
    )
    if not chosen:
        return {}
    found = {"priority": chosen[0].get("value", 0)}
    if spec.get("preemptionPolicy") is None and chosen[0].get("preemptionPolicy"):
        found["preemptionPolicy"] = chosen[0]["preemptionPolicy"]
    return found
