"""The kinds that the simulated cluster understands, and their names on the wire.

Only a table and its look-ups. A kind that is not here is refused by name: nothing is ever ignored.
Used by the store, by the informers and by the steps of `lockstep simulate`.
"""

from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import InvalidMessage


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of one API group; `resource` is its `plural.group` as in `schemas.topics`."""

    group: str
    name: str
    plural: str
    namespaced: bool = True

    @property
    def resource(self) -> str:
        """`plural.group`, the core group without a suffix."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


KINDS: Final[tuple[Kind, ...]] = (
    Kind("", "Namespace", "namespaces", namespaced=False),
    Kind("scheduling.k8s.io", "PriorityClass", "priorityclasses", namespaced=False),
    Kind("", "Node", "nodes", namespaced=False),
    Kind("scheduling.koordinator.sh", "Device", "devices", namespaced=False),
    Kind("scheduling.x-k8s.io", "ElasticQuota", "elasticquotas"),
    Kind("scheduling.sigs.k8s.io", "ElasticQuota", "elasticquotas"),
    Kind("scheduling.x-k8s.io", "PodGroup", "podgroups"),
    Kind("scheduling.sigs.k8s.io", "PodGroup", "podgroups"),
    Kind("scheduling.k8s.io", "PodGroup", "podgroups"),
    Kind("scheduling.k8s.io", "Workload", "workloads"),
    Kind("", "Pod", "pods"),
    Kind("policy", "PodDisruptionBudget", "poddisruptionbudgets"),
    Kind("apps", "ReplicaSet", "replicasets"),
    Kind("apps", "Deployment", "deployments"),
    Kind("apps", "StatefulSet", "statefulsets"),
    Kind("batch", "Job", "jobs"),
)

POD: Final = next(kind for kind in KINDS if kind.name == "Pod")
REPLICA_SET: Final = next(kind for kind in KINDS if kind.name == "ReplicaSet")

_BY_NAME: Final = {(kind.group, kind.name): kind for kind in KINDS}


def kind_of(document: dict[str, Any]) -> Kind:
    """The kind of a manifest. Raises `InvalidMessage` (`UnknownKind`) that names it."""
    api_version, name = document.get("apiVersion"), document.get("kind")
    if not isinstance(name, str) or not isinstance(api_version, str):
        raise InvalidMessage(
            "InvalidField", "apiVersion and kind: every document needs both, as text"
        )
    group = api_version.rpartition("/")[0]
    try:
        return _BY_NAME[group, name]
    except KeyError:
        raise InvalidMessage(
            "UnknownKind", f"kind {name} of {api_version} is not understood by this version"
        ) from None


def kinds_named(name: str) -> tuple[Kind, ...]:
    """All kinds called `name`, of whatever group. Raises `InvalidMessage` when there is none."""
    found = tuple(kind for kind in KINDS if kind.name == name)
    if not found:
        raise InvalidMessage("UnknownKind", f"kind {name} is not understood by this version")
    return found
