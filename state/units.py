"""Tries one unit whole: a single pod, or a gang with its group. Called by `state.cycle` in the order of the queue.

A gang group gets the minimum of every gang, or nothing; then surplus members one by one. A Strict gang that doesn't fit
holds nothing. A NonStrict one holds what it gathered until its wait time, and lets go for a unit ahead of it.
"""

from msgspec import Struct
from msgspec.structs import replace

from state.futility import Claim, claimant_of
from state.holds import Holds
from state.line import UPSTREAM, Line, Unit
from state.model.diagnoses import Code, Diagnosis
from state.model.gangs import podgroup_of
from state.model.partners import Keys
from state.model.rows import Pod, PodGroup
from state.model.state import State, place_of
from state.packing import Wanted, may_fit, other_orders
from state.placement import Mark, Placement, runs
from state.preemption import Preemption
from state.room import comes_free
from state.rules.explain import (
    backing_off,
    gang_misfit,
    group_missing,
    members_missing,
    partner_waits,
    pod_misfit,
    room_missing,
)


class Attempt(Struct):
    """What came of placing the minimums: `short` says for each gang that lacks some why; `surplus` waits its turn.

    `keepers`: gangs that hold what they gathered; `forbids`: those for whom nobody that waits for them may hold any.
    """

    short: dict[str, Diagnosis]
    surplus: list[Pod]
    keepers: list[str]
    forbids: list[str] = []


class Units:
    """Tries units on one placement."""

    def __init__(self, line: Line, holds: Holds, placement: Placement) -> None:
        self.line = line
        self.holds = holds
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state
        #: Class and rank of pods that would not fit even where less important gangs let go.
        self._in_vain: dict[tuple[bytes, int, int], None] = {}
        #: What asked for victims and found none in this cycle.
        self._no_victims: dict[object, None] = {}
        self._own_victims: dict[tuple[Keys, int], bool] = {}  # a cache

    def attempt(self, unit: Unit) -> bool:
        """Places the unit, or writes why not. False: room is as it was."""
        before = self.placement.moves
        if unit.gangs:
            self._attempt_group(unit)
            for key in unit.gangs:
                if self.line.comes_alone(key):
                    self._place_each(self.line.ready(key))
        elif unit.uid in self.state.waiting:
            self._attempt_single(unit, self.state.pods[unit.uid])
        return self.placement.moves != before

    def _attempt_single(self, unit: Unit, pod: Pod) -> None:
        placement = self.placement
        kept = pod.nominated
        mark = placement.mark() if kept else None
        pod = placement.renounce(pod) if kept else pod
        if placement.place(pod):
            self._note_left({pod.uid: kept} if kept else {})
            return
        if mark is not None and self._is_coming(kept):
            placement.back_to(mark)
            return
        placement.let_some_go = placement.let_some_go or bool(kept)
        if not self._room_for_single(unit, pod):
            told = self._victims_for_single(pod)
            pod = self.state.pods[pod.uid]
            if not pod.nominated:
                placement.explain(pod, told or pod_misfit(placement.misfit(pod)))

    def _note_left(self, kept: dict[str, str]) -> None:
        """Who got another node than was kept for it (pod uid -> node) leaves room there for those tried before."""
        pods = self.state.pods
        if any(pods[uid].assumed != node for uid, node in kept.items()):
            self.placement.let_some_go = True

    def _is_coming(self, node: str) -> bool:
        """Whether somebody is still leaving the node, so that its room is worth waiting for."""
        pods = (self.state.pods[uid] for uid in self.state.pods_on.get(node, ()))
        return any(not pod.nominated and comes_free(self.trial, pod) for pod in pods)

    def could_take_room(self, pod: Pod) -> bool:
        """Whether a single pod that fits nowhere may get room that others have, or that is kept for them."""
        priority, state = self.state.class_of(pod).priority, self.state
        return self._could_preempt(pod) or any(
            state.class_of(state.pods[uid]).priority < priority for uid in state.nominated
        )

    def _could_preempt(self, pod: Pod) -> bool:
        """Whether looking for victims of a single pod can lead to something."""
        assert self.state.policy is not None
        return self.state.policy.preemption.pods and self.state.outranks_some(pod)

    def _victims_for_single(self, pod: Pod) -> Diagnosis | None:
        key = bytes(pod.spec), pod.owner, self.never_evicts(pod)
        if not self._could_preempt(pod) or key in self._no_victims:
            return None
        return self._make_room(self.claim_of_single(pod), [(1, [pod])], key)

    def claim_of_single(self, pod: Pod) -> Claim:
        """As who a single pod asks for room."""
        return Claim(
            name=f"{pod.namespace}/{pod.name}",
            claimant=claimant_of(pod),
            pod=pod.uid,
            priority=self._priority(pod),
            own=self._own(pod),
        )

    def never_evicts(self, pod: Pod) -> Keys:
        """Gangs of whom it could have victims if they weren't its own: as the cycle found it, for all of a rank."""
        own = self._own(pod)
        key = own, self._priority(pod)
        if own and key not in self._own_victims:
            members = [self.state.pods[uid] for of in own for uid in self.state.members.get(of, ())]
            below = (place_of(each) and self._priority(each) < key[1] for each in members)
            self._own_victims[key] = any(below)
        return own if own and self._own_victims[key] else ()

    def _own(self, pod: Pod) -> Keys:
        """The gangs of a single pod's group."""
        key = self.state.gang_key(pod)
        return self.state.partners.of(key) if key in self.state.gangs else ()

    def claim_of_group(self, unit: Unit, needed: list[Pod]) -> Claim:
        """As who a gang group asks for room for the members that it needs: as its least important one."""
        return Claim(
            name=", ".join(unit.gangs),
            claimant=", ".join(unit.gangs),
            priority=min(map(self._priority, needed)),
            gangs=unit.gangs,
            needy=tuple(sorted({self.state.gang_key(pod) for pod in needed})),
            own=unit.gangs,
        )

    def _victims_for_group(self, unit: Unit, members: dict[str, list[Pod]]) -> Diagnosis | None:
        """Evicts for the minimum of every gang of the group, if policy has gangs preempt."""
        policy = self.state.policy
        assert policy is not None
        counts = {key: self.line.needed(key, self.state.gangs[key]) for key in members}
        first = [pod for key, pods in members.items() for pod in pods[: counts[key]]]
        if not policy.gangs.enablePreemption or not first:
            return None
        lowest = min(first, key=self._priority)
        if not self.state.outranks_some(lowest) or unit.gangs in self._no_victims:
            return None
        claim = self.claim_of_group(unit, first)
        wanted = [
            (counts[key], [pod for pod in pods if self._priority(pod) >= claim.priority])
            for key, pods in members.items()
        ]
        return self._make_room(claim, wanted, unit.gangs)

    def _make_room(self, claim: Claim, wanted: Wanted, memo: object) -> Diagnosis | None:
        told = Preemption(self.placement).make_room(claim, wanted)
        if not _is_preempting(told):
            self._no_victims[memo] = None
        return told

    def _priority(self, pod: Pod) -> int:
        return self.state.class_of(pod).priority

    def _room_for_single(self, unit: Unit, pod: Pod) -> bool:
        """Places the pod in room that less important gangs hold, or that is kept for less important units."""
        tried = bytes(pod.spec), unit.key.negative_priority, unit.key.negative_sub_priority
        if not (self.state.holding or self.state.nominated) or tried in self._in_vain:
            return False
        mark = self.placement.mark()
        for other in self.holds.behind(unit, equals=False):
            self.holds.give_way(other, f"{pod.namespace}/{pod.name}")
            if self.placement.place(pod):
                self._in_vain.clear()
                return True
        self.placement.back_to(mark)
        self._in_vain[tried] = None
        return False

    def _attempt_group(self, unit: Unit) -> None:
        placement = self.placement
        mark = placement.mark()
        keys = tuple(key for key in unit.gangs if not self.line.comes_alone(key))
        kept = self._renounce(keys)
        members = {key: self.line.ready(key) for key in keys}
        refusals = {
            key: reason for key in members if (reason := self.shortage(key, len(members[key])))
        }
        lent = any(self._own(self.state.pods[uid]) != unit.gangs for uid in kept)
        if refusals:
            self._give_up(mark if lent else None, kept)
            forbids = [key for key in members if not self.holds.may_hold(key)]
            self._let_go(members, forbids, refusals[min(refusals)])
            self._refuse(members, refusals)
            return
        attempt = self._place_as_planned(members, kept) or self._place_somehow(members)
        if attempt.short:
            needed = sum(self.line.needed(key, self.state.gangs[key]) for key in members)
            if len(kept) >= needed and any(map(self._is_coming, kept.values())):
                placement.back_to(mark)
                return
            self._give_up(mark if lent else None, kept)
            if lent:
                self._refuse(members, attempt.short)
                return
            attempt = self._room_for_group(unit, members, attempt)
        if attempt.short:
            told = self._victims_for_group(unit, members)
            if not _is_preempting(told):
                self._stay(members, attempt)
            self._refuse(members, dict.fromkeys(members, told) if told else attempt.short)
            return
        self._note_left(kept)
        for key in members:
            for pod in self.line.held(key):
                if not pod.command:
                    placement.send(pod)
        self._place_each(attempt.surplus)

    def _give_up(self, lent: Mark | None, kept: dict[str, str]) -> None:
        """What was kept for members of the group is free. Where they are `lent`, for a group of which some gang is only
        by the word of another one, it was kept for their own group, and is as it was.
        """
        if lent is not None:
            self.placement.back_to(lent)
        elif kept:
            self.placement.let_some_go = True

    def _place_each(self, pods: list[Pod]) -> None:
        """Members that wait for nobody."""
        waiting = [pod for pod in pods if pod.uid in self.state.waiting and not pod.nominated]
        for run in runs(waiting):
            for pod in run[self.placement.place_run(run) :]:
                self.placement.explain(pod, pod_misfit(self.placement.misfit(pod)))

    def _renounce(self, keys: Keys) -> dict[str, str]:
        """Gives up all that members of the group are nominated for: pod uid -> node."""
        pods = [pod for key in keys for pod in self.line.nominated(key)]
        for pod in pods:
            self.placement.renounce(pod)
        return {pod.uid: pod.nominated for pod in pods}

    def shortage(self, key: str, ready: int) -> Diagnosis | None:
        """Why the gang can't be tried at all, or None."""
        gang = self.state.gangs.get(key)
        if gang is None or not gang.source:
            return group_missing(key)
        needed = self.line.needed(key, gang)
        if ready < needed:
            return members_missing(key, needed, gang.min_member)
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

    def _place_as_planned(
        self, members: dict[str, list[Pod]], kept: dict[str, str]
    ) -> Attempt | None:
        """Places members on the nodes that others left for them; None: they aren't enough, or some doesn't fit."""
        if not kept:
            return None
        mark = self.placement.mark()
        for key, pods in members.items():
            needed = self.line.needed(key, self.state.gangs[key])
            planned = [pod for pod in pods if pod.uid in kept][:needed]
            for pod in planned:
                if not self.placement.fits_on(pod, kept[pod.uid]):
                    self.placement.back_to(mark)
                    return None
                self.placement.put_on(pod, self.state.nodes[kept[pod.uid]].ord)
            if len(planned) < needed:
                self.placement.back_to(mark)
                return None
        return Attempt(short={}, surplus=self._waiting(members), keepers=[])

    def _place_minimums(self, members: dict[str, list[Pod]]) -> Attempt:
        """Places as many members as each gang needs, in the order of the queue or else in one in which they fit; where
        some lack a node, nothing.
        """
        mark = self.placement.mark()
        wanted = self._wanted(members)
        attempt = self._place_in_order(members)
        if not attempt.short:
            return attempt
        self.placement.back_to(mark)
        for pods in other_orders(wanted, self.placement.roominess):
            fit = self.placement.fit(pods, len(pods))
            if fit.misfit is None:
                for pod, node_ord in fit.chosen:
                    self.placement.put_on(pod, node_ord)
                return Attempt(short={}, surplus=self._waiting(members), keepers=[])
            self.placement.back_to(mark)
        return attempt

    def _place_somehow(self, members: dict[str, list[Pod]]) -> Attempt:
        attempt = self._place_minimums(members)
        return (self._place_anew(members) if attempt.short else None) or attempt

    def _place_anew(self, members: dict[str, list[Pod]]) -> Attempt | None:
        """Places also those that hold room, as if they held none: one may stand where only another fits. None: in
        vain, or all are alike.
        """
        held = {key: self.line.held(key) for key in members}
        specs = dict.fromkeys(
            bytes(pod.spec) for of in (held, members) for pods in of.values() for pod in pods
        )
        if len(specs) < 2 or not any(held.values()):
            return None
        mark = self.placement.mark()
        for each in held.values():
            for pod in each:
                self.placement.renounce(pod)
        attempt = self._place_minimums({key: self.line.ready(key) for key in members})
        if attempt.short:
            self.placement.back_to(mark)
            return None
        self.placement.let_some_go = True
        return attempt

    def _wanted(self, members: dict[str, list[Pod]]) -> Wanted:
        return [
            (self.line.needed(key, self.state.gangs[key]), pods) for key, pods in members.items()
        ]

    def _waiting(self, members: dict[str, list[Pod]]) -> list[Pod]:
        return [pod for pods in members.values() for pod in pods if pod.uid in self.state.waiting]

    def _place_in_order(self, members: dict[str, list[Pod]]) -> Attempt:
        """Places them gang by gang; stops at one that would not hold what it gathered."""
        attempt = Attempt(short={}, surplus=[], keepers=[], forbids=[])
        for key, pods in members.items():
            gang = self.state.gangs[key]
            needed = self.line.needed(key, gang)
            fit = self.placement.fit(pods, needed)
            attempt.surplus += fit.rest
            done = len(fit.chosen)
            keeps = self.holds.keeps(key, done)
            if fit.misfit is None or keeps:
                for pod, node_ord in fit.chosen:
                    self.placement.put_on(pod, node_ord)
            if keeps:
                attempt.keepers.append(key)
            elif needed:  # what the others held could be what this one lacks the next time
                attempt.forbids.append(key)
            if fit.misfit is None and done < needed:
                attempt.short[key] = members_missing(key, needed, gang.min_member)
            elif fit.misfit is not None:
                odd = f"{fit.odd.namespace}/{fit.odd.name}" if fit.odd is not None else ""
                attempt.short[key] = gang_misfit(
                    fit.misfit, key, done, needed, gang.min_member, odd=odd
                )
                if not keeps:
                    break
        return attempt

    def _refuse(self, members: dict[str, list[Pod]], refusals: dict[str, Diagnosis]) -> None:
        """Tells every ready member of the group what its gang, or a partner that it waits for, lacks."""
        for key, pods in members.items():
            partner = min(
                (each for each in self.state.partners.of(key) if each in refusals), default=""
            )
            if not partner:
                continue  # it is only named by a gang that can't start
            reason = refusals.get(key) or partner_waits(key, partner, refusals[partner])
            for pod in pods:
                if pod.uid in self.state.waiting and pod.uid not in self.state.nominated:
                    self.placement.explain(pod, reason)

    # -- when it doesn't fit -----------------------------------------------------------------------------------

    def _stay(self, members: dict[str, list[Pod]], attempt: Attempt) -> None:
        """The group can't start now: what may hold gathers, all else holds nothing."""
        if not attempt.forbids:
            for key in attempt.keepers:
                self.holds.gather(key, members[key])
        else:
            self._let_go(members, attempt.forbids, attempt.short[next(reversed(attempt.short))])
            self._back_off(attempt)

    def _let_go(self, members: dict[str, list[Pod]], forbids: list[str], reason: Diagnosis) -> None:
        """Gangs that wait for one that forbids holding give up what they hold; others are only named by such a gang."""
        for key in members:
            together = self.state.partners.of(key)
            for pod in self.line.held(key) if any(each in together for each in forbids) else ():
                self.placement.let_go(pod, reason)

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

    def _room_for_group(
        self, unit: Unit, members: dict[str, list[Pod]], failed: Attempt
    ) -> Attempt:
        """Tries again with room that units behind hold: less important ones, and for a gang that would hold, too, the
        younger of its own rank, for the two could wait for each other.
        """
        mark = self.placement.mark()
        behind = self.holds.behind(unit, equals=not failed.forbids)
        if len(behind) > 1:  # where all of them would do nothing, they are not asked one by one
            for other in behind:
                self.holds.give_way(other, ", ".join(unit.gangs), spare=unit.gangs)
            for key in members:
                for pod in self.line.held(key):
                    self.placement.renounce(pod)
            ready = {key: self.line.ready(key) for key in members}
            could = may_fit(self._wanted(ready), self.placement.roominess)
            self.placement.back_to(mark)
            behind = behind if could else []
        for other in behind:
            self.holds.give_way(other, ", ".join(unit.gangs), spare=unit.gangs)
            attempt = self._place_somehow(members)
            if not attempt.short:
                self._in_vain.clear()
                return attempt
        self.placement.back_to(mark)
        return failed


def _is_preempting(told: Diagnosis | None) -> bool:
    """Whether victims were asked to leave; else it only says why not."""
    return told is not None and told.code == Code.PREEMPTING
