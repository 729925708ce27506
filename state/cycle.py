"""One scheduling cycle: evictions asked for, then order the units, try each whole, commit or drop it.

A unit is a single pod, or a gang with its group. Nothing is held for a unit that does not fit whole. Bounded by a
count of placements from policy; what is left over is asked for with `work_left`. Called by `state.machine` only.
"""

from msgspec import Struct
from msgspec.structs import replace

from state.candidates import count_reasons, most_free, pick_node
from state.model.diagnoses import Code, Diagnosis
from state.model.rows import Eviction, Gang, OpenCommand, Pod
from state.model.scores import ClassScores
from state.model.seen import DeviceHeld
from state.model.state import TOLD_WITH_GANG, State
from state.model.trial import Trial
from state.rules.allocate import allocation_annotation, whole_cards
from state.rules.explain import (
    Misfit,
    gang_misfit,
    group_missing,
    members_missing,
    partner_waits,
    pod_misfit,
)
from state.rules.order import OrderKey, order_key


class Unit(Struct, frozen=True):
    """What is tried as a whole: `gangs` empty for the single pod `uid`."""

    key: OrderKey
    uid: str
    gangs: tuple[str, ...]


class Cycle:
    """The state of one cycle: the trial, how many pods were placed, and which classes are known not to fit."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.state: State = trial.state
        self.placed = 0
        self.misfits: dict[
            bytes, Misfit
        ] = {}  # room only shrinks within a cycle, so a misfit stays one

    def run(self) -> None:
        """Sends evictions, then places what can be placed; before every list has been folded nothing is done."""
        trial, state = self.trial, self.state
        if not state.synced():
            for uid in sorted(uid for uid in state.active if state.pods[uid].diagnosis is None):
                self._explain(state.pods[uid], _SYNCING, parked=False)
            return
        self._evict()
        assert state.policy is not None
        for unit in self._units():
            if self.placed >= state.policy.cycle.placementsMax:
                trial.wake = trial.work_left = True
                return
            if unit.gangs:
                self._try_gangs(unit.gangs)
            else:
                self._try_single(unit.uid)
        trial.wake = False

    # -- what to try -----------------------------------------------------------------------------------------

    def _units(self) -> list[Unit]:
        state = self.state
        singles: list[Unit] = []
        groups: dict[tuple[str, ...], None] = {}
        for uid in self._candidates():
            pod = state.pods[uid]
            if not self._is_ready(pod):
                continue
            gang_key = state.gang_key(pod)
            gang = state.gangs.get(gang_key) if gang_key else None
            if gang is None or _runs(gang):
                singles.append(Unit(key=self._pod_key(pod), uid=uid, gangs=()))
            else:
                groups[gang.groups or (gang_key,)] = None
        units = [Unit(key=self._gangs_key(keys), uid="", gangs=keys) for keys in groups]
        return sorted((*singles, *units), key=lambda unit: unit.key)

    def _candidates(self) -> list[str]:
        """The new ones, those due, members of changed gangs, and, if room came free, those that it may help."""
        state = self.state
        found = dict(state.active)
        found.update(
            (uid, None)
            for uid in state.backing_off
            if state.pods[uid].backoff_us <= self.trial.now_us
        )
        for changed in self.trial.gangs_changed:
            for key in (changed, *state.partners.get(changed, ())):
                members = state.members.get(key, ())
                found.update((uid, None) for uid in members if uid in state.waiting)
        if self.trial.wake:
            for parked in sorted(state.parked):
                if self._helps(*parked, state.parked[parked]):
                    found.update(state.parked[parked])
        return sorted(found)

    def _helps(self, spec: bytes, told: tuple[tuple[str, int], ...], uids: dict[str, None]) -> bool:
        """Whether parked pods of one class should be tried: a node is feasible now, or other nodes speak against it.

        The latter only to say so (amounts are as of the last try); members of a gang are told with their gang.
        """
        first = self.state.pods[next(iter(uids))]
        if spec not in self.misfits and pick_node(self.state, self.state.scores_of(first)) >= 0:
            return True
        return told != TOLD_WITH_GANG and dict(told) != self._misfit(first).nodes

    def _is_ready(self, pod: Pod) -> bool:
        """Whether the pod may be tried; says why not."""
        podclass = self.state.class_of(pod)
        if pod.gates:
            code, message = Code.GATED, f"scheduling gates: {', '.join(pod.gates)}"
        elif podclass.invalid:
            code, message = Code.INVALID_REQUEST, podclass.invalid
        elif podclass.unsupported:
            code, message = (
                Code.UNSUPPORTED,
                f"this version does not decide: {podclass.unsupported}",
            )
        else:
            return pod.backoff_us <= self.trial.now_us
        self._explain(pod, Diagnosis(code=code, message=message))
        return False

    def _pod_key(self, pod: Pod) -> OrderKey:
        name = f"{pod.namespace}/{pod.name}"
        return order_key(self.state.class_of(pod).priority, pod.created_us, name, pod.uid)

    def _gangs_key(self, keys: tuple[str, ...]) -> OrderKey:
        """A group goes by its most important ready member and its oldest gang."""
        ready = [pod for key in keys for pod in self._ready_members(key)]
        gangs = [self.state.gangs[key] for key in keys if key in self.state.gangs]
        priority = max((self.state.class_of(pod).priority for pod in ready), default=0)
        return order_key(priority, min(gang.created_us for gang in gangs), ",".join(keys), "")

    def _ready_members(self, key: str) -> list[Pod]:
        """The gang's members that wait and may be tried, in order."""
        state = self.state
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.waiting]
        ready = [pod for pod in pods if not pod.gates and self._is_ready(pod)]
        return sorted(ready, key=self._pod_key)

    # -- trying ----------------------------------------------------------------------------------------------

    def _try_single(self, uid: str) -> None:
        pod = self.state.pods[uid]
        if uid in self.state.waiting and not self._place(pod):
            self._explain(pod, pod_misfit(self._misfit(pod)))

    def _try_gangs(self, keys: tuple[str, ...]) -> None:
        """Places the minimum of every gang of the group, or nothing; then surplus members one by one.

        Gangs of the group that run already have nothing to wait for: their members come alone.
        """
        gangs = self.state.gangs
        members = {
            key: self._ready_members(key)
            for key in keys
            if key not in gangs or not _runs(gangs[key])
        }
        refusals = {
            key: reason for key in members if (reason := self._shortage(key, len(members[key])))
        }
        if refusals:
            self._refuse(members, refusals)
            return
        mark, placed_before, known = self.trial.mark(), self.placed, len(self.misfits)
        surplus: list[Pod] = []
        for key in members:
            missed = self._place_minimum(key, members[key], surplus)
            if missed is not None:
                self.trial.back_to(mark)
                self.placed = placed_before
                for spec in list(self.misfits)[known:]:  # what didn't fit beside it may fit now
                    del self.misfits[spec]
                self._refuse(members, {key: missed})
                return
        for pod in surplus:
            if not self._place(pod):
                self._explain(pod, pod_misfit(self._misfit(pod)))

    def _shortage(self, key: str, ready: int) -> Diagnosis | None:
        """Why the gang can't be tried at all, or None."""
        gang = self.state.gangs.get(key)
        if gang is None or not gang.source:
            return group_missing(key)
        needed = self._needed(key, gang)
        return members_missing(key, ready, needed, gang.min_member) if ready < needed else None

    def _needed(self, key: str, gang: Gang) -> int:
        """Members still to be placed before the gang runs."""
        pods = self.state.pods
        holding = sum(
            1 for uid in self.state.members.get(key, ()) if pods[uid].node or pods[uid].assumed
        )
        return max(gang.min_member - holding, 0)

    def _place_minimum(self, key: str, members: list[Pod], surplus: list[Pod]) -> Diagnosis | None:
        """Places as many members as the gang needs, passing over those that fit nowhere; None: done."""
        gang = self.state.gangs[key]
        needed = self._needed(key, gang)
        done, misfit = 0, None
        for pod in members:
            if done < needed and self._place(pod):
                done += 1
                continue
            surplus.append(pod)
            if done < needed:
                misfit = misfit or self._misfit(pod)
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
                self._explain(pod, reason)

    def _place(self, pod: Pod) -> bool:
        """Assumes the pod on its best node and commands the bind; False: no node is feasible."""
        state = self.state
        if bytes(pod.spec) in self.misfits:
            return False
        scores = state.scores_of(pod)
        node_ord = pick_node(state, scores)
        if node_ord < 0:
            return False
        node = state.columns.names[node_ord]
        allocations = self._cards(scores, node)
        opened = OpenCommand(
            kind="BindPod",
            name=pod.name,
            namespace=pod.namespace,
            uid=pod.uid,
            annotations=allocation_annotation(allocations),
            node=node,
        )
        command = self.trial.open(opened)
        placed = replace(
            pod,
            allocations=allocations,
            assumed=node,
            backoff_us=0,
            command=command,
            diagnosis=None,
            parked=False,
        )
        self.trial.put("pods", pod.uid, placed)
        self.placed += 1
        return True

    def _cards(self, scores: ClassScores, node: str) -> tuple[DeviceHeld, ...]:
        count = scores.podclass.cards
        if not count or self.state.devices_of(node) is None:
            return ()
        return whole_cards(self.state.free_cards(node), count)

    # -- explaining ------------------------------------------------------------------------------------------

    def _misfit(self, pod: Pod) -> Misfit:
        key = bytes(pod.spec)
        found = self.misfits.get(key)
        if found is None:
            scores = self.state.scores_of(pod)
            found = Misfit(
                nodes=count_reasons(self.state, scores), resources=most_free(self.state, scores)
            )
            self.misfits[key] = found
        return found

    def _explain(self, pod: Pod, diagnosis: Diagnosis, *, parked: bool = True) -> None:
        """Writes why the pod waits; a parked pod is tried again only when something came that may help."""
        pod = self.state.pods[pod.uid]
        backoff_us = pod.backoff_us if pod.backoff_us > self.trial.now_us else 0
        if (pod.diagnosis, pod.parked, pod.backoff_us) != (diagnosis, parked, backoff_us):
            told = replace(pod, backoff_us=backoff_us, diagnosis=diagnosis, parked=parked)
            self.trial.put("pods", pod.uid, told)

    # -- evictions asked for ---------------------------------------------------------------------------------

    def _evict(self) -> None:
        """Sends the eviction command of each pod that has no other command open."""
        trial, state = self.trial, self.state
        evictions: dict[str, Eviction] = state.tables["evictions"]
        for key in sorted(evictions):
            eviction = evictions[key]
            if eviction.command:
                continue
            pod = state.pods.get(eviction.uid)
            if pod is None or pod.deleted_us:  # nothing is left to ask for
                trial.put("evictions", key, None)
                continue
            if pod.command:
                continue
            assert state.policy is not None
            opened = OpenCommand(
                kind="EvictPod",
                name=pod.name,
                namespace=pod.namespace,
                uid=pod.uid,
                deadline_us=trial.now_us + state.policy.evictions.budgetDeadline,
                reason=eviction.reason,
            )
            command = trial.open(opened)
            trial.put("evictions", key, replace(eviction, command=command))
            trial.put("pods", pod.uid, replace(pod, command=command))


def _runs(gang: Gang) -> bool:
    """The gang has been placed once, and what declares it is there: members come alone."""
    return gang.satisfied and bool(gang.source)


_SYNCING = Diagnosis(
    code=Code.SYNCING, message="waiting until every kind of object has been listed"
)
