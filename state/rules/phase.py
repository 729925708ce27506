"""The phase of a PodGroup and its counts: one rule for each API group, counted anew from the members each time.

A rule says what the reference's controller would have written once it came to rest; phases that it only passes
through on the way there (`PreScheduling`) are passed through here without being written.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from state.model.seen import GroupStatus

KOORDINATOR: Final = "scheduling.sigs.k8s.io"
#: Nothing is written any more, whatever becomes of the members.
TERMINAL: Final = ("Finished", "Failed")
#: A group that began so long after it was made, and has nothing running, is left as it is.
LONGEST_US: Final = 48 * 3600 * 1_000_000
_SECOND_US: Final = 1_000_000
_STEPS_MAX: Final = 8


class Group(Struct, frozen=True):
    """What the rule asks of the PodGroup."""

    api_group: str
    created_us: int
    min_member: int


class Members(Struct, frozen=True, kw_only=True):
    """The members by what the API server says of them; `occupied_by` is of the first one, `ours`: we schedule some."""

    failed: int = 0
    occupied_by: str = ""
    ours: bool = False
    pods: int = 0
    running: int = 0
    scheduled: int = 0
    succeeded: int = 0


def settled(group: Group, before: GroupStatus, members: Members, now_us: int) -> GroupStatus:
    """The status that follows from `before` and from the members, at rest; `before` itself: nothing to write."""
    if before.phase in TERMINAL or timed_out(group, before):
        return before
    step = _koordinator if group.api_group == KOORDINATOR else _upstream
    status = before
    for _ in range(_STEPS_MAX):
        if status.phase in TERMINAL:
            return status
        counted = replace(
            status, failed=members.failed, running=members.running, succeeded=members.succeeded
        )
        after = step(group, counted, members, now_us)
        if after == status:
            return status
        status = after
    raise AssertionError(f"phases do not come to rest: {before} {members}")


def timed_out(group: Group, status: GroupStatus) -> bool:
    """It began more than 48 hours after it was made and nothing runs: its pods may have been collected."""
    if status.running or status.schedule_start_us - group.created_us <= LONGEST_US:
        return False
    if group.api_group == KOORDINATOR:
        return status.phase not in TERMINAL and status.scheduled == group.min_member
    return status.phase in ("Scheduling", "Pending")


def _upstream(group: Group, status: GroupStatus, members: Members, _now_us: int) -> GroupStatus:
    enough = members.pods >= group.min_member > 0
    if not status.phase or (status.phase != "Pending" and not enough):
        return replace(status, phase="Pending")
    if status.phase == "Pending":
        return _begun(status, members, "Scheduling") if enough else status
    running = status.running + status.succeeded >= group.min_member
    return replace(status, phase=_ended(group, status) or ("Running" if running else "Scheduling"))


def _koordinator(group: Group, status: GroupStatus, members: Members, now_us: int) -> GroupStatus:
    status = replace(status, scheduled=members.scheduled)
    if not status.phase or not members.pods or group.min_member < 1:
        return replace(status, phase="Pending")
    if status.phase == "Pending":
        enough = members.pods >= group.min_member
        return _begun(status, members, "PreScheduling") if enough else status
    if status.scheduled < group.min_member:
        start_us = status.schedule_start_us or now_us // _SECOND_US * _SECOND_US
        phase = _ended(group, status) or "Scheduling"
        return replace(status, phase=phase, schedule_start_us=start_us)
    running = status.running + status.succeeded >= group.min_member
    return replace(status, phase=_ended(group, status) or ("Running" if running else "Scheduled"))


def _begun(status: GroupStatus, members: Members, phase: str) -> GroupStatus:
    return replace(status, occupied_by=members.occupied_by or status.occupied_by, phase=phase)


def _ended(group: Group, status: GroupStatus) -> str:
    """The terminal phase that the counts ask for, or empty; enough successes outweigh a failure."""
    if status.succeeded >= group.min_member:
        return "Finished"
    ended = status.failed + status.running + status.succeeded >= group.min_member
    return "Failed" if status.failed and ended else ""
