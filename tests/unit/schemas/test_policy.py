"""Durations of a policy, and the bounds of what may enter the journal."""

import pytest

from schemas.errors import InvalidMessage
from schemas.policy import (
    DURATION_US_MAX,
    PLACEMENTS_MAX,
    duration_us,
    full_policy,
    policy_change,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("2.5s", 2_500_000),
        ("1.000001s", 1_000_001),
        ("300ms", 300_000),
        ("1500ns", 2),
        ("0s", 0),
        ("2562047h47m16.854775s", DURATION_US_MAX),
    ],
)
def test_durations_are_exact(text: str, expected: int) -> None:
    """Go's units, to the nearest microsecond."""
    assert expected == duration_us(text)


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-1s", "1d", "1s ", "1s2", "2562047h47m16.854776s", "9" * 400 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Other units, signs, rests, and what is longer than Go's longest."""
    with pytest.raises(ValueError, match="is not a duration"):
        duration_us(text)


@pytest.mark.parametrize(
    ("group", "field", "most"),
    [
        ("gangs", "defaultTimeout", DURATION_US_MAX),
        ("quota", "delayEvictTime", DURATION_US_MAX),
        ("evictions", "budgetDeadline", DURATION_US_MAX),
        ("backoff", "initial", DURATION_US_MAX),
        ("backoff", "max", DURATION_US_MAX),
        ("cycle", "placementsMax", PLACEMENTS_MAX),
    ],
)
def test_every_number_has_a_bound(group: str, field: str, most: int) -> None:
    """The limit passes, one past it is refused by name: the core could not count on."""
    assert {group: {field: most}} == policy_change({group: {field: most}})
    for amount in (most + 1, 0, -1):
        with pytest.raises(InvalidMessage, match=f"{group}.{field}"):
            policy_change({group: {field: amount}})


def test_the_full_policy_holds_every_field() -> None:
    """Record 1 says all, so a later default changes no history; what is given stands over it."""
    full = full_policy({"backoff": {"initial": "5s"}})
    assert 5_000_000 == full["backoff"]["initial"]
    assert full_policy()["backoff"]["max"] == full["backoff"]["max"]
    assert full == full_policy(full)
