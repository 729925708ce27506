"""API versions of every resource that Lockstep reads, or writes a status of.

Where several are named the first one that the API server serves counts. The client of the informers and that of the
sink ask for them in that order.
"""

from collections.abc import Iterable
from typing import Final

#: Resource (`plural.group`) -> versions, the preferred one first.
VERSIONS: Final[dict[str, tuple[str, ...]]] = {
    "pods": ("v1",),
    "nodes": ("v1",),
    "namespaces": ("v1",),
    "priorityclasses.scheduling.k8s.io": ("v1",),
    "podgroups.scheduling.x-k8s.io": ("v1alpha1",),
    "podgroups.scheduling.sigs.k8s.io": ("v1alpha1",),
    # Kubernetes 1.37 has the first two, 1.36 the last one.
    "podgroups.scheduling.k8s.io": ("v1beta1", "v1alpha3", "v1alpha2"),
    # Of 1.35. Later ones are templates of PodGroups, by which nothing is decided.
    "workloads.scheduling.k8s.io": ("v1alpha1",),
    "elasticquotas.scheduling.x-k8s.io": ("v1alpha1",),
    "elasticquotas.scheduling.sigs.k8s.io": ("v1alpha1",),
    "poddisruptionbudgets.policy": ("v1",),
    "devices.scheduling.koordinator.sh": ("v1alpha1",),
}


class ServedVersions:
    """Which versions to try for a resource, the one that was served last first."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}

    def to_try(self, resource: str) -> Iterable[str]:
        """Versions in the order in which they are worth asking for."""
        last = self._last.get(resource)
        return sorted(VERSIONS[resource], key=lambda version: version != last)

    def last(self, resource: str) -> str:
        """The version that was served last, or the preferred one."""
        return self._last.get(resource, VERSIONS[resource][0])

    def served(self, resource: str, version: str) -> None:
        """The API server knows the resource in that version."""
        self._last[resource] = version
