"""One scheduling cycle: evictions asked for, then order the units, try each whole, commit or drop it.

A unit is a single pod, or a gang with its group (`state.units`). Bounded by a count of placements from policy; what is
left over is asked for with `work_left`. Called by `state.machine` only.
"""

from msgspec.structs import replace

from state.candidates import pick_node
from state.evictions import send_evictions, send_preemptions
from state.futility import forget_old
from state.head import HeadOfQueue
from state.holds import Holds
from state.line import Line, Unit
from state.model.diagnoses import Code, Diagnosis
from state.model.partners import Keys
from state.model.state import State
from state.model.trial import Trial
from state.placement import Placement
from state.queue import Queue
from state.units import Units


class Cycle:
    """One cycle of a trial."""

    def __init__(self, trial: Trial) -> None:
        self.trial = trial
        self.state: State = trial.state
        self.placement = Placement(trial)
        self.line = Line(self.placement)
        self.holds = Holds(self.line, self.placement)
        self.head = HeadOfQueue(self.line, self.placement)
        self.units = Units(self.line, self.holds, self.placement)

    def run(self) -> None:
        """Sends evictions, then places what can be placed; before every list has been folded nothing is done."""
        trial, state = self.trial, self.state
        if not state.synced():
            for uid in sorted(uid for uid in state.active if state.pods[uid].diagnosis is None):
                self.placement.explain(state.pods[uid], _SYNCING, parked=False)
            self._keep_changed()
            return
        forget_old(trial)
        send_evictions(trial)
        self.holds.check()
        if 0 < trial.retry_us <= trial.now_us:
            trial.retry_us, trial.wake = 0, True
        trial.wake = trial.wake or self.placement.let_some_go
        self.placement.let_some_go = False
        self._try_units()
        if send_preemptions(trial):
            trial.wake = trial.work_left = True

    def _try_units(self) -> None:
        trial, state = self.trial, self.state
        assert state.policy is not None
        queue = Queue(self.line, self.line.units(self._candidates()))
        if trial.wake:
            queue.add(self.line.alike(queue.groups))
        while (unit := queue.next()) is not None:
            if self.placement.placed >= state.policy.cycle.placementsMax:
                trial.wake = trial.work_left = True
                self._keep_changed()
                return
            queue.tell(self._attempt(unit))
        self.head.check()
        # Who was tried before room was let go may fit now; who was not told is told in the next one.
        trial.wake = trial.work_left = self.placement.let_some_go or self.placement.untold

    def _attempt(self, unit: Unit) -> bool:
        if not self.state.kept:
            return self.units.attempt(unit)
        with self.head.opened(unit):
            return self.units.attempt(unit)

    def _keep_changed(self) -> None:
        """Members of gangs that change while nothing, or not all, is tried are tried in the next cycle that can."""
        state = self.state
        for key in state.partners.waiting_for(self.trial.gangs_changed):
            for uid in sorted(state.members.get(key, ())):
                pod = state.pods[uid]
                if uid in state.waiting and pod.parked and not pod.backoff_us:
                    self.trial.put("pods", uid, replace(pod, parked=False))

    def _candidates(self) -> list[str]:
        """The new ones, those due, members of changed gangs, and, if room came free, those that it may help."""
        state = self.state
        found = dict(state.active)
        found.update(
            (uid, None)
            for uid in state.backing_off
            if state.pods[uid].backoff_us <= self.trial.now_us
        )
        for key in state.partners.waiting_for(self.trial.gangs_changed):
            members = state.members.get(key, ())
            found.update(
                (uid, None) for uid in members if uid in state.waiting or uid in state.holding
            )
        if self.trial.wake:
            found.update(state.nominated)
            found.update(dict.fromkeys(self.head.waiting()))
            for parked in sorted(state.parked.alone):
                uids = state.parked.alone[parked]
                if self._helps(*parked, uids):
                    found.update(uids)
                elif self.units.could_take_room(state.pods[next(iter(uids))]):
                    found.update(self._first(uids))
        return sorted(found)

    def _first(self, uids: dict[str, None]) -> dict[str, None]:
        """If the first of a class takes nobody's room, no other does that spares the same gangs as its own."""
        pods = self.state.pods
        alike: dict[Keys, list[str]] = {}
        for uid in uids:
            alike.setdefault(self.units.never_evicts(pods[uid]), []).append(uid)
        firsts = (min(of, key=lambda uid: self.state.order_of(pods[uid])) for of in alike.values())
        return dict.fromkeys(firsts)

    def _helps(self, spec: bytes, told: tuple[tuple[str, int], ...], uids: dict[str, None]) -> bool:
        """Whether parked pods of one class should be tried: a node is feasible now, or other nodes speak against it.

        The latter only to say so; amounts are as of the last try.
        """
        if self.state.holding:  # what is free and what is held may do together
            return True
        first = self.state.pods[next(iter(uids))]
        if (
            not self.placement.is_misfit(spec)
            and pick_node(self.state, self.state.scores_of(first)) >= 0
        ):
            return True
        return dict(told) != self.placement.misfit(first).nodes


_SYNCING = Diagnosis(
    code=Code.SYNCING, message="waiting until every kind of object has been listed"
)
