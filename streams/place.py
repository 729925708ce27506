"""Places: whether what a reader has read still stands in the log where it read it.

A log that loses its end (an unclean election, a restored volume) gives offsets out a second time, and whoever has
read beyond that end would wait for ever, or read another history's entries as if they followed. Asked by feeds now
and then. Must not decide, and must not know what entries mean.
"""

import time
from collections.abc import Callable
from hashlib import sha256
from typing import Final

from schemas.errors import Fatal
from streams.log import LogReader, LogRecord
from streams.topics import SETTINGS

#: How often a feed looks.
CHECK_S: Final = 10.0
#: How long a log may be shorter than what was read of it: a leader just elected may not know its end yet.
DOUBT_S: Final = 20.0


class Places:
    """The last entry read of each topic. `check` raises `Fatal` once one of them is no longer there.

    `next_offsets`: where reading begins; what stands before it is learned at the first `check`.
    """

    def __init__(
        self, next_offsets: dict[str, int], clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock_s = clock_s
        self._entries: dict[str, tuple[int, bytes | None]] = {
            topic: (offset - 1, None)
            for topic, offset in next_offsets.items()
            if offset > 0 and not SETTINGS[topic].compacted
        }
        self._short_since_s: dict[str, float] = {}

    def note(self, record: LogRecord) -> None:
        """`record` is the last one read of its topic."""
        if not SETTINGS[record.topic].compacted:
            self._entries[record.topic] = record.offset, _digest(record)

    def forget(self, topic: str) -> None:
        """Reading of `topic` goes on elsewhere."""
        self._entries.pop(topic, None)

    def check(self, reader: LogReader) -> None:
        """Looks at every place once. Raises what `LogReader.read` raises."""
        for topic, (offset, digest) in list(self._entries.items()):
            if not reader.end_offset(topic):
                continue  # it was made anew: reading on says so, a read at its new end would take that back
            found = reader.read(topic, offset, 1)
            if not found:
                self._note_short(topic, offset)
                continue
            self._short_since_s.pop(topic, None)
            if found[0].offset > offset:
                continue  # retention has removed it since
            if digest is None:
                self._entries[topic] = offset, _digest(found[0])
            elif digest != _digest(found[0]):
                raise _lost(topic, f"offset {offset} holds another entry than the one read there")

    def _note_short(self, topic: str, offset: int) -> None:
        now_s = self._clock_s()
        if now_s - self._short_since_s.setdefault(topic, now_s) >= DOUBT_S:
            raise _lost(topic, f"offset {offset} was read and is no longer there")


def check_given(topic: str, given: int, next_offset: int) -> None:
    """After an append: raises `Fatal` when the log gave the entry an offset below one that was read."""
    if given < next_offset:
        raise _lost(topic, f"offset {given} was given out again")


def _lost(topic: str, detail: str) -> Fatal:
    return Fatal(
        f"{topic}: {detail}: the topic has lost its end; start again, and if that stops, too, restore the topic"
        " (docs/runbooks/LockstepDecisionsAhead.md)",
        cause="decisions_ahead",
    )


def _digest(record: LogRecord) -> bytes:
    return sha256(record.value or b"").digest()
