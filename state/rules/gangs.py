"""When a gang may start, and whether it keeps what it gathered until then (semantics 1.3 and 1.7).

Pure functions of counts. `waiting`: members with a node that the API server doesn't know of yet (held, or their bind
is under way); `bound`: members with a node by its word, finished ones until they are deleted.
"""

from typing import Final

ONCE_SATISFIED: Final = "once-satisfied"
WAITING_AND_RUNNING: Final = "waiting-and-running"
ONLY_WAITING: Final = "only-waiting"

NON_STRICT: Final = "NonStrict"


def still_needed(match: str, min_member: int, waiting: int, bound: int, *, satisfied: bool) -> int:
    """Members that must get a node before the gang is valid; 0: it is."""
    if match == ONLY_WAITING:
        return max(min_member - waiting, 0)
    if match == WAITING_AND_RUNNING:
        return max(min_member - waiting - bound, 0)
    return 0 if satisfied else max(min_member - waiting, 0)


def sends_back(mode: str, match: str, *, satisfied: bool) -> bool:
    """Whether all that wait with the gang let go when a member of it has no node: it is Strict, and hasn't started."""
    return mode != NON_STRICT and not (match == ONCE_SATISFIED and satisfied)


def keeps_waiting(min_member: int, assigned: int, reject_percentage: int) -> bool:
    """Whether an upstream gang that lacks members goes on waiting with those that it has: its gap, in percent of
    `min_member`, is at most `reject_percentage`. 0: never, so that a gang that doesn't fit holds nothing.
    """
    return (min_member - assigned) * 100 <= reject_percentage * min_member
