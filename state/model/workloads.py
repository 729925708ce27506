"""Workloads of Kubernetes 1.35: each replica of each of their pod groups is a gang, `ns/WORKLOAD/PODGROUP[/REPLICA]`.

No other name of an object has a slash in it. Such a gang is there while it has members.
"""

from state.model.indexes import mark_under
from state.model.limits import KUBERNETES
from state.model.rows import PodGroup, Workload


class Replicas:
    """Gangs and objects of each Workload's `ns/name`: derived from rows, kept by `state.model.state`."""

    def __init__(self, workloads: dict[str, Workload]) -> None:
        self._workloads = workloads
        self._named: dict[str, dict[str, None]] = {}  # "ns/name" -> uids
        self.of: dict[str, dict[str, None]] = {}  # "ns/name" -> gangs

    def declared(self, uid: str, workload: Workload, there: bool) -> list[str]:
        """The Workload came, changed or went; the gangs that it speaks of."""
        name = f"{workload.namespace}/{workload.name}"
        mark_under(self._named, name, uid, there)
        return [*self.of.get(name, ())]

    def formed(self, gang: str, there: bool) -> None:
        """A gang came, changed or went."""
        if name := workload_of(gang):
            mark_under(self.of, name, gang, there)

    def podgroup_of(self, gang: str) -> PodGroup | None:
        """What the gang's Workload says of it, as if it had a PodGroup; of two namesakes the newer counts."""
        uids = self._named.get(workload_of(gang))
        if not uids:
            return None
        newest = max((self._workloads[uid] for uid in uids), key=lambda row: (row.rv, row.uid))
        return _podgroup_in(newest, gang)


def workload_of(gang: str) -> str:
    """`ns/name` of the Workload that the gang `ns/name` names; empty: none."""
    namespace, _, name = gang.partition("/")
    workload, slash, _ = name.partition("/")
    return f"{namespace}/{workload}" if slash else ""


def _podgroup_in(workload: Workload, gang: str) -> PodGroup | None:
    _, _, name = gang.partition("/")
    minimum = workload.pod_groups.get(name.split("/")[1])
    if minimum is None:
        return None
    return PodGroup(
        annotations=workload.annotations,
        created_us=workload.created_us,
        group=KUBERNETES,
        min_member=minimum,
        name=name,
        namespace=workload.namespace,
        rv=workload.rv,
        uid=workload.uid,
    )
