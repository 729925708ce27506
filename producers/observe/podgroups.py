"""PodGroup of either CRD -> `PodGroupObserved`, with its status: we write it, and so may others."""

from typing import Any, Final

from producers.observe.fields import (
    capacity,
    created_us,
    mapping,
    micros,
    natural,
    observing,
    strings,
    text,
    version,
    whole,
)
from schemas.labels import kept_annotations
from schemas.observations import PodGroupObserved, PodGroupStatus

#: The longest timeout that the field's type can say; no CRD is asked by a manifest.
TIMEOUT_S_MAX: Final = (1 << 31) - 1


def _minimal(seen: PodGroupObserved, _why: str) -> PodGroupObserved:
    return seen.model_copy(update={"annotations": {}, "status": None})


@observing("PodGroup", _minimal)
def observe_podgroup(raw: dict[str, Any], epoch: str | None = None) -> PodGroupObserved:
    """The observation of a PodGroup as the API server's JSON shows it. Raises `InvalidMessage`.

    A timeout that is not positive means none. Without `minMember` one member is enough.
    """
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    timeout_s = whole(spec.get("scheduleTimeoutSeconds"), "spec.scheduleTimeoutSeconds", 0)
    timeout_s = min(timeout_s, TIMEOUT_S_MAX)
    least = spec.get("minResources")
    return PodGroupObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        group=api_group(raw),
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        created_us=created_us(metadata),
        min_member=natural(spec.get("minMember"), "spec.minMember", default=1),
        schedule_timeout_us=timeout_s * 1_000_000 if timeout_s > 0 else None,
        min_resources=None if least is None else capacity(least, "spec.minResources"),
        annotations=kept_annotations(strings(metadata.get("annotations"), "metadata.annotations")),
        status=_status(mapping(raw.get("status"), "status")),
        epoch=epoch,
    )


def _status(raw: dict[str, Any]) -> PodGroupStatus | None:
    start_us = micros(raw.get("scheduleStartTime"), "status.scheduleStartTime")
    found = PodGroupStatus(
        phase=text(raw.get("phase"), "status.phase", default=""),
        occupied_by=text(raw.get("occupiedBy"), "status.occupiedBy", default=""),
        scheduled=_count(raw, "scheduled"),
        running=_count(raw, "running"),
        succeeded=_count(raw, "succeeded"),
        failed=_count(raw, "failed"),
        schedule_start_us=start_us or 0,
    )
    return None if found == PodGroupStatus() else found


def _count(raw: dict[str, Any], field: str) -> int:
    """A count of the status. No schema forbids a negative one, and it must not hide the PodGroup."""
    return max(whole(raw.get(field), f"status.{field}", 0), 0)


def api_group(raw: dict[str, Any]) -> str:
    """The API group of an object, from its apiVersion `group/version`."""
    return text(raw.get("apiVersion"), "apiVersion").rpartition("/")[0]
