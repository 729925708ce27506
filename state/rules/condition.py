"""The condition of a PodGroup of Kubernetes itself: whether it has been placed, and if not, why.

Written as kube-scheduler 1.37 does: True is the last word, whatever becomes of the members; False names the reason.
"""

from typing import Final

from msgspec.structs import replace

from state.model.diagnoses import Code, Diagnosis
from state.model.seen import GroupStatus

#: Said by others, or of no use before all has been listed.
UNTOLD: Final = (Code.GATED, Code.SYNCING)
#: No room would help: the API's word is that the scheduler can't do it.
_ERRORS: Final = (Code.INVALID_REQUEST, Code.UNSUPPORTED)
_SECOND_US: Final = 1_000_000


def condition(
    before: GroupStatus, diagnosis: Diagnosis | None, *, placed: bool, now_us: int
) -> GroupStatus:
    """The status that follows from `before`; `before` itself: nothing to write."""
    if before.condition == "True":
        return before
    if placed:
        said, reason, message = "True", "Scheduled", ""
    elif diagnosis is None or diagnosis.code in UNTOLD:
        return before
    else:
        said, message = "False", f"{diagnosis.code}: {diagnosis.message}"
        reason = "SchedulerError" if diagnosis.code in _ERRORS else "Unschedulable"
    since_us = (
        before.condition_us if said == before.condition else now_us // _SECOND_US * _SECOND_US
    )
    return replace(before, condition=said, condition_us=since_us, message=message, reason=reason)
