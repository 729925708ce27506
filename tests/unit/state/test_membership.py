"""What labels and annotations of a pod say of its gang: numbers and times, read with bounds."""

import json
import time

import pytest

from state.model.limits import ANNOTATED_MAX
from state.model.podclass import gang_wait_us, parse_membership

GANG = "gang.scheduling.koordinator.sh/"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("1500ms", 1_500_000),
        ("10", 0),
        ("-1s", 0),
        ("1.5s", 0),
        ("5 s", 0),
        ("9" * 19 + "h", ANNOTATED_MAX),
        ("9" * 20 + "h", 0),
    ],
)
def test_a_wait_time_is_microseconds_within_bounds(text: str, expected: int) -> None:
    """Whole Go units; what is none counts as not given, what is too long as the longest."""
    assert expected == gang_wait_us({f"{GANG}waiting-time": text})


@pytest.mark.parametrize("text", ["1h" * 100_000, "1" * 200_000, "h" * 200_000])
def test_a_long_wait_time_is_read_in_time(text: str) -> None:
    """Whoever may make a pod may not hold up the decider: the time grows with the length, not with its square."""
    began = time.process_time()
    gang_wait_us({f"{GANG}waiting-time": text})
    assert time.process_time() - began < 2.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [("2", 2), ("0", 0), ("", 0), ("-2", 0), ("two", 0), ("9" * 19, ANNOTATED_MAX), ("9" * 20, 0)],
)
def test_a_count_of_members_is_a_natural_number_within_bounds(text: str, expected: int) -> None:
    """An annotation that is no number leaves the gang without one; a huge one is cut."""
    said = {f"{GANG}name": "g", f"{GANG}min-available": text}
    found = parse_membership(b"{}", json.dumps(said).encode())
    assert ("g", expected) == (found.gang, found.min_member)
