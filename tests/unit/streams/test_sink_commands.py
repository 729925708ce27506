"""The sink's reading of decisions: the same commands as the wire's own model finds."""

import pytest

from schemas.codec import encode
from schemas.envelope import BindPod, DecisionRecord, EvictPod, PatchStatus, Request
from streams.sink.commands import read_commands


def decision(**parts: object) -> DecisionRecord:
    return DecisionRecord(
        sequence=7,
        record_hash="a",
        previous_digest="b",
        digest="c",
        timestamp_us=1,
        **parts,
    )


def test_commands_equal_those_of_the_wire_model() -> None:
    """What is read from the bytes is what pydantic reads, for every kind of command."""
    place = {"namespace": "ns", "name": "p", "uid": "u"}
    given = decision(
        commands=(
            BindPod(id="7.0", node="n", annotations={"a": "b"}, **place),
            EvictPod(id="7.1", reason="asked", deadline_us=5, **place),
            PatchStatus(id="7.2", resource="pods", fields={"reason": "r"}, **place),
        ),
        ended=("6.0",),
        withdrawn=("5.0",),
        requests=(
            Request(kind="ResyncRequested", resource="pods"),
            Request(kind="ProbeFolded", id="7"),
        ),
    )
    found = read_commands(encode(given))
    assert (given.commands, given.ended, given.withdrawn, ("pods",)) == found


def test_unknown_command_is_an_error() -> None:
    """A command of a later build is not skipped in silence."""
    plain = decision().model_dump(mode="json")
    plain["commands"] = [{"kind": "PatchNode", "id": "7.0"}]
    with pytest.raises(KeyError, match="PatchNode"):
        read_commands(encode(plain))
