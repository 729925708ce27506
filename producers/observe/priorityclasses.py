"""PriorityClass -> `PriorityClassObserved`."""

from typing import Any

from producers.observe.fields import flag, mapping, observing, text, version, whole
from schemas.observations import PriorityClassObserved


def _minimal(seen: PriorityClassObserved, _why: str) -> PriorityClassObserved:
    return seen


@observing("PriorityClass", _minimal)
def observe_priorityclass(raw: dict[str, Any], epoch: str | None = None) -> PriorityClassObserved:
    """The observation of a PriorityClass in the API server's JSON. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    return PriorityClassObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        name=text(metadata.get("name"), "metadata.name"),
        value=whole(raw.get("value"), "value", default=0),
        global_default=flag(raw.get("globalDefault"), "globalDefault"),
        preemption_policy=text(  # type: ignore[arg-type]
            raw.get("preemptionPolicy"), "preemptionPolicy", default="PreemptLowerPriority"
        ),
        epoch=epoch,
    )
