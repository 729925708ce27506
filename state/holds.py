"""What NonStrict gangs hold until the rest of them has a node, how long, and for whom they let go (semantics 1.5, 1.7).

Also the end of room that is kept for a nominated pod. Called by `state.cycle` and `state.units`.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from state.line import UPSTREAM, Line, Unit
from state.model.gangs import podgroup_of
from state.model.limits import BACKOFF_DOUBLINGS_MAX
from state.model.partners import Keys
from state.model.rows import Gang, Pod
from state.model.state import State
from state.placement import Placement
from state.rules.explain import gave_way, no_longer_kept, node_closed, timed_out
from state.rules.gangs import NON_STRICT, keeps_waiting, sends_back


class Holds:
    """Holds of one cycle's placement."""

    def __init__(self, line: Line, placement: Placement) -> None:
        self.line = line
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state

    def keeps(self, key: str, placeable: int) -> bool:
        """Whether the gang holds what it has, and so many more, though it or a partner lacks some."""
        return self.state.gangs[key].rest_until_us <= self.trial.now_us and self.may_hold(
            key, placeable
        )

    def may_hold(self, key: str, placeable: int = 0) -> bool:
        """The same, whether it rests or not; a gang that nothing declares never does."""
        state = self.state
        gang, group = state.gangs.get(key), podgroup_of(state, key)
        if gang is None or not gang.source:
            return False
        if group is None or group.group != UPSTREAM or gang.mode == NON_STRICT:
            return not sends_back(gang.mode, self.line.match(gang), satisfied=gang.satisfied)
        assert state.policy is not None
        percentage = state.policy.gangs.podGroupRejectPercentage
        assigned = sum(self.line.assigned(key)) + placeable
        return keeps_waiting(gang.min_member, assigned, percentage)

    def gather(self, key: str, pods: list[Pod]) -> None:
        gang = self.state.gangs[key]
        until_us = self.trial.now_us + self._wait_us(key, gang)
        left = self.line.needed(key, gang)
        for pod in pods:
            if left and self.placement.place(pod, held_until_us=until_us):
                left -= 1

    def _wait_us(self, key: str, gang: Gang) -> int:
        assert self.state.policy is not None
        rules, group = self.state.policy.gangs, podgroup_of(self.state, key)
        if gang.wait_us:
            return gang.wait_us
        if group is not None and group.group == UPSTREAM:
            return rules.permitWaitingTimeSeconds * 1_000_000
        return rules.defaultTimeout

    def behind(self, unit: Unit, *, equals: bool) -> list[Unit]:
        """Whose room the unit may take, the last in the queue first: who holds some, or has it kept, and is less
        important; `equals`: groups of its own rank that hold some and come after it, too.
        """
        rank = unit.key.negative_priority, unit.key.negative_sub_priority
        holders = dict.fromkeys(self._holders())
        behind = []
        for other in (*(self.line.group(keys) for keys in holders), *self._nominated(holders)):
            other_rank = other.key.negative_priority, other.key.negative_sub_priority
            is_own = other.uid == unit.uid and all(key in unit.gangs for key in other.gangs)
            equal = equals and other.gangs in holders and other.key > unit.key
            if not is_own and (other_rank > rank or equal):
                behind.append(other)
        return sorted(behind, key=lambda other: other.key, reverse=True)

    def _holders(self) -> Iterable[Keys]:
        state = self.state
        found: dict[Keys, None] = {}
        for uid in sorted(state.holding):
            found[state.partners.of(state.gang_key(state.pods[uid]))] = None
        return found

    def _nominated(self, holders: dict[Keys, None]) -> list[Unit]:
        """Units for which room is kept, but for those that hold some."""
        state = self.state
        singles: list[Unit] = []
        groups: dict[Keys, None] = {}
        for uid in sorted(state.nominated):
            key = state.gang_key(state.pods[uid])
            gang = state.gangs.get(key)
            if gang is None or self.line.comes_alone(key):
                singles.append(self.line.single(state.pods[uid]))
            elif (keys := state.partners.of(key)) not in holders:
                groups[keys] = None
        return [*singles, *(self.line.group(keys) for keys in groups)]

    def give_way(self, other: Unit, unit: str, *, spare: Keys = ()) -> None:
        """The other one gives up all that it holds and is nominated for, but for gangs that belong to the unit, too."""
        state = self.state
        if other.uid:
            pod = state.pods[other.uid]
            self.placement.let_go(pod, gave_way(state.gang_key(pod), unit))
        for key in (each for each in other.gangs if each not in spare):
            for pod in (*self.line.held(key), *self.line.nominated(key)):
                self.placement.let_go(pod, gave_way(key, unit))

    def check(self) -> None:
        """Ends holds, kept room and rests whose time is over, and holds on nodes that are closed to the pod now."""
        state, now_us = self.state, self.trial.now_us
        self._check_holders()
        for uid in sorted(state.nominated):
            pod = state.pods[uid]
            if pod.nominated_until_us <= now_us or not self.placement.may_stay(pod):
                self.placement.let_go(pod, no_longer_kept(state.gang_key(pod), pod.nominated))
        for key in sorted(state.resting):
            gang = state.gangs[key]
            if gang.rest_until_us <= now_us:
                self.trial.put("gangs", key, replace(gang, rest_until_us=0))
                self.trial.gangs_changed[key] = None

    def _check_holders(self) -> None:
        """A group that needs no more than it holds is tried in this cycle."""
        state, now_us = self.state, self.trial.now_us
        for keys in self._holders():
            held = [pod for key in keys for pod in self.line.held(key)]
            if min((pod.held_until_us for pod in held), default=now_us + 1) <= now_us:
                for pod in held:
                    self.placement.let_go(pod, timed_out(", ".join(keys)))
                for key in keys:
                    if key in state.gangs:
                        self._rest(key)
                continue
            for pod in reversed(held):
                if not self.placement.may_stay(pod):
                    key = state.gang_key(pod)
                    self.placement.let_go(pod, node_closed(key, pod.assumed))
                    self.trial.gangs_changed[key] = None
            gangs = [state.gangs[key] for key in keys if key in state.gangs]
            if not any(self.line.needed(f"{gang.namespace}/{gang.name}", gang) for gang in gangs):
                self.trial.gangs_changed.update(dict.fromkeys(keys))

    def _rest(self, key: str) -> None:
        """After a wait time that ran out others get their turn before the gang holds anything again."""
        policy, gang = self.state.policy, self.state.gangs[key]
        assert policy is not None
        doublings = min(gang.timeouts, BACKOFF_DOUBLINGS_MAX)
        pause_us = min(policy.backoff.initial << doublings, policy.backoff.max)
        rested = replace(
            gang, rest_until_us=self.trial.now_us + pause_us, timeouts=gang.timeouts + 1
        )
        self.trial.put("gangs", key, rested)
