"""The rule of a PodGroup's phase: the tables of the reference's controllers, of both API groups."""

from typing import Any

import pytest

from state.model.seen import GroupStatus
from state.rules.phase import KOORDINATOR, LONGEST_US, Group, Members, settled, timed_out
from tests.builders import START_US

UPSTREAM = "scheduling.x-k8s.io"
NOW_US = START_US + 5_500_000

Case = tuple[str, int, dict[str, int], str]


def group(api_group: str, min_member: int) -> Group:
    return Group(api_group=api_group, created_us=START_US, min_member=min_member)


def after(api_group: str, minimum: int, before: GroupStatus, **members: Any) -> GroupStatus:
    """What follows, which must be at rest."""
    counts = Members(**members)
    found = settled(group(api_group, minimum), before, counts, NOW_US)
    assert found == settled(group(api_group, minimum), found, counts, NOW_US + 1_000_000)
    return found


UPSTREAM_CASES: list[Case] = [
    ("Scheduling", 2, {"pods": 2, "running": 2}, "Running"),
    ("Running", 2, {"pods": 2, "failed": 2}, "Failed"),
    ("Running", 2, {"pods": 2, "succeeded": 2}, "Finished"),
    ("Pending", 2, {"pods": 2}, "Scheduling"),
    ("Pending", 3, {"pods": 2}, "Pending"),
    ("Running", 4, {"pods": 2, "running": 2}, "Pending"),
    ("", 1, {}, "Pending"),
    ("", 2, {"pods": 2, "running": 2}, "Running"),
    ("Running", 2, {"pods": 3, "running": 1, "succeeded": 1}, "Running"),
    ("Running", 2, {"pods": 3, "running": 1, "failed": 1}, "Failed"),
    ("Running", 2, {"pods": 3, "failed": 1, "succeeded": 2}, "Finished"),
    ("Running", 3, {"pods": 3, "running": 2}, "Scheduling"),
    ("Unknown", 2, {"pods": 2}, "Scheduling"),
    ("Scheduled", 2, {"pods": 2, "running": 2}, "Running"),
    ("Running", 0, {"pods": 2, "running": 2}, "Pending"),
]


@pytest.mark.parametrize(("before", "minimum", "members", "phase"), UPSTREAM_CASES)
def test_upstream(before: str, minimum: int, members: dict[str, int], phase: str) -> None:
    """Phase by what the members are, and their counts; `scheduled` is not upstream's."""
    found = after(UPSTREAM, minimum, GroupStatus(phase=before), scheduled=9, **members)
    counts = {name: members.get(name, 0) for name in ("failed", "running", "succeeded")}
    assert GroupStatus(phase=phase, **counts) == found


KOORDINATOR_CASES: list[Case] = [
    ("", 1, {}, "Pending"),
    ("Pending", 2, {"pods": 1}, "Pending"),
    ("Pending", 2, {"pods": 2}, "Scheduling"),
    ("Pending", 0, {"pods": 2}, "Pending"),
    ("PreScheduling", 2, {"pods": 2, "scheduled": 1}, "Scheduling"),
    ("Scheduling", 2, {"pods": 2, "scheduled": 2}, "Scheduled"),
    ("Scheduled", 2, {"pods": 2, "scheduled": 2, "running": 2}, "Running"),
    ("Running", 2, {"pods": 2, "scheduled": 2, "running": 1}, "Scheduled"),
    ("Running", 4, {"pods": 2, "scheduled": 2, "running": 2}, "Scheduling"),
    ("Running", 2, {"pods": 2, "scheduled": 2, "failed": 2}, "Failed"),
    ("Running", 2, {"pods": 2, "scheduled": 2, "running": 1, "failed": 1}, "Failed"),
    ("Running", 2, {"pods": 2, "scheduled": 2, "succeeded": 2}, "Finished"),
    ("Running", 2, {"pods": 3, "scheduled": 3, "succeeded": 2, "failed": 1}, "Finished"),
    ("Scheduling", 2, {}, "Pending"),
    ("Running", 2, {}, "Pending"),
]


@pytest.mark.parametrize(("before", "minimum", "members", "phase"), KOORDINATOR_CASES)
def test_koordinator(before: str, minimum: int, members: dict[str, int], phase: str) -> None:
    """Phase by nodes first, by what runs then; counts follow the members down as well as up."""
    old = GroupStatus(phase=before, running=7, scheduled=7, schedule_start_us=START_US)
    found = after(KOORDINATOR, minimum, old, **members)
    assert phase == found.phase
    assert (members.get("scheduled", 0), members.get("running", 0)) == (
        found.scheduled,
        found.running,
    )


@pytest.mark.parametrize("api_group", [UPSTREAM, KOORDINATOR])
@pytest.mark.parametrize("phase", ["Finished", "Failed"])
def test_the_end_is_the_end(api_group: str, phase: str) -> None:
    """Members that go, or come again, change nothing of a group that has ended."""
    ended = GroupStatus(phase=phase, succeeded=2, scheduled=2)
    assert ended == after(api_group, 2, ended)
    assert ended == after(api_group, 2, ended, pods=2, running=2, scheduled=2)


def test_the_start_is_set_once_and_only_by_koordinator() -> None:
    """In whole seconds, as the API server keeps it; a second wait doesn't move it."""
    pending = GroupStatus(phase="Pending")
    started = after(KOORDINATOR, 2, pending, pods=2)
    assert START_US + 5_000_000 == started.schedule_start_us
    running = after(KOORDINATOR, 2, started, pods=2, scheduled=2, running=2)
    again = settled(group(KOORDINATOR, 2), running, Members(pods=2), NOW_US + 60_000_000)
    assert ("Scheduling", started.schedule_start_us) == (again.phase, again.schedule_start_us)
    assert 0 == after(UPSTREAM, 2, pending, pods=2).schedule_start_us


@pytest.mark.parametrize("api_group", [UPSTREAM, KOORDINATOR])
def test_who_occupies_the_group(api_group: str) -> None:
    """The first member's owner, taken when the members are enough, and kept."""
    waits = after(api_group, 2, GroupStatus(), pods=1, occupied_by="ns/job")
    assert "" == waits.occupied_by
    begun = after(api_group, 2, waits, pods=2, occupied_by="ns/job")
    assert "ns/job" == begun.occupied_by
    later = after(api_group, 2, begun, pods=2, scheduled=2, running=2, occupied_by="ns/other")
    assert "ns/job" == later.occupied_by


LATE_US = START_US + LONGEST_US + 1_000_000


@pytest.mark.parametrize(
    ("api_group", "status", "expected"),
    [
        (UPSTREAM, GroupStatus(phase="Scheduling", schedule_start_us=LATE_US), True),
        (UPSTREAM, GroupStatus(phase="Pending", schedule_start_us=LATE_US), True),
        (UPSTREAM, GroupStatus(phase="Scheduling", schedule_start_us=LATE_US, running=1), False),
        (UPSTREAM, GroupStatus(phase="Running", schedule_start_us=LATE_US), False),
        (UPSTREAM, GroupStatus(phase="Scheduling", schedule_start_us=LATE_US - 1_000_000), False),
        (UPSTREAM, GroupStatus(phase="Scheduling"), False),
        (KOORDINATOR, GroupStatus(phase="Scheduled", scheduled=2, schedule_start_us=LATE_US), True),
        (
            KOORDINATOR,
            GroupStatus(phase="Scheduling", scheduled=1, schedule_start_us=LATE_US),
            False,
        ),
        (
            KOORDINATOR,
            GroupStatus(phase="Running", scheduled=2, running=2, schedule_start_us=LATE_US),
            False,
        ),
        (KOORDINATOR, GroupStatus(phase="Finished", scheduled=2, schedule_start_us=LATE_US), False),
    ],
)
def test_48_hours(api_group: str, status: GroupStatus, expected: bool) -> None:
    """A group that began so late, with nothing running, is left as it is; its members may be collected already."""
    assert expected == timed_out(group(api_group, 2), status)
    moved = settled(group(api_group, 2), status, Members(pods=2, scheduled=2, running=2), NOW_US)
    assert expected == (moved == status) or status.phase in ("Finished", "Running")
