"""Tries one unit whole: a single pod, or a gang with its group. Called by `state.cycle` in the order of the queue.

A gang group gets the minimum of every gang, or nothing; then surplus members one by one. A Strict gang that doesn't fit
holds nothing. A NonStrict one holds what it gathered until its wait time, and lets go for a unit ahead of it.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct
from msgspec.structs import replace

from state.model.diagnoses import Diagnosis
from state.model.gangs import podgroup_of
from state.model.limits import BACKOFF_DOUBLINGS_MAX
from state.model.order import OrderKey, order_key
from state.model.rows import Gang, Pod, PodGroup
from state.model.state import Shape, State
from state.placement import Placement
from state.preemption import Claim, Preemption
from state.rules.explain import (
    backing_off,
    gang_misfit,
    gave_way,
    group_missing,
    members_missing,
    node_closed,
    partner_waits,
    pod_misfit,
    room_missing,
    timed_out,
)
from state.rules.gangs import NON_STRICT, ONCE_SATISFIED, keeps_waiting, still_needed

UPSTREAM = "scheduling.x-k8s.io"
Keys = tuple[str, ...]


class Unit(Struct, frozen=True):
    """What is tried as a whole: `gangs` empty for the single pod `uid`."""

    key: OrderKey
    uid: str
    gangs: Keys


class Attempt(Struct):
    """What came of placing the minimums: `short` says for each gang that lacks some why; `surplus` waits its turn.

    `keepers`: gangs that hold what they gathered; `holds`: no gang of the group forbids that.
    """

    short: dict[str, Diagnosis]
    surplus: list[Pod]
    keepers: list[str]
    holds: bool = True


class Units:
    """Tries units on one placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state
        #: Class and rank of pods that would not fit even where less important gangs let go.
        self._in_vain: dict[tuple[bytes, int, int], None] = {}
        #: What asked for victims and found none in this cycle.
        self._no_victims: dict[object, None] = {}

    # -- reading ---------------------------------------------------------------------------------------------

    def single(self, pod: Pod) -> Unit:
        """The pod as a unit of its own."""
        return Unit(key=self._pod_key(pod), uid=pod.uid, gangs=())

    def group(self, keys: Keys) -> Unit:
        """A gang group: it goes by its most important ready member and its oldest gang."""
        state = self.state
        pods = [pod for key in keys for pod in (*self.ready(key), *self.held(key))]
        rank = max((self._rank(pod) for pod in pods), default=(0, 0))
        created_us = min(state.gangs[key].created_us for key in keys if key in state.gangs)
        return Unit(key=order_key(rank, created_us, ",".join(keys), ""), uid="", gangs=keys)

    def alike(self, tried: Mapping[Keys, None]) -> list[list[tuple[OrderKey, Keys]]]:
        """Waiting groups with their places in the queue, those together that ask for the same; without those `tried`.

        Of two that ask for the same one fits where the other does.
        """
        state = self.state
        grouped: dict[Keys, None] = {}
        for key in list(state.unshaped):
            gang = state.gangs.get(key)
            if gang is None or gang.groups:
                grouped[gang.groups if gang is not None else (key,)] = None
            else:
                shape = self._shape(key)
                place = order_key(shape.rank, shape.created_us, key, "")
                state.keep_shape(key, shape, place)
        lines: list[list[tuple[OrderKey, Keys]]] = [
            [(place, (key,)) for key, place in line.items() if (key,) not in tried]
            for line in state.alike.values()
        ]
        lines += [[(self.group(keys).key, keys)] for keys in grouped if keys not in tried]
        return [line for line in lines if line]

    def _shape(self, key: str) -> Shape:
        state = self.state
        gang, ready = state.gangs[key], self.ready(key)
        runs: list[tuple[bytes, int]] = []
        for pod in ready:
            spec = bytes(pod.spec)
            if runs and runs[-1][0] == spec:
                runs[-1] = (spec, runs[-1][1] + 1)
            else:
                runs.append((spec, 1))
        group = podgroup_of(state, key)
        wanted = group.min_resources if group is not None and group.group == UPSTREAM else None
        return Shape(
            asks=(self._needed(key, gang), gang.mode, tuple(sorted((wanted or {}).items())), *runs),
            rank=max((self._rank(pod) for pod in ready), default=(0, 0)),
            created_us=gang.created_us,
        )

    def comes_alone(self, key: str) -> bool:
        """Whether members of the gang have nobody to wait for: it is valid without them, and so are its partners."""
        gang = self.state.gangs.get(key)
        if gang is None or not gang.source or self._needed(key, gang) or self.held(key):
            return False
        started = gang.satisfied and self._match(gang) == ONCE_SATISFIED
        return not any(
            self._holds_back(partner, started=started) for partner in gang.groups if partner != key
        )

    def ready(self, key: str) -> list[Pod]:
        """The gang's members that wait and may be tried, in order."""
        state = self.state
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.waiting]
        ready = [pod for pod in pods if not pod.gates and self.placement.is_ready(pod)]
        return sorted(ready, key=self._pod_key)

    def held(self, key: str) -> list[Pod]:
        """The gang's members that hold a node, in order."""
        state = self.state
        if not state.holding:
            return []
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.holding]
        return sorted(pods, key=self._pod_key)

    def _pod_key(self, pod: Pod) -> OrderKey:
        name = f"{pod.namespace}/{pod.name}"
        return order_key(self._rank(pod), pod.created_us, name, pod.uid)

    def _rank(self, pod: Pod) -> tuple[int, int]:
        return self.state.class_of(pod).priority, self.state.membership(pod).sub_priority

    def _match(self, gang: Gang) -> str:
        assert self.state.policy is not None
        return gang.match or self.state.policy.gangs.defaultMatchPolicy

    def _assigned(self, key: str) -> tuple[int, int]:
        """Members with a node: not known to the API server yet, and known."""
        pods = [self.state.pods[uid] for uid in self.state.members.get(key, ())]
        return sum(1 for pod in pods if pod.assumed), sum(1 for pod in pods if pod.node)

    def _needed(self, key: str, gang: Gang) -> int:
        """Members still to be placed before the gang is valid."""
        if gang.satisfied and self._match(gang) == ONCE_SATISFIED:
            return 0
        waiting, bound = self._assigned(key)
        return still_needed(
            self._match(gang), gang.min_member, waiting, bound, satisfied=gang.satisfied
        )

    def _holds_back(self, partner: str, *, started: bool) -> bool:
        """Whether a gang waits for this partner. Where it has `started`, its once-satisfied partners have, too."""
        gang = self.state.gangs.get(partner)
        if gang is None or not gang.source:
            return not started
        if started and self._match(gang) == ONCE_SATISFIED:
            return False
        return self._needed(partner, gang) > 0 or bool(self.held(partner))

    # -- single pods -----------------------------------------------------------------------------------------

    def attempt(self, unit: Unit) -> bool:
        """Places the unit, or writes why not. False: room is as it was."""
        before = self.placement.moves
        if unit.gangs:
            self._attempt_group(unit)
        elif unit.uid in self.state.waiting:
            self._attempt_single(unit, self.state.pods[unit.uid])
        return self.placement.moves != before

    def _attempt_single(self, unit: Unit, pod: Pod) -> None:
        placement = self.placement
        mark, kept = placement.mark(), pod.nominated
        pod = placement.renounce(pod)
        if placement.place(pod):
            return
        if kept and self._is_coming(kept):
            placement.back_to(mark)
            return
        placement.let_some_go = placement.let_some_go or bool(kept)
        if not self._room_for_single(unit, pod):
            told = self._victims_for_single(pod)
            pod = self.state.pods[pod.uid]
            if not pod.nominated:
                placement.explain(pod, told or pod_misfit(placement.misfit(pod)))

    def _is_coming(self, node: str) -> bool:
        """Whether somebody is still leaving the node, so that its room is worth waiting for."""
        pods = (self.state.pods[uid] for uid in self.state.pods_on.get(node, ()))
        return any(not pod.nominated and self.state.is_leaving(pod) for pod in pods)

    def could_preempt(self, pod: Pod) -> bool:
        """Whether looking for victims of a single pod can lead to something."""
        assert self.state.policy is not None
        return self.state.policy.preemption.pods and self.state.outranks_some(pod)

    def _victims_for_single(self, pod: Pod) -> Diagnosis | None:
        key = bytes(pod.spec), pod.owner
        if not self.could_preempt(pod) or key in self._no_victims:
            return None
        claim = Claim(
            name=f"{pod.namespace}/{pod.name}",
            claimant=(pod.owner and f"{pod.namespace}/{pod.owner}") or pod.uid,
            priority=self.state.class_of(pod).priority,
            gang=False,
        )
        return self._make_room(claim, [pod], key)

    def _victims_for_group(self, unit: Unit, members: dict[str, list[Pod]]) -> Diagnosis | None:
        """Evicts for the minimum of every gang of the group, if policy has gangs preempt."""
        policy = self.state.policy
        assert policy is not None
        needed: list[Pod] = []
        for key, pods in members.items():
            needed += pods[: self._needed(key, self.state.gangs[key])]
        if not policy.gangs.enablePreemption or not needed:
            return None
        lowest = min(needed, key=lambda pod: self.state.class_of(pod).priority)
        memo = unit.gangs
        if not self.state.outranks_some(lowest) or memo in self._no_victims:
            return None
        claim = Claim(
            name=", ".join(unit.gangs),
            claimant=", ".join(unit.gangs),
            priority=self.state.class_of(lowest).priority,
            gang=True,
        )
        return self._make_room(claim, needed, memo)

    def _make_room(self, claim: Claim, members: list[Pod], memo: object) -> Diagnosis | None:
        told = Preemption(self.placement).make_room(claim, members)
        if told is None or not self.state.pods[members[0].uid].nominated:
            self._no_victims[memo] = None
        return told

    def _room_for_single(self, unit: Unit, pod: Pod) -> bool:
        """Places the pod in room that less important gangs hold."""
        tried = bytes(pod.spec), unit.key.negative_priority, unit.key.negative_sub_priority
        if not self.state.holding or tried in self._in_vain:
            return False
        mark = self.placement.mark()
        for keys in self._holders_behind(unit, equals=False):
            self._give_way(keys, f"{pod.namespace}/{pod.name}")
            if self.placement.place(pod):
                self._in_vain.clear()
                return True
        self.placement.back_to(mark)
        self._in_vain[tried] = None
        return False

    # -- gang groups -----------------------------------------------------------------------------------------

    def _attempt_group(self, unit: Unit) -> None:
        placement = self.placement
        mark = placement.mark()
        kept = self._renounce(unit.gangs)
        members = {key: self.ready(key) for key in unit.gangs if not self.comes_alone(key)}
        refusals = {
            key: reason for key in members if (reason := self._shortage(key, len(members[key])))
        }
        if refusals:
            placement.let_some_go = placement.let_some_go or bool(kept)
            self._refuse(members, refusals)
            return
        inner = placement.mark()
        attempt = self._place_minimums(members)
        if attempt.short:
            placement.back_to(inner)
            if any(self._is_coming(node) for node in kept):
                placement.back_to(mark)
                return
            placement.let_some_go = placement.let_some_go or bool(kept)
            attempt = self._room_for_group(unit, members, attempt)
        if attempt.short:
            told = self._victims_for_group(unit, members)
            if told is not None:
                self._refuse(members, dict.fromkeys(members, told))
            else:
                self._stay(members, attempt)
            return
        for key in members:
            for pod in self.held(key):
                if not pod.command:
                    placement.send(pod)
        for pod in attempt.surplus:
            if not placement.place(pod):
                placement.explain(pod, pod_misfit(placement.misfit(pod)))

    def _renounce(self, keys: Keys) -> list[str]:
        """Gives up all that members of the group are nominated for; the nodes."""
        nodes: dict[str, None] = {}
        for key in keys if self.state.nominated else ():
            for uid in sorted(self.state.members.get(key, ())):
                if uid in self.state.nominated:
                    nodes[self.state.pods[uid].nominated] = None
                    self.placement.renounce(self.state.pods[uid])
        return list(nodes)

    def _shortage(self, key: str, ready: int) -> Diagnosis | None:
        """Why the gang can't be tried at all, or None."""
        gang = self.state.gangs.get(key)
        if gang is None or not gang.source:
            return group_missing(key)
        needed = self._needed(key, gang)
        if ready < needed:
            return members_missing(key, ready, needed, gang.min_member)
        group = podgroup_of(self.state, key)
        if not needed or group is None or group.group != UPSTREAM:
            return None
        if gang.rest_until_us > self.trial.now_us:
            return backing_off(key, gang.rest_until_us)
        return self._resources_missing(key, group)

    def _resources_missing(self, key: str, group: PodGroup) -> Diagnosis | None:
        """Upstream's `minResources`: what all nodes have free, and what the gang has of its own, must be that much."""
        if not group.min_resources:
            return None
        state = self.state
        wanted = {**group.min_resources, "pods": group.min_member}
        own: dict[str, int] = {}
        for uid in state.members.get(key, ()):
            pod = state.pods[uid]
            if pod.assumed or pod.node:
                for name, amount in state.class_of(pod).requests:
                    own[name] = own.get(name, 0) + amount
        short = {}
        for name in sorted(wanted):
            have = state.columns.free_everywhere(name) + own.get(name, 0)
            if have < wanted[name]:
                short[name] = {"have": have, "want": wanted[name]}
        return room_missing(key, short) if short else None

    def _place_minimums(self, members: dict[str, list[Pod]]) -> Attempt:
        """Places as many members as each gang needs; stops at a gang that would not hold what it gathered."""
        attempt = Attempt(short={}, surplus=[], keepers=[])
        for key, pods in members.items():
            missed = self._place_minimum(key, pods, attempt.surplus)
            keeps = self._keeps(key)
            if keeps:
                attempt.keepers.append(key)
            if missed is not None:
                attempt.short[key] = missed
                if not keeps:
                    attempt.holds = False
                    break
        return attempt

    def _place_minimum(self, key: str, members: list[Pod], surplus: list[Pod]) -> Diagnosis | None:
        """Places as many members as the gang needs, passing over those that fit nowhere; None: done."""
        gang = self.state.gangs[key]
        needed = self._needed(key, gang)
        done, misfit = 0, None
        for pod in members:
            if done < needed and self.placement.place(pod):
                done += 1
                continue
            surplus.append(pod)
            if done < needed:
                misfit = misfit or self.placement.misfit(pod)
        if done == needed:
            return None
        assert misfit is not None
        return gang_misfit(misfit, key, done, needed, gang.min_member)

    def _refuse(self, members: dict[str, list[Pod]], refusals: dict[str, Diagnosis]) -> None:
        """Tells every ready member of the group what its gang, or a partner, lacks."""
        partner = min(refusals)
        for key, pods in members.items():
            reason = refusals.get(key) or partner_waits(key, partner, refusals[partner])
            for pod in pods:
                if pod.uid in self.state.waiting:
                    self.placement.explain(pod, reason)

    # -- holding ---------------------------------------------------------------------------------------------

    def _stay(self, members: dict[str, list[Pod]], attempt: Attempt) -> None:
        """The group can't start now: what may hold gathers, all else holds nothing."""
        if attempt.holds:
            for key in attempt.keepers:
                self._gather(key, members[key])
        else:
            reason = attempt.short[next(reversed(attempt.short))]
            for key in members:
                for pod in self.held(key):
                    self.placement.let_go(pod, reason)
            self._back_off(attempt)
        self._refuse(members, attempt.short)

    def _gather(self, key: str, pods: list[Pod]) -> None:
        gang = self.state.gangs[key]
        until_us = self.trial.now_us + self._wait_us(key, gang)
        left = self._needed(key, gang)
        for pod in pods:
            if left and self.placement.place(pod, held_until_us=until_us):
                left -= 1

    def _keeps(self, key: str) -> bool:
        """Whether the gang holds what it has now, though it or a partner lacks some."""
        state = self.state
        gang, group = state.gangs[key], podgroup_of(state, key)
        if gang.rest_until_us > self.trial.now_us:
            return False
        if group is None or group.group != UPSTREAM:
            return gang.mode == NON_STRICT
        assert state.policy is not None
        percentage = state.policy.gangs.podGroupRejectPercentage
        return keeps_waiting(gang.min_member, sum(self._assigned(key)), percentage)

    def _back_off(self, attempt: Attempt) -> None:
        """Upstream's back-off of a PodGroup that was rejected, where the policy has one."""
        state = self.state
        assert state.policy is not None
        pause_us = state.policy.gangs.podGroupBackoffSeconds * 1_000_000
        for key in attempt.short if pause_us else ():
            group = podgroup_of(state, key)
            if group is not None and group.group == UPSTREAM:
                until_us = self.trial.now_us + pause_us
                self.trial.put("gangs", key, replace(state.gangs[key], rest_until_us=until_us))

    def _wait_us(self, key: str, gang: Gang) -> int:
        assert self.state.policy is not None
        rules, group = self.state.policy.gangs, podgroup_of(self.state, key)
        if gang.wait_us:
            return gang.wait_us
        if group is not None and group.group == UPSTREAM:
            return rules.permitWaitingTimeSeconds * 1_000_000
        return rules.defaultTimeout

    def _room_for_group(
        self, unit: Unit, members: dict[str, list[Pod]], failed: Attempt
    ) -> Attempt:
        """Tries again with room that units behind hold: less important ones, and for a gang that would hold, too, the
        younger of its own rank, for the two could wait for each other.
        """
        mark = self.placement.mark()
        for keys in self._holders_behind(unit, equals=failed.holds):
            self._give_way(keys, ", ".join(unit.gangs))
            inner = self.placement.mark()
            attempt = self._place_minimums(members)
            if not attempt.short:
                self._in_vain.clear()
                return attempt
            self.placement.back_to(inner)
        self.placement.back_to(mark)
        return failed

    def _holders_behind(self, unit: Unit, *, equals: bool) -> list[Keys]:
        """Groups that hold room and come after the unit in the queue, the last one first."""
        rank = unit.key.negative_priority, unit.key.negative_sub_priority
        behind = []
        for other in (self.group(keys) for keys in self._holders()):
            other_rank = other.key.negative_priority, other.key.negative_sub_priority
            ahead = other.gangs == unit.gangs or other.key < unit.key
            if not ahead and (equals or other_rank > rank):
                behind.append(other)
        return [other.gangs for other in sorted(behind, key=lambda o: o.key, reverse=True)]

    def _holders(self) -> Iterable[Keys]:
        state = self.state
        found: dict[Keys, None] = {}
        for uid in sorted(state.holding):
            key = state.gang_key(state.pods[uid])
            gang = state.gangs.get(key)
            found[(gang.groups if gang is not None else ()) or (key,)] = None
        return found

    def _give_way(self, keys: Keys, unit: str) -> None:
        for key in keys:
            for pod in self.held(key):
                self.placement.let_go(pod, gave_way(key, unit))

    def check_holds(self) -> None:
        """Lets go what is held too long, and what is held on a node that is no longer open to the pod."""
        state, now_us = self.state, self.trial.now_us
        for keys in self._holders():
            held = [pod for key in keys for pod in self.held(key)]
            if min((pod.held_until_us for pod in held), default=now_us + 1) <= now_us:
                for pod in held:
                    self.placement.let_go(pod, timed_out(", ".join(keys)))
                for key in keys:
                    if key in state.gangs:
                        self._rest(key)
                continue
            for pod in held:
                if not self.placement.may_stay(pod):
                    key = state.gang_key(pod)
                    self.placement.let_go(pod, node_closed(key, pod.assumed))
                    self.trial.gangs_changed[key] = None
        for uid in sorted(state.nominated):
            pod = state.pods[uid]
            if pod.nominated_until_us <= now_us or pod.nominated not in state.nodes:
                self.placement.let_go(pod, timed_out(f"{pod.namespace}/{pod.name}"))
        for key in sorted(state.resting):
            gang = state.gangs[key]
            if gang.rest_until_us <= now_us:
                self.trial.put("gangs", key, replace(gang, rest_until_us=0))
                self.trial.gangs_changed[key] = None

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
