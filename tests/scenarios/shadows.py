"""What must hold after every settle of a scenario, whatever the scenario is about.

Two shadow states follow the engine through its log: one only applies the published decisions, the
other decides every record anew. Used by the scenario runner and by the runner of the acceptance
cases.
"""

from lockstep.simulate_engine import Engine
from schemas.topics import DECISIONS, JOURNAL
from state.invariants import check
from state.machine import apply, decide
from state.model.state import State
from state.snapshot import decode, encode, state_hash
from streams.translate import to_decision, to_record


class Shadows:
    """Call `compare` after each settle of one engine."""

    def __init__(self) -> None:
        self._applied = State()
        self._replayed = State()

    def compare(self, engine: Engine) -> None:
        """Asserts invariants, the snapshot's round trip, and that both shadows equal the state."""
        check(engine.state)
        wanted = state_hash(engine.state)
        snapshot = encode(engine.state)
        restored = decode(snapshot)
        check(restored)
        assert snapshot == encode(restored)
        assert wanted == state_hash(restored)
        first = self._applied.sequence
        for _, data in engine.entries(DECISIONS, first):
            apply(self._applied, to_decision(data))
        for _, data in engine.entries(JOURNAL, first):
            before = state_hash(self._replayed)
            decision = decide(self._replayed, to_record(data))
            assert before == state_hash(self._replayed), "decide must not change the state"
            apply(self._replayed, decision)
        assert wanted == state_hash(self._applied), "state by apply"
        assert wanted == state_hash(self._replayed), "state by replay"
        assert engine.digest == self._replayed.digest
