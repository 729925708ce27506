"""Who must leave with a victim: members of a gang that is preempted as a whole or not at all.

Reads only. Called by `state.preemption` for a plan, and by `state.evictions` before a victim is spared.
"""

from state.model.gangs import podgroup_of
from state.model.rows import Pod
from state.model.state import State, place_of


def leaves_whole(state: State, gang: str) -> bool:
    """Whether members of the gang are only preempted together (Kubernetes' disruption mode `all`)."""
    group = podgroup_of(state, gang) if gang else None
    return group is not None and group.disruption == "all"


class Companions:
    """What is known of such gangs, worked out once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._known: dict[
            str, list[Pod]
        ] = {}  # gang -> members with a node that stay; none: they may go one by one

    def of(self, pod: Pod) -> list[Pod]:
        """The others of the pod's gang that have a node and don't leave it already; empty: it may go alone."""
        return [other for other in self.all_of(self._state.gang_key(pod)) if other.uid != pod.uid]

    def all_of(self, gang: str) -> list[Pod]:
        """Members that only leave together, by uid; empty: they may go one by one."""
        if gang not in self._known:
            self._known[gang] = self._members(gang)
        return self._known[gang]

    def _members(self, gang: str) -> list[Pod]:
        state = self._state
        if not leaves_whole(state, gang):
            return []
        pods = [state.pods[uid] for uid in sorted(state.members.get(gang, ()))]
        return [
            pod for pod in pods if place_of(pod) and not pod.nominated and not state.is_leaving(pod)
        ]
