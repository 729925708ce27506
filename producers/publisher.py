"""The publishing port, and the class that packs observations into intake messages.

Order is kept per topic: what is published later never stands before what was published earlier,
also after a failure, as long as the caller repeats a failed call before it makes the next one. Must
not drop, merge or judge observations. Informers, device agents and the sink's results publish
through it; `lockstep` gives it the `append_many` of the log's writer (`streams.log`).
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from schemas.codec import encode
from schemas.envelope import INTAKE_BYTES_MAX, INTAKE_OBSERVATIONS_MAX
from schemas.errors import InvalidMessage
from schemas.observations import VERSION, Observed

#: Short topic name, key, value.
Entry = tuple[str, bytes | None, bytes | None]
#: Appends all entries in order and durably, or raises `Unavailable`; blocks, so it is called in a
#: thread.
AppendMany = Callable[[list[Entry]], object]


class Publisher(Protocol):
    """Where observations go."""

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """Append the observations, in order, to the intake topic; durable when it returns.

        Raises `Unavailable` when the outcome is not known: some of the observations may be in the
        log. Repeat the whole call then; whoever folds them drops what it has seen.
        """


class PackingPublisher:
    """`Publisher` over a log: a burst becomes few messages, each within the limits."""

    def __init__(self, producer: str, append_many: AppendMany) -> None:
        self._producer = producer
        self._append_many = append_many
        self._turns: dict[str, asyncio.Lock] = {}

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """See `Publisher.publish`."""
        key = self._producer.encode()
        entries: list[Entry] = [(topic, key, value) for value in pack(self._producer, observations)]
        if entries:
            # A cancelled caller must not let the next one overtake an append under way.
            await asyncio.shield(asyncio.create_task(self._append(topic, entries)))

    async def _append(self, topic: str, entries: list[Entry]) -> None:
        async with self._turns.setdefault(topic, asyncio.Lock()):
            await asyncio.to_thread(self._append_many, entries)


def pack(producer: str, observations: Sequence[Observed]) -> Iterator[bytes]:
    """Canonical bytes of as few intake messages as hold the observations in order.

    Raises `InvalidMessage` when one observation alone is larger than a message may be.
    """
    head = b'{"observations":['
    tail = b'],"producer":%b,"version":%d}' % (_encoded(producer), VERSION)
    room_bytes = INTAKE_BYTES_MAX - len(head) - len(tail)
    parts: list[bytes] = []
    size_bytes = 0
    for observation in observations:
        part = encode(observation)
        if len(part) > room_bytes:
            raise InvalidMessage(
                "TooLarge", f"an observation of {len(part)} bytes, at most {room_bytes}"
            )
        if parts and (
            len(parts) == INTAKE_OBSERVATIONS_MAX or size_bytes + len(part) + 1 > room_bytes
        ):
            yield head + b",".join(parts) + tail
            parts, size_bytes = [], 0
        size_bytes += len(part) + bool(parts)
        parts.append(part)
    if parts:
        yield head + b",".join(parts) + tail


def _encoded(text: str) -> bytes:
    """A text as it stands in canonical JSON."""
    return encode({"": text})[len(b'{"":') : -1]
