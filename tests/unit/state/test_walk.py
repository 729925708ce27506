"""Random walks: whatever is said in whatever order, what must always hold holds after every record."""

import copy

import pytest
from msgspec.structs import replace

from state import invariants, snapshot
from state.machine import apply, decide
from state.model.decision import Decision
from state.model.diagnoses import Code
from state.model.rows import Pod
from state.model.scores import MAY
from state.model.state import State, place_of
from state.model.trial import Trial
from state.room import comes_free
from state.rules.filters import node_reason
from streams.translate import to_decision
from tests.builders import Json
from tests.walk import Walk

STEPS = 100


class AuditedWalk(Walk):
    """A walk with a second State that only applies published bytes, and an auditor after every record."""

    def __init__(self, seed: int, *, native: bool = False) -> None:
        super().__init__(seed, native=native)
        self.follower = State()
        for decision in self.core.decisions:
            apply(self.follower, to_decision(decision.data))
        self.waited: dict[str, int] = {}

    def take(self, observations: list[Json], topic: str) -> Decision:
        self.waited = self._gangs_that_wait()
        decision = super().take(observations, topic)
        apply(self.follower, to_decision(decision.data))
        self._check(decision)
        return decision

    def _gangs_that_wait(self) -> dict[str, int]:
        """Gang -> members that hold a node, of gangs that have not been placed yet."""
        state = self.core.state
        return {
            key: sum(1 for uid in state.members.get(key, ()) if self._holds(uid))
            for key, gang in state.gangs.items()
            if not gang.satisfied
        }

    def _holds(self, uid: str) -> bool:
        pod = self.core.state.pods[uid]
        return bool(pod.node or pod.assumed)

    def _check_that_nobody_is_forgotten(self) -> None:
        """A cycle that looked at every waiting pod anew would place none: every refusal is still true."""
        state = self.core.state
        for pod in [state.pods[uid] for uid in sorted(state.waiting)]:
            gang = state.gangs.get(state.gang_key(pod))
            partners = [state.gangs.get(key) for key in gang.groups] if gang is not None else []
            alone = gang is None or (
                gang.satisfied
                and gang.source
                and not any(each is not None and each.match for each in (gang, *partners))
                and (pod.diagnosis is None or pod.diagnosis.code != Code.UNSUPPORTED)
            )
            if alone and not pod.gates and pod.backoff_us <= state.timestamp_us:
                assert not self._nodes_for(pod), f"pod {pod.name} waits though there is room"
        fork = snapshot.decode(snapshot.encode(state))
        trial = Trial(fork, fork.sequence + 1, fork.timestamp_us)
        for uid in sorted(fork.waiting):
            kept = fork.pods_on.get(fork.pods[uid].nominated, ())
            if kept and not any(comes_free(trial, fork.pods[other]) for other in kept):
                continue  # the time in which they should have left is over: its room is kept to the end of its own
            fork.put("pods", uid, replace(fork.pods[uid], parked=False))
        tick = copy.copy(self.core.journal).record(advance_us=0)
        missed = [item for item in decide(fork, tick).commands if item.kind == "BindPod"]
        for bind in missed:
            gang = fork.gangs.get(fork.gang_key(fork.pods[bind.uid]))
            # A partner placed later in the same cycle counts only once it is bound.
            assert gang is not None, f"pod {bind.name} was forgotten"
            assert gang.groups, f"gang {gang.name} was forgotten"

    def _nodes_for(self, pod: Pod) -> list[str]:
        """Nodes on which the pod could go, by rows alone."""
        state = self.core.state
        podclass = state.class_of(pod)
        return [
            name
            for name, row in sorted(state.nodes.items())
            if MAY == node_reason(podclass, row)
            and (not podclass.cards or state.columns.cards_free[row.ord] >= podclass.cards)
            and all(
                self._used(name, resource) + amount <= row.allocatable.get(resource, 0)
                for resource, amount in podclass.requests
            )
        ]

    def _used(self, name: str, resource: str) -> int:
        """What bound and assumed pods that have not finished ask for on the node."""
        state = self.core.state
        there = [pod for pod in state.pods.values() if name == place_of(pod)]
        return sum(dict(state.class_of(pod).requests).get(resource, 0) for pod in there)

    def _check(self, decision: Decision) -> None:
        state = self.core.state
        invariants.check(state)
        invariants.check(self.follower)
        data = snapshot.encode(state)
        assert data == snapshot.encode(self.follower)
        binds = [command for command in decision.commands if command.kind == "BindPod"]
        assert len({command.uid for command in binds}) == len(binds)
        for command in binds:
            gang = state.gangs.get(state.gang_key(state.pods[command.uid]))
            if gang is not None and not gang.satisfied:
                members = state.members[f"{gang.namespace}/{gang.name}"]
                assert sum(map(self._holds, members)) >= gang.min_member, (
                    f"gang {gang.name} is placed in part"
                )
        for key, note in state.tables["preempted"].items():
            if note.gang and key.startswith(f"preempt-{decision.sequence:020d}-"):
                there = [state.pods[uid] for uid in state.members.get(note.gang, ())]
                placed = [pod for pod in there if place_of(pod) and not pod.nominated]
                stays = [pod.name for pod in placed if not state.is_leaving(pod)]
                assert not stays, f"gang {note.gang} is disrupted in part: {stays} stay"
        if decision.sequence % 3 == 0 and state.synced() and not decision.work_left:
            self._check_that_nobody_is_forgotten()
        columns = state.columns
        for name in sorted(state.nodes):
            node_ord = state.nodes[name].ord
            used = columns.used[:, node_ord].copy()
            for uid in state.nominated:  # their room is kept while others still use it
                if state.pods[uid].nominated == name:
                    for resource, amount in state.class_of(state.pods[uid]).requests:
                        used[columns.axes[resource]] -= amount
            over = bool((used > columns.total[:, node_ord]).any())
            assert not over or name in self.excused, f"node {name} is over capacity"
            if not over:
                self.excused.pop(name, None)


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("seed", range(24))
def test_what_must_always_hold_holds_on_a_random_walk(seed: int, native: bool) -> None:
    """State by apply equals State by step, invariants hold, no gang is placed in part, no node beyond its room."""
    walk = AuditedWalk(seed, native=native)
    for _ in range(STEPS):
        walk.step()
    reloaded = snapshot.decode(snapshot.encode(walk.core.state))
    invariants.check(reloaded)
    assert snapshot.encode(walk.core.state) == snapshot.encode(reloaded)
    record = walk.core.journal.record()
    assert decide(walk.core.state, record).data == decide(reloaded, record).data
    bound = [c.name for d in walk.core.decisions for c in d.commands if c.kind == "BindPod"]
    assert bound or native  # a walk whose nodes come late may bind nobody
