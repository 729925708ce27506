"""A log that does not answer is asked again, after pauses that grow."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from schemas.errors import Unavailable
from streams.logs import event

logger = logging.getLogger(__name__)

RETRY_S: Final = 0.2
RETRY_S_MAX: Final = 5.0
#: Doublings; without a limit a log that is away for hours makes a number that no float holds.
_DOUBLINGS_MAX: Final = 10
Answer = TypeVar("Answer")


def retry_s(failures: int) -> float:
    """The pause, in seconds, after `failures` failures in a row: doubled each time, at most `RETRY_S_MAX`."""
    return min(RETRY_S_MAX, RETRY_S * (1 << min(failures, _DOUBLINGS_MAX)))


async def answered(ask: Callable[[], Awaitable[Answer]], topic: str) -> Answer:
    """What `ask` gives, once it does not raise `Unavailable` any more. `topic`: what is asked about, for people."""
    failures = 0
    while True:
        try:
            return await ask()
        except Unavailable as error:
            event(logger, logging.WARNING, "log_unavailable", topic=topic, error=str(error))
            await asyncio.sleep(retry_s(failures))
            failures += 1
