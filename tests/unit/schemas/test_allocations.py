"""The device annotation of a pod: anybody may write it, so whatever stands there fits a message, or is none."""

import json

import pytest

from producers.publisher import pack
from schemas.allocations import CHARS_MAX, DEVICES_MAX, read_allocations, read_command_id
from schemas.observations import Allocation, CommandEnded, FoundPod
from streams.intake import IntakeTaken, admit_message

CORE = "koordinator.sh/gpu-core"


def test_devices_are_sorted_and_amounts_have_one_name_and_bounds() -> None:
    """By type and minor; aliases add up; what is negative is 0, what is too much is cut."""
    entries = [
        {"minor": 1, "resources": {CORE: "9E", "kubernetes.io/gpu-core": 1, "a": -1}},
        {"minor": 0},
    ]
    expected = (
        Allocation(type="gpu", minor=0, resources={}),
        Allocation(type="gpu", minor=1, resources={CORE: 2**53, "a": 0}),
    )
    assert expected == read_allocations(json.dumps({"gpu": entries}))


@pytest.mark.parametrize(
    "annotation",
    [
        '{"gpu": [{"minor": 9223372036854775808}]}',
        '{"gpu": [{"minor": true}]}',
        '{"gpu": [{"minor": 1.0}]}',
        '{"": [{"minor": 0}]}',
        json.dumps({"t" * 64: [{"minor": 0}]}),
        json.dumps({"gpu": [{"minor": minor} for minor in range(DEVICES_MAX + 1)]}),
        '{"gpu": [{"minor": 0}]}' + " " * CHARS_MAX,
    ],
)
def test_what_is_out_of_bounds_is_none(annotation: str) -> None:
    """Beyond 64 bits, of the wrong type, too long, too many."""
    assert () == read_allocations(annotation)


def test_the_most_there_may_be_fits_a_result() -> None:
    """A result that the door refused would leave its command open for ever."""
    kind = "t" * 63
    resources = {f"r{number}": "9P" for number in range(850)}
    entries = [{"minor": minor} for minor in range(DEVICES_MAX - 1)]
    annotation = json.dumps({kind: [*entries, {"minor": 999, "resources": resources}]})
    assert CHARS_MAX - 2_000 < len(annotation) <= CHARS_MAX
    found = FoundPod(uid="u", rv=1, allocations=read_allocations(annotation))
    assert DEVICES_MAX == len(found.allocations)
    ended = CommandEnded(command_id="1.0", outcome="Refused", status=409, found=found)
    (message,) = pack("test", [ended])
    assert isinstance(admit_message("results", 0, message), IntakeTaken)


@pytest.mark.parametrize(
    ("text", "expected"), [("12.3", "12.3"), ("", None), (None, None), ("1" * 42, None)]
)
def test_a_command_id_of_ours_is_short(text: str | None, expected: str | None) -> None:
    """What cannot be ours is not carried along."""
    assert expected == read_command_id(text)
