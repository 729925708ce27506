"""PodGroup of either API group -> `PodGroupObserved`. Its status is no input of ours."""

from typing import Any

from producers.observe.fields import (
    capacity,
    created_us,
    mapping,
    natural,
    observing,
    strings,
    text,
    version,
    whole,
)
from schemas.labels import kept_annotations
from schemas.observations import PodGroupObserved


def _minimal(seen: PodGroupObserved, _why: str) -> PodGroupObserved:
    return seen.model_copy(update={"annotations": {}})


@observing("PodGroup", _minimal)
def observe_podgroup(raw: dict[str, Any], epoch: str | None = None) -> PodGroupObserved:
    """The observation of a PodGroup as the API server's JSON shows it. Raises `InvalidMessage`.

    A timeout that is not positive means none. Without `minMember` one member is enough.
    """
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    timeout_s = whole(spec.get("scheduleTimeoutSeconds"), "spec.scheduleTimeoutSeconds", 0)
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
        epoch=epoch,
    )


def api_group(raw: dict[str, Any]) -> str:
    """The API group of an object, from its apiVersion `group/version`."""
    return text(raw.get("apiVersion"), "apiVersion").rpartition("/")[0]
