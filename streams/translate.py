"""Journal and decision bytes <-> the core's own types: the only module that knows both the wire and
`state.model`.

Decoding is strict enough to refuse damage, fast enough for replay; whether a message is *valid* was
settled by the sequencer with the models of `schemas`. Called by decider, recovery, verify,
projector.
"""

import hashlib

import msgspec

from schemas.errors import InvalidMessage
from state.model.decision import Decision, whole_decoder
from state.model.podclass import check_pod
from state.model.seen import PodSeen, Record, RecordBody
from state.model.state import State
from state.snapshot import decode

__all__ = ["Decision", "Record", "State", "to_decision", "to_record", "to_state"]

_record_decoder = msgspec.json.Decoder(RecordBody)


def to_record(data: bytes) -> Record:
    """A journal record from its bytes. Raises `InvalidMessage` if they are none."""
    try:
        body = _record_decoder.decode(data)
        for seen in body.observations:
            if type(seen) is PodSeen:
                check_pod(seen)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessage("NotARecord", str(error)) from error
    return Record(
        sequence=body.sequence,
        timestamp_us=body.timestamp_us,
        observations=body.observations,
        positions=body.positions,
        data=data,
        hash=hashlib.sha256(data).hexdigest(),
    )


def to_decision(data: bytes) -> Decision:
    """A decision from its published bytes. Raises `InvalidMessage` if they are none."""
    try:
        whole = whole_decoder.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidMessage("NotADecision", str(error)) from error
    return Decision(
        sequence=whole.sequence,
        record_hash=whole.record_hash,
        previous_digest=whole.previous_digest,
        timestamp_us=whole.timestamp_us,
        changes=whole.changes,
        commands=whole.commands,
        withdrawn=whole.withdrawn,
        ended=whole.ended,
        diagnoses=whole.diagnoses,
        requests=whole.requests,
        next_deadline_us=whole.next_deadline_us,
        work_left=whole.work_left,
        digest=whole.digest,
        data=data,
    )


def to_state(data: bytes | None) -> State:
    """State from a checkpoint's bytes; None: the empty State. Raises `InvalidMessage` if they are
    none.
    """
    if data is None:
        return State()
    try:
        return decode(data)
    except (ValueError, TypeError, ArithmeticError, LookupError, RecursionError) as error:
        # Rows that are well-formed may still not hold together; State says so in its own ways.
        raise InvalidMessage("NotAState", str(error)) from error
