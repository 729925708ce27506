"""Why a pod or a gang waits, or where it went: asked of State at a sequence, answered as plain JSON objects.

Tries the unit as the next cycle would, on a trial that is dropped: State is afterwards as it was. So the answer is
that of the rules themselves. `docs/explain.md` describes every field. Must not decide: nothing here is written to a
log. Called by `lockstep explain`.
"""

from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from typing import Any, Final

import msgspec

from state.head import HeadOfQueue, place_of_head
from state.holds import Holds
from state.line import Line, Unit
from state.model.diagnoses import Code, Diagnosis
from state.model.partners import Keys
from state.model.policy import needed_resources
from state.model.rows import Pod
from state.model.state import FINISHED, State
from state.model.trial import Trial
from state.placement import Placement
from state.remedies import Failed, Remedies, name_of
from state.report import gang_conflicts, gang_phase
from state.rules.explain import pod_misfit
from state.shortfall import Shortfall
from state.units import Units

Json = dict[str, Any]
#: Nodes named for pods that fit nowhere, and units named of those that are ahead.
CLOSEST: Final = 2
AHEAD_MAX: Final = 10


class Verdict(StrEnum):
    """The answer in a word. FITS: it waits, and the next cycle that tries it places it."""

    PLACED = "Placed"
    FITS = "Fits"
    WAITS = "Waits"
    FINISHED = "Finished"
    LEAVING = "Leaving"
    NOT_OURS = "NotOurs"


def explain_gang(state: State, key: str) -> Json:
    """The answer about the gang `ns/name`, which State must know."""
    inquiry = Inquiry(state)
    try:
        return inquiry.of_gang(key)
    finally:
        inquiry.trial.drop()


def explain_pod(state: State, uid: str) -> Json:
    """The answer about a pod, with its gang's if it starts only with that."""
    inquiry = Inquiry(state)
    try:
        return inquiry.of_pod(state.pods[uid])
    finally:
        inquiry.trial.drop()


def newest_named(state: State, namespace: str, name: str) -> str | None:
    """The uid of the pod of that name: of several the one that isn't being deleted, then the youngest."""
    uids = state.pods_named.get(f"{namespace}/{name}", {})
    pods = [state.pods[uid] for uid in uids]
    newest = max(pods, key=lambda pod: (not pod.deleted_us, pod.created_us, pod.uid), default=None)
    return None if newest is None else newest.uid


class Asked(msgspec.Struct, frozen=True):
    """What an answer is about. `unit`: as what it stands in the queue; None: nothing of it waits there.

    `keys`: gangs that start together; `members`: by gang (empty for a single pod) those that may be tried, and how
    many of them must get a node.
    """

    unit: Unit | None
    keys: Keys
    members: dict[str, tuple[list[Pod], int]]


class Inquiry:
    """One question, with its own trial."""

    def __init__(self, state: State) -> None:
        assert state.policy is not None, "before the first record there is nothing to explain"
        self.state = state
        self.trial = Trial(state, state.sequence + 1, state.timestamp_us)
        self.placement = Placement(self.trial)
        self.line = Line(self.placement)
        holds = Holds(self.line, self.placement)
        self.units = Units(self.line, holds, self.placement)
        self.remedies = Remedies(self.units, self.placement)

    def of_gang(self, key: str) -> Json:
        """The answer about a gang."""
        state, gang = self.state, self.state.gangs[key]
        pods = [state.pods[uid] for uid in sorted(state.members.get(key, ()))]
        asked = self._ask_gang(key)
        with self._opened(asked):
            placed, about = self._attempt(asked), self._about(asked)
        if self._has_started(key, pods):
            verdict = Verdict.PLACED
        elif self._suffices(asked, placed):
            verdict = Verdict.FITS
        else:
            verdict = Verdict.WAITS
        told = next((pod.diagnosis for pod in pods if pod.diagnosis is not None), None)
        return {
            "kind": "gang",
            "namespace": gang.namespace,
            "name": gang.name,
            "verdict": verdict,
            "diagnosis": _diagnosis_row(told),
            **about,
            "head": self._head(asked),
        }

    def of_pod(self, pod: Pod) -> Json:
        """The answer about a pod."""
        state = self.state
        key = state.gang_key(pod)
        asked = Asked(unit=None, keys=(), members={})
        if pod.uid in state.waiting or pod.uid in state.holding:
            together = key in state.gangs and not self.line.comes_alone(key)
            asked = self._ask_gang(key) if together else self._ask_single(pod)
        with self._opened(asked):
            placed, facts, about = (
                self._attempt(asked),
                self._pod_facts(pod),
                self._about(asked),
            )
        return {
            "kind": "pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "verdict": self._verdict(pod, placed),
            "diagnosis": _diagnosis_row(pod.diagnosis),
            "pod": facts,
            **about,
            "head": self._head(asked),
        }

    # -- who -------------------------------------------------------------------------------------------------

    def _ask_gang(self, key: str) -> Asked:
        """A gang with its group; one that needs nothing more, by its first member that waits."""
        state, line = self.state, self.line
        keys = state.partners.of(key)
        if line.comes_alone(key):
            ready = line.ready(key)
            unit = line.single(ready[0]) if ready else None
            return Asked(unit=unit, keys=keys, members={key: (ready, len(ready))})
        members = {}
        for each in keys:
            gang = state.gangs.get(each)
            if gang is not None and not line.comes_alone(each):
                members[each] = (line.ready(each), line.needed(each, gang))
        waits = any(ready for ready, _ in members.values()) or any(map(line.held, keys))
        return Asked(unit=line.group(keys) if waits else None, keys=keys, members=members)

    def _ask_single(self, pod: Pod) -> Asked:
        ready = [pod] if self.placement.is_ready(pod) else []
        unit = self.line.single(pod) if ready else None
        return Asked(unit=unit, keys=(), members={"": (ready, len(ready))})

    # -- whether ---------------------------------------------------------------------------------------------

    def _opened(self, asked: Asked) -> AbstractContextManager[None]:
        """While nodes that are kept for the head of the queue are open to the unit, if it is that or comes before."""
        head = HeadOfQueue(self.line, self.placement)
        return nullcontext() if asked.unit is None else head.opened(asked.unit)

    def _attempt(self, asked: Asked) -> dict[str, None]:
        """Who of those that wait, or hold room, would be bound now."""
        if asked.unit is None or not self.state.synced():
            return {}
        waiting = [pod for ready, _ in asked.members.values() for pod in ready]
        waiting += [pod for key in asked.keys for pod in self.line.held(key)]
        mark = self.placement.mark()
        self.units.attempt(asked.unit)
        placed: dict[str, None] = {}
        for pod in waiting:
            now = self.state.pods[pod.uid]
            if now.assumed and not now.held_until_us:
                placed[pod.uid] = None
        self.placement.back_to(mark)
        return placed

    def _suffices(self, asked: Asked, placed: dict[str, None]) -> bool:
        """Whether so many would get a node that every gang of the group has what it needs."""
        return bool(placed) and all(
            sum(1 for pod in ready if pod.uid in placed) >= count
            for ready, count in asked.members.values()
        )

    def _has_started(self, key: str, pods: list[Pod]) -> bool:
        """Whether the gang has what it needs, or, where a policy counts only those that wait, nobody waits."""
        if self.line.comes_alone(key):
            return True
        idle = not any(pod.uid in self.state.waiting or pod.held_until_us for pod in pods)
        placed = sum(1 for pod in pods if pod.node or pod.assumed)
        return idle and placed > 0 and placed >= self.state.gangs[key].min_member

    def _verdict(self, pod: Pod, placed: dict[str, None]) -> Verdict:
        if pod.phase in FINISHED:
            return Verdict.FINISHED
        if pod.node or (pod.assumed and not pod.held_until_us):
            return Verdict.PLACED
        if pod.deleted_us:
            return Verdict.LEAVING
        if not self.state.is_ours(pod):
            return Verdict.NOT_OURS
        return Verdict.FITS if pod.uid in placed else Verdict.WAITS

    # -- what ------------------------------------------------------------------------------------------------

    def _about(self, asked: Asked) -> Json:
        """All that is said of pods and gangs alike."""
        ahead = self._ahead(asked)
        nominated = self._nominations(asked)
        held = [pod for key in asked.keys for pod in self.line.held(key)]
        mark = self.placement.mark()
        for ready, _ in asked.members.values():
            for pod in ready:
                self.placement.renounce(pod)
        inner = self.placement.mark()
        gangs, failed = self._place_all(asked)
        lacking, to_free = self._lacking(failed), self.remedies.to_free(failed)
        self.placement.back_to(inner)
        may_preempt = failed and not nominated and not any(gang["refused"] for gang in gangs)
        preemption = self._evictions(asked, failed) if may_preempt else None
        self.placement.back_to(mark)
        return {
            "unsynced": self._unsynced(),
            "gangs": gangs,
            "lacking": lacking,
            "to_free": to_free,
            "preemption": preemption,
            "queue": ahead,
            "holds": [
                {"pod": name_of(pod), "node": pod.assumed, "until_us": pod.held_until_us}
                for pod in held
            ],
            "nominations": nominated,
        }

    def _unsynced(self) -> list[str]:
        """Kinds that must be listed before anything is placed."""
        state = self.state
        if state.synced():
            return []
        opened = {row.resource: None for row in state.lists.values() if row.cold or row.reset}
        found = []
        for name in needed_resources(state.policy):
            sync = state.syncs.get(name)
            if sync is None or not sync.synced or sync.doubted or name in opened:
                found.append(name)
        return found

    def _pod_facts(self, pod: Pod) -> Json:
        """Where the pod is, and whether it would fit by itself."""
        state = self.state
        alone: Json | None = None
        if state.gang_key(pod) and pod.uid in state.waiting and self.placement.is_ready(pod):
            mark = self.placement.mark()
            mine = self.placement.renounce(pod)
            if self.placement.place(mine):
                alone = {"node": state.pods[pod.uid].assumed, "nodes": {}, "closest": []}
            else:
                alone = {"node": None, **self._why_not(mine)}
            self.placement.back_to(mark)
        return {
            "uid": pod.uid,
            "phase": pod.phase,
            "gang": state.gang_key(pod) or None,
            "priority": state.class_of(pod).priority,
            "node": pod.node or None,
            "assumed_node": pod.assumed or None,
            "nominated_node": pod.nominated or None,
            "backoff_until_us": pod.backoff_us or None,
            "alone": alone,
        }

    def _gang_facts(self, key: str, placeable: int) -> Json:
        """Counts of a gang's members. `missing`: so many more must come, or become ready, before it can start."""
        state = self.state
        gang = state.gangs.get(key)
        pods = [state.pods[uid] for uid in sorted(state.members.get(key, ()))]
        ready = self.line.ready(key)
        needed = self.line.needed(key, gang) if gang is not None else 0
        not_ready: dict[str, list[str]] = {}
        known = {pod.uid: None for pod in ready}
        for pod in pods:
            if pod.uid in state.waiting and pod.uid not in known:
                why = self.placement.unready(pod)
                code = Code.BACKING_OFF if why is None else why.code
                not_ready.setdefault(code, []).append(name_of(pod))
        return {
            "gang": key,
            "declared": gang is not None and bool(gang.source),
            "phase": gang_phase(state, key) if gang is not None else None,
            "mode": gang.mode if gang is not None else None,
            "match": self.line.match(gang) if gang is not None else None,
            "min_member": gang.min_member if gang is not None else None,
            "partners": [each for each in state.partners.of(key) if each != key],
            "conflicts": gang_conflicts(state, key) if gang is not None else [],
            "seen": len(pods),
            "bound": sum(1 for pod in pods if pod.node),
            "assumed": sum(1 for pod in pods if pod.assumed and not pod.held_until_us),
            "held": sum(1 for pod in pods if pod.held_until_us),
            "ready": len(ready),
            "not_ready": {code: not_ready[code] for code in sorted(not_ready)},
            "needed": needed,
            "placeable": placeable,
            "missing": max(needed - len(ready), 0),
            "refused": _diagnosis_row(self.units.shortage(key, len(ready))),
            "rests_until_us": (gang.rest_until_us if gang is not None else 0) or None,
        }

    def _place_all(self, asked: Asked) -> tuple[list[Json], Failed]:
        """Facts of the gangs, and by gang those that fit nowhere beside the others, and how many of them must."""
        placeable: dict[str, int] = {}
        failed: Failed = {}
        facts: dict[str, Json] = {}
        for key in asked.keys:  # before anything is placed on paper
            facts[key] = self._gang_facts(key, 0)
        for key, (ready, count) in asked.members.items():
            left, misfits = count, []
            for pod in ready:
                if left and self.placement.place(self.state.pods[pod.uid]):
                    left -= 1
                elif left:
                    misfits.append(pod)
            placeable[key] = count - left
            if left and misfits:
                failed[key] = misfits, min(left, len(misfits))
        for key in asked.keys:
            facts[key]["placeable"] = placeable.get(key, 0)
        return list(facts.values()), failed

    # -- what is lacking -------------------------------------------------------------------------------------

    def _lacking(self, failed: Failed) -> list[Json]:
        """Those that fit nowhere, alike ones of a gang together, and why."""
        found = []
        for key, (pods, _) in failed.items():
            alike: dict[bytes, list[Pod]] = {}
            for pod in pods:
                alike.setdefault(bytes(pod.spec), []).append(pod)
            for each in alike.values():
                why = self._why_not(each[0])
                found.append({"gang": key or None, "pods": [name_of(pod) for pod in each], **why})
        return found

    def _why_not(self, pod: Pod) -> Json:
        misfit = self.placement.misfit(pod)
        diagnosis = pod_misfit(misfit)
        nearest = Shortfall(self.state).nearest(self.state.scores_of(pod), CLOSEST)
        return {
            "code": diagnosis.code,
            "message": diagnosis.message,
            "nodes": misfit.nodes,
            "closest": [msgspec.to_builtins(each) for each in nearest],
        }

    def _evictions(self, asked: Asked, failed: Failed) -> Json:
        """Whom room for the whole group would take, or room for the first of members that come alone."""
        assert asked.unit is not None
        if asked.unit.gangs:
            needed = [pod for ready, count in asked.members.values() for pod in ready[:count]]
        else:
            needed = next(iter(failed.values()))[0][:1]
        return self.remedies.evictions(asked.unit, [self.state.pods[pod.uid] for pod in needed])

    # -- in the queue ----------------------------------------------------------------------------------------

    def _ahead(self, asked: Asked) -> Json | None:
        """The unit's own place, and who is tried before it."""
        mine = asked.unit
        if mine is None:
            return None
        waiting = self.line.units(sorted({**self.state.waiting, **self.state.holding}))
        ahead = [unit for unit in waiting if unit.key < mine.key]
        ahead = [unit for unit in ahead if not unit.gangs or unit.gangs != asked.keys]
        return {
            **self._place_in_line(mine),
            "ahead": len(ahead),
            "first": [self._place_in_line(unit) for unit in ahead[:AHEAD_MAX]],
        }

    def _place_in_line(self, unit: Unit) -> Json:
        pod = self.state.pods[unit.uid] if unit.uid else None
        pods = [pod] if pod is not None else []
        for key in unit.gangs:
            pods += [self.state.pods[uid] for uid in sorted(self.state.members.get(key, ()))]
        told = next((each.diagnosis for each in pods if each.diagnosis is not None), None)
        return {
            "kind": "gang" if unit.gangs else "pod",
            "names": list(unit.gangs) or [name_of(each) for each in pods],
            "priority": -unit.key.negative_priority,
            "sub_priority": -unit.key.negative_sub_priority,
            "created_us": unit.key.created_us,
            "code": told.code if told is not None else None,
        }

    def _head(self, asked: Asked) -> Json | None:
        """Who waits for room at the head of the queue, and the nodes that are kept for it."""
        row = self.state.head()
        if row is None:
            return None
        return {
            "names": row.name.split(","),
            "is_it": asked.unit is not None and asked.unit.key == place_of_head(row),
            "since_us": row.since_us,
            "until_us": row.next_us if row.nodes else None,
            "nodes": list(row.nodes),
        }

    def _nominations(self, asked: Asked) -> list[Json]:
        """Room that is kept for members, and who must leave there."""
        state = self.state
        found = []
        for ready, _ in asked.members.values():
            for pod in ready:
                if pod.nominated:
                    there = sorted(state.pods_on.get(pod.nominated, ()))
                    leaving = [state.pods[uid] for uid in there]
                    found.append(
                        {
                            "pod": name_of(pod),
                            "node": pod.nominated,
                            "until_us": pod.nominated_until_us,
                            "leaving": [
                                name_of(each)
                                for each in leaving
                                if not each.nominated and state.is_leaving(each)
                            ],
                        }
                    )
        return found


def _diagnosis_row(diagnosis: Diagnosis | None) -> Json | None:
    if diagnosis is None:
        return None
    return {"code": diagnosis.code, "message": diagnosis.message, "details": diagnosis.details}
