"""At the end of a run: every way to State gives the same State, and every decision is derived again.

This is where the simulation compares the product with itself, so it may know `state`; the auditor
may not.
"""

from state.invariants import check
from state.machine import apply
from state.snapshot import decode, encode, state_hash
from streams.history import LogHistory, Start, accepted_decisions
from streams.log import open_reader
from streams.recovery import recover
from streams.translate import State, to_decision, to_state
from streams.verify import verify
from tests.simulation.violation import Violation


def check_replicas(url: str, states: list[State]) -> None:
    """Raises `Violation` when a replica's State differs from a refold of the log from scratch."""
    reader = open_reader(url)
    history = LogHistory(reader, reader)
    found = verify(history, start=Start())
    if found.difference is not None:
        raise Violation("refold-differs", found.difference.sequence, "", found.difference.detail)
    refolded = found.state
    assert refolded is not None
    check(refolded)
    wanted = state_hash(refolded)
    ways = {f"decider {number}": state for number, state in enumerate(states)}
    ways["recovery"] = recover(history).decider.state
    ways["changes applied"] = _applied(history)
    ways["snapshot"] = decode(encode(refolded))
    for name, state in ways.items():
        check(state)
        if state.sequence == refolded.sequence and state_hash(state) != wanted:
            detail = f"State of {name} is not that of a refold"
            raise Violation("refold-differs", state.sequence, "", detail)


def _applied(history: LogHistory) -> State:
    """State by applying the published decisions alone."""
    state = to_state(None)
    for _, data in accepted_decisions(history, Start()):
        apply(state, to_decision(data))
    return state
