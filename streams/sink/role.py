"""The role that follows `decisions` for the sink and the informers: commands to the one, resync requests to the other.

Built by `lockstep run`; fed by a `Feed` and, when a Lease was just acquired, by itself through a reader. Must not act:
the `Sink` does, while its Lease holds.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from schemas.envelope import BindPod, Command, PatchStatus
from schemas.topics import DECISIONS
from streams.chain import DecisionChain, StallWatch
from streams.log import LogReader, LogRecord
from streams.retry import answered
from streams.sink.commands import read_commands
from streams.sink.sink import Sink

READ_LIMIT: Final = 128


class SinkRole:
    """Drives a `Sink` (None: only requests matter) from the decisions after `chain`, at `offset`.

    What is read before the first `read_to_end` returns is the past: commands without an end are taken over, resync
    requests have had their answer, and of each pod's statuses only the last counts, if `still_waits(uid)`.
    """

    topics: Final = (DECISIONS,)

    def __init__(
        self,
        sink: Sink | None,
        reader: LogReader,
        *,
        chain: DecisionChain,
        offset: int,
        open_commands: Iterable[Command] = (),
        on_resync: Callable[[str], None],
        still_waits: Callable[[str], bool],
    ) -> None:
        self._sink = sink
        self._reader = reader
        self._chain = chain
        self._next = offset
        self._on_resync = on_resync
        self._still_waits = still_waits
        self._watch = StallWatch(DECISIONS)
        self._past: dict[tuple[str, str], PatchStatus] | None = {}
        if sink is not None:
            self._note_time(sink)
            sink.restore(open_commands)

    @property
    def sequence(self) -> int:
        """Sequence of the last decision taken."""
        return self._chain.sequence

    def next_offsets(self) -> dict[str, int]:
        """Where the feed begins."""
        return {DECISIONS: self._next}

    async def on_records(self, topic: str, records: Sequence[LogRecord]) -> None:
        """Takes what the feed hands on."""
        assert topic == DECISIONS
        await self._take_all(records)

    async def read_to_end(self) -> None:
        """Returns once every decision that was in the log at the time of the call has been taken.

        A log that does not answer is asked again: who just got the Lease must not give up over it.
        """
        await answered(self._read_to_end, DECISIONS)
        if self._past is not None:
            statuses, self._past = self._past, None
            if self._sink is not None:
                self._sink.on_decision(
                    [status for status in statuses.values() if self._still_waits(status.uid)]
                )

    async def _read_to_end(self) -> None:
        end = await asyncio.to_thread(self._reader.end_offset, DECISIONS)
        while self._next < end:
            found = await asyncio.to_thread(self._reader.read, DECISIONS, self._next, READ_LIMIT)
            await self._take_all(found)

    async def _take_all(self, records: Iterable[LogRecord]) -> None:
        """One after the other, in turns with the rest of the event loop."""
        for record in records:
            self._take(record)
            await asyncio.sleep(0)

    def _take(self, record: LogRecord) -> None:
        if record.offset < self._next:
            return
        self._next = record.offset + 1
        data = record.value or b""
        accepted = self._chain.accept(data)
        self._watch.note(self._chain, time.monotonic())
        if not accepted:
            return
        commands, ended, withdrawn, resyncs = read_commands(data)
        if self._past is not None:
            commands = tuple(self._without_statuses(commands, self._past))
        else:
            for resource in resyncs:
                self._on_resync(resource)
        if self._sink is not None:
            self._note_time(self._sink)
            self._sink.on_decision(commands, ended, withdrawn)

    def _note_time(self, sink: Sink) -> None:
        if self._chain.header is not None:
            sink.note_time(self._chain.header.timestamp_us)

    def _without_statuses(
        self, commands: Iterable[Command], past: dict[tuple[str, str], PatchStatus]
    ) -> Iterable[Command]:
        for command in commands:
            if isinstance(command, PatchStatus):
                past[command.resource, command.uid] = command
                continue
            if isinstance(command, BindPod):
                past.pop(("pods", command.uid), None)
            yield command
