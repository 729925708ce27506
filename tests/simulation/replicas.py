"""At the end of a run: every way to State gives the same State, and every decision is derived again.

This is where the simulation compares the product with itself, so it may know `state`; the auditor
may not.
"""

from schemas.errors import InvalidMessage
from state.invariants import check
from state.machine import apply
from state.snapshot import decode, encode, state_hash
from streams.history import Bound, LogHistory, Start, accepted_decisions
from streams.log import open_reader
from streams.recovery import recover, start_state
from streams.translate import State, to_decision, to_state
from streams.verify import verify
from tests.simulation.violation import Violation


def check_replicas(url: str, states: list[State]) -> State:
    """State as a refold of the log from its beginning (what is left of it) has it.

    Raises `Violation` when a replica's State differs from it.
    """
    reader = open_reader(url)
    history = LogHistory(reader, reader)
    first = _beginning(history)
    found = verify(history, start=first)
    if found.difference is not None:
        raise Violation("refold-differs", found.difference.sequence, "", found.difference.detail)
    refolded = found.state
    assert refolded is not None
    check(refolded)
    wanted = state_hash(refolded)
    ways = {f"decider {number}": state for number, state in enumerate(states)}
    ways["recovery"] = recover(history).decider.state
    ways["changes applied"] = _applied(history, first)
    ways["snapshot"] = decode(encode(refolded))
    for name, state in ways.items():
        check(state)
        if state.sequence == refolded.sequence and state_hash(state) != wanted:
            detail = f"State of {name} is not that of a refold"
            raise Violation("refold-differs", state.sequence, "", detail)
    return refolded


def _beginning(history: LogHistory) -> Start:
    """The earliest place with a State that this build reads."""
    first = history.first()
    try:
        to_state(first.state_bytes)
    except InvalidMessage:
        first, _ = start_state(history, Bound())
    return first


def _applied(history: LogHistory, first: Start) -> State:
    """State by applying the published decisions alone."""
    state = to_state(first.state_bytes)
    for _, data in accepted_decisions(history, first):
        apply(state, to_decision(data))
    return state
