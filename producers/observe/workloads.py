"""Workload of Kubernetes 1.35 (`scheduling.k8s.io/v1alpha1`) -> `WorkloadObserved`: the policies of its pod groups.

Later versions have templates in the place of pod groups, and PodGroups of their own: they declare nothing here.
"""

from typing import Any

from producers.observe.fields import (
    created_us,
    mapping,
    observing,
    sequence,
    strings,
    text,
    version,
)
from producers.observe.kubernetes_groups import min_count
from schemas.labels import kept_annotations
from schemas.observations import WorkloadObserved


def _minimal(seen: WorkloadObserved, _why: str) -> WorkloadObserved:
    return seen.model_copy(update={"annotations": {}})


@observing("Workload", _minimal)
def observe_workload(raw: dict[str, Any], epoch: str | None = None) -> WorkloadObserved:
    """The observation of a Workload as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    groups = {}
    for number, item in enumerate(sequence(spec.get("podGroups"), "spec.podGroups")):
        path = f"spec.podGroups[{number}]"
        groups[text(item.get("name"), f"{path}.name")] = min_count(
            mapping(item.get("policy"), f"{path}.policy"), f"{path}.policy"
        )
    return WorkloadObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        namespace=text(metadata.get("namespace"), "metadata.namespace"),
        name=text(metadata.get("name"), "metadata.name"),
        created_us=created_us(metadata),
        pod_groups={name: groups[name] for name in sorted(groups)},
        annotations=kept_annotations(strings(metadata.get("annotations"), "metadata.annotations")),
        epoch=epoch,
    )
