"""Bytes of the log that are no record, no decision, no snapshot: one refusal each, whatever they are."""

from collections.abc import Callable
from typing import Any

import pytest

from schemas.errors import InvalidMessage
from state.snapshot import encode
from streams.translate import to_decision, to_record, to_state
from tests.builders import Core, node, pod


def nested(data: bytes, field: bytes) -> bytes:
    """The bytes with a value of `field` that is nested deeper than any reader follows."""
    head, found, tail = data.partition(field)
    assert found
    return head + field + b"[" * 100_000 + tail


def bytes_of(core: Core) -> dict[str, bytes]:
    """A record with a pod, and the decision on it."""
    return {"record": core.records[-1].data, "decision": core.decisions[-1].data}


@pytest.mark.parametrize(
    ("what", "field", "read"),
    [
        ("record", b'"requests":', to_record),
        ("record", b'"positions":', to_record),
        ("decision", b'"requests":', to_decision),
        ("decision", b'"commands":', to_decision),
    ],
)
def test_what_is_nested_too_deep_is_refused(
    what: str, field: bytes, read: Callable[[bytes], Any]
) -> None:
    """Not a failure of the reader: a refusal with a reason."""
    core = Core()
    core.see(node("n1"), topic="nodes")
    core.see(pod("p1"))
    data = bytes_of(core)[what]
    assert read(data).data == data
    with pytest.raises(InvalidMessage, match=r"recursion|Expected"):
        read(nested(data, field))


@pytest.mark.parametrize("data", [b"", b"[", b"{}", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("read", [to_record, to_decision, to_state])
def test_bytes_that_are_none_are_refused(read: Callable[[bytes], Any], data: bytes) -> None:
    """Empty, cut, foreign, deep."""
    with pytest.raises(InvalidMessage):
        read(data)


@pytest.mark.parametrize("ordinal", [b"-1", b"262144", b"9223372036854775807"])
def test_a_node_beyond_the_columns_is_damage(ordinal: bytes) -> None:
    """A snapshot with such a number would ask for all memory there is."""
    core = Core()
    core.see(node("n1"), topic="nodes")
    data = encode(core.state)
    assert b'"ord":0' in data
    to_state(data)
    with pytest.raises(InvalidMessage, match="NotAState"):
        to_state(data.replace(b'"ord":0', b'"ord":' + ordinal))


def test_a_snapshot_whose_rows_do_not_hold_together_is_damage() -> None:
    """Well-formed, and yet more than a column can hold."""
    core = Core()
    core.see(node("n1"), topic="nodes")
    data = encode(core.state)
    assert b'"cpu":' in data
    with pytest.raises(InvalidMessage, match="NotAState"):
        to_state(data.replace(b'"cpu":', b'"cpu":9' + b"0" * 30))
