"""How long a role waits before it asks a log again that did not answer. Must not wait itself."""

from typing import Final

RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 5.0
#: Doublings; without a limit a log that is away for hours makes a number that no float holds.
_DOUBLINGS_MAX: Final = 10


def retry_s(failures: int) -> float:
    """The pause, in seconds, after `failures` failures in a row: doubled each time, at most `RETRY_S_MAX`."""
    return min(RETRY_S_MAX, RETRY_S * (1 << min(failures, _DOUBLINGS_MAX)))
