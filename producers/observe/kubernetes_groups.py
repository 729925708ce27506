"""PodGroup of Kubernetes itself (`scheduling.k8s.io`, 1.36 and 1.37) -> `PodGroupObserved`: its gang policy and the
condition that says whether it was placed, of which we are one writer.

The items of its lists don't name their API group, as those of a CRD do.
"""

from typing import Any, Final, Literal

from producers.observe.fields import (
    created_us,
    mapping,
    micros,
    natural,
    observing,
    sequence,
    strings,
    text,
    version,
)
from schemas.labels import GROUP_KUBERNETES, kept_annotations
from schemas.observations import PodGroupObserved, PodGroupStatus

#: Fields that no rule decides yet: the group's pods are held, the fields are not ignored.
_UNDECIDED: Final = ("parentCompositePodGroupName", "resourceClaims", "schedulingConstraints")
#: Types of the condition, of 1.37 and of 1.36.
_PLACED: Final = ("PodGroupInitiallyScheduled", "PodGroupScheduled")
_STATUSES: Final = ("True", "False", "Unknown")


def _minimal(seen: PodGroupObserved, _why: str) -> PodGroupObserved:
    return seen.model_copy(update={"annotations": {}, "status": None})


@observing("PodGroup", _minimal)
def observe_kubernetes_group(raw: dict[str, Any], epoch: str | None = None) -> PodGroupObserved:
    """The observation of a PodGroup as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    path = "spec.schedulingPolicy"
    return PodGroupObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        group=GROUP_KUBERNETES,
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        created_us=created_us(metadata),
        min_member=min_count(mapping(spec.get("schedulingPolicy"), path), path),
        annotations=kept_annotations(strings(metadata.get("annotations"), "metadata.annotations")),
        disruption=_disruption(spec.get("disruptionMode")),
        status=_status(mapping(raw.get("status"), "status")),
        unsupported=tuple(field for field in _UNDECIDED if spec.get(field)),
        epoch=epoch,
    )


def min_count(policy: dict[str, Any], path: str) -> int:
    """`minCount` of a gang policy; 0: policy basic, whose pods wait for nobody."""
    if policy.get("gang") is None:
        return 0
    gang = mapping(policy["gang"], f"{path}.gang")
    return natural(gang.get("minCount"), f"{path}.gang.minCount", default=1)


def _disruption(mode: Any) -> Literal["single", "all"]:
    """`spec.disruptionMode`: of 1.37 an object with one field, of 1.36 a word."""
    if isinstance(mode, str):
        return "all" if mode == "PodGroup" else "single"
    return "all" if "all" in mapping(mode, "spec.disruptionMode") else "single"


def _status(raw: dict[str, Any]) -> PodGroupStatus | None:
    for condition in sequence(raw.get("conditions"), "status.conditions"):
        if condition.get("type") in _PLACED and condition.get("status") in _STATUSES:
            path = "status.conditions.lastTransitionTime"
            return PodGroupStatus(
                condition=condition["status"],
                condition_us=micros(condition.get("lastTransitionTime"), path) or 0,
                message=text(condition.get("message"), "status.conditions.message", default=""),
                reason=text(condition.get("reason"), "status.conditions.reason", default=""),
            )
    return None
