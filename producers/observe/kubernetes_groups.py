"""PodGroup of Kubernetes itself (`scheduling.k8s.io`, 1.37) -> `PodGroupObserved`: its gang policy, not its status.

The items of its lists don't name their API group, as those of a CRD do. Its status is conditions, of other writers.
"""

from typing import Any, Final

from producers.observe.fields import (
    created_us,
    mapping,
    natural,
    observing,
    strings,
    text,
    version,
)
from schemas.labels import GROUP_KUBERNETES, kept_annotations
from schemas.observations import PodGroupObserved

#: Fields that no rule decides yet: the group's pods are held, the fields are not ignored.
_UNDECIDED: Final = ("parentCompositePodGroupName", "resourceClaims", "schedulingConstraints")


def _minimal(seen: PodGroupObserved, _why: str) -> PodGroupObserved:
    return seen.model_copy(update={"annotations": {}})


@observing("PodGroup", _minimal)
def observe_kubernetes_group(raw: dict[str, Any], epoch: str | None = None) -> PodGroupObserved:
    """The observation of a PodGroup as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    return PodGroupObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        group=GROUP_KUBERNETES,
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        created_us=created_us(metadata),
        min_member=_min_count(spec),
        annotations=kept_annotations(strings(metadata.get("annotations"), "metadata.annotations")),
        unsupported=tuple(field for field in _UNDECIDED if spec.get(field)),
        epoch=epoch,
    )


def _min_count(spec: dict[str, Any]) -> int:
    """`minCount` of the gang policy; 0: policy basic, whose pods wait for nobody."""
    policy = mapping(spec.get("schedulingPolicy"), "spec.schedulingPolicy")
    if policy.get("gang") is None:
        return 0
    gang = mapping(policy["gang"], "spec.schedulingPolicy.gang")
    return natural(gang.get("minCount"), "spec.schedulingPolicy.gang.minCount", default=1)
