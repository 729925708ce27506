"""Node -> `NodeObserved`: labels, taints, allocatable. A heartbeat changes none of it."""

from typing import Any

from producers.observe.fields import (
    capacity,
    flag,
    mapping,
    observing,
    sequence,
    strings,
    text,
    version,
)
from schemas.observations import NodeObserved, Taint


def _minimal(seen: NodeObserved, _why: str) -> NodeObserved:
    """Capacity only. Without its taints the node must not take pods: it counts as unschedulable."""
    return seen.model_copy(update={"labels": {}, "taints": (), "unschedulable": True})


@observing("node", _minimal)
def observe_node(raw: dict[str, Any], epoch: str | None = None) -> NodeObserved:
    """The observation of a node as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    status = mapping(raw.get("status"), "status")
    return NodeObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        name=text(metadata.get("name"), "metadata.name"),
        labels=strings(metadata.get("labels"), "metadata.labels"),
        taints=_taints(spec),
        unschedulable=flag(spec.get("unschedulable"), "spec.unschedulable"),
        allocatable=capacity(status.get("allocatable"), "status.allocatable"),
        epoch=epoch,
    )


def _taints(spec: dict[str, Any]) -> tuple[Taint, ...]:
    found = [
        Taint(
            key=text(item.get("key"), "spec.taints.key"),
            value=text(item.get("value"), "spec.taints.value", default=""),
            effect=text(item.get("effect"), "spec.taints.effect"),  # type: ignore[arg-type]
        )
        for item in sequence(spec.get("taints"), "spec.taints")
    ]
    return tuple(sorted(found, key=lambda item: (item.key, item.value, item.effect)))
