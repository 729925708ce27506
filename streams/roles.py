"""The roles as services: each drives one sans-I/O object between a feed and a writer, in one event loop.

Built by `lockstep run` and by tests. A role is told what its topics hold by a `Feed` (`on_records`), appends through a
`LogWriter` in a thread, and goes on until it is cancelled. Must not decide or order anything itself.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from schemas.errors import LockstepError, Unavailable
from schemas.topics import DEADLETTER, DECISIONS, INTAKE, JOURNAL
from streams.chain import StallWatch
from streams.checkpoints import Checkpointer, Taken
from streams.decider import Decider
from streams.log import Entry, LogReader, LogRecord, LogWriter
from streams.logs import event
from streams.place import check_given
from streams.retry import retry_s
from streams.sequencer import Sequencer
from streams.timekeeper import Timekeeper

logger = logging.getLogger(__name__)

READ_LIMIT: Final = 128
#: What was appended and has not been read back for so long is appended again: the log has lost it, or is slow.
#: Either is safe: of two equal places one is accepted.
READ_BACK_S: Final = 30.0


class Leadership:
    """Whether this process may write the log's own topics.

    Safety never hangs on it (the chain does that); it keeps standbys from writing what loses anyway. A leader that has
    lost its Lease goes on, for the log must go on without an API server, until it sees another's record.
    """

    def __init__(self, *, always: bool) -> None:
        self.active = always
        self._held = always
        self._listeners: list[Callable[[], None]] = []

    def listen(self, callback: Callable[[], None]) -> None:
        """Calls `callback` whenever `active` becomes true."""
        self._listeners.append(callback)

    async def led(self) -> None:
        """Returns when `active` is true, or has been since the call."""
        if not self.active:
            turned = asyncio.Event()
            self.listen(turned.set)
            await turned.wait()

    def acquire(self) -> None:
        """The Lease was acquired."""
        self._held = True
        if not self.active:
            self.active = True
            event(logger, logging.INFO, "leading")
            for listener in self._listeners:
                listener()

    def lose(self) -> None:
        """The Lease was lost."""
        self._held = False

    def on_foreign_record(self) -> None:
        """Somebody else writes the journal, whether its record was accepted or not."""
        if self.active and not self._held:
            self.active = False
            event(logger, logging.INFO, "standing_by")


class _ReadBack:
    """Whether what was appended comes back: asked with the place that has been read back to, or None
    when nothing is under way.
    """

    def __init__(self) -> None:
        #: End of what this process has appended: lower offsets are not given out again.
        self.given_to = 0
        self._place: int | None = None
        self._since_s = 0.0

    def check(self, topic: str, offsets: list[int], read_to: int) -> None:
        """After an append. Raises `Fatal` when the log has lost its end."""
        check_given(topic, offsets[0], max(read_to, self.given_to))
        self.given_to = offsets[-1] + 1

    def is_late(self, place: int | None) -> bool:
        """True once nothing has come back for too long; then the time starts anew."""
        now_s = time.monotonic()
        if place is None or place != self._place or now_s - self._since_s >= READ_BACK_S:
            late = place is not None and place == self._place
            self._place, self._since_s = place, now_s
            return late
        return False


class SequencerRole:
    """Drives a `Sequencer`. `reposition(topic, offset)` moves its feed.

    A standby follows journal and decisions only; when it becomes active it takes intake up where the journal stands.
    An empty log gets its first record from whoever comes first: the Lease names the log by it.
    """

    topics: Final = (*INTAKE, JOURNAL, DECISIONS)

    def __init__(
        self,
        sequencer: Sequencer,
        writer: LogWriter,
        reader: LogReader,
        leadership: Leadership,
        *,
        journal_offset: int,
        decisions_offset: int,
    ) -> None:
        self.sequencer = sequencer
        self.reposition: Callable[[str, int], None] = _nowhere
        self._writer = writer
        self._reader = reader
        self._leadership = leadership
        self._next = {JOURNAL: journal_offset, DECISIONS: decisions_offset}
        self._watches = {topic: StallWatch(topic) for topic in self._next}
        self._back = _ReadBack()
        self._time: Timekeeper | None = None
        self._letters: list[bytes] = []
        self._wake = asyncio.Event()
        leadership.listen(self._wake.set)

    def next_offsets(self) -> dict[str, int]:
        """Where the feed begins."""
        return {**{topic: self.sequencer.wanted(topic) for topic in INTAKE}, **self._next}

    async def on_records(self, topic: str, records: Sequence[LogRecord]) -> None:
        """Takes what the feed hands on."""
        if topic in self._next:
            for record in records:
                self._read_back(record)
        elif self._time is not None:
            await self._take_intake(topic, records)
        self._wake.set()

    async def _take_intake(self, topic: str, records: Sequence[LogRecord]) -> None:
        """A message at a time: it may hold 100 observations, and a batch 500 of it."""
        for record in records:
            while self.sequencer.full and self._time is not None:
                await self._make_room()
            if self._time is None:
                return  # whoever leads again begins at what the sequencer wants
            missing = self.sequencer.offer(topic, record.offset, record.value)
            if missing is not None:
                self.reposition(topic, missing)
                return
            self._wake.set()
            await asyncio.sleep(0)

    async def run(self) -> None:
        """Builds and appends until cancelled."""
        failures = 0
        while True:
            self._wake.clear()
            try:
                await self._follow_leadership()
                if self._back.is_late(
                    self.sequencer.sequence if self.sequencer.in_flight else None
                ):
                    self.sequencer.append_failed()
                await self._append()
                failures = 0
            except Unavailable as error:
                failures += 1
                event(logger, logging.WARNING, "append_failed", error=str(error))
                await asyncio.sleep(retry_s(failures))
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s()):
                    await self._wake.wait()

    async def _follow_leadership(self) -> None:
        if not self._leadership.active and self.sequencer.sequence > 0:
            self._time = None
        elif self._time is None:
            # In a thread: a broker that does not answer must not keep the Lease from being renewed.
            starts = await asyncio.to_thread(self._intake_starts)
            sequencer = self.sequencer
            self._take_time()
            for topic, start in starts.items():
                sequencer.lost(topic, start)
                self.reposition(topic, sequencer.wanted(topic))

    def _take_time(self) -> None:
        """Time runs on from the last record."""
        sequencer = self.sequencer
        self._time = Timekeeper(sequencer.timestamp_us, time.time_ns() // 1_000, _monotonic_us())
        if self._time.alarm is not None:
            event(
                logger,
                logging.WARNING,
                "clock_alarm",
                sequence=sequencer.sequence,
                detail=self._time.alarm,
            )

    def _catch_up(self) -> None:
        """Somebody else wrote by a clock ahead of ours: time would stand still until ours had caught up."""
        last_us = self.sequencer.timestamp_us
        if self._time is not None and self._time.now_us(_monotonic_us()) < last_us:
            self._take_time()

    def _intake_starts(self) -> dict[str, int]:
        return {topic: self._reader.start_offset(topic) for topic in INTAKE}

    def clock_offset_us(self, wall_us: int) -> int | None:
        """The time that would be stamped now, less `wall_us`; None while standing by."""
        if self._time is None:
            return None
        return max(self._time.now_us(_monotonic_us()), self.sequencer.timestamp_us) - wall_us

    async def _append(self) -> None:
        """Appends every record that can be built now, with the dead letters that fell out."""
        if self._time is None:
            return
        entries: list[Entry] = []
        read_to = self._next[JOURNAL]
        while (record := self.sequencer.build(self._time.now_us(_monotonic_us()))) is not None:
            entries.append((JOURNAL, None, record))
        self._letters += self.sequencer.take_dead_letters()
        letters = len(self._letters)
        entries += [(DEADLETTER, None, letter) for letter in self._letters]
        if not entries:
            return
        try:
            offsets = await asyncio.to_thread(self._writer.append_many, entries)
        except Unavailable:
            self.sequencer.append_failed()
            raise
        records = len(entries) - letters
        if records:
            self._back.check(JOURNAL, offsets[:records], read_to)
        del self._letters[:letters]
        if letters:
            event(logger, logging.WARNING, "messages_rejected", **self.sequencer.rejected)

    async def _make_room(self) -> None:
        """The backlog is full: append, and read back here, for the feed waits for us."""
        await asyncio.sleep(0)
        self._wake.set()
        offset = self._next[JOURNAL]
        with suppress(Unavailable):
            found = await asyncio.to_thread(self._reader.read, JOURNAL, offset, READ_LIMIT, 0.05)
            for record in found:
                self._read_back(record)

    def _read_back(self, record: LogRecord) -> None:
        if record.offset < self._next[record.topic]:
            return
        self._next[record.topic] = record.offset + 1
        data, sequencer = record.value or b"", self.sequencer
        watch = self._watches[record.topic]
        if record.topic == DECISIONS:
            sequencer.on_decision(data)
            watch.note(sequencer.decisions, time.monotonic())
            return
        accepted = sequencer.on_journal(data)
        watch.note(sequencer.chain, time.monotonic())
        if not sequencer.is_own(data):
            self._leadership.on_foreign_record()
            if accepted:
                self._catch_up()

    def _wait_s(self) -> float | None:
        if self._time is None:
            return None
        if self.sequencer.in_flight:
            return READ_BACK_S
        due_us = self.sequencer.due_us()
        if due_us is None:
            return None
        return max(0.001, self._time.until_us(due_us, _monotonic_us()) / 1e6)


class DeciderRole:
    """Drives a `Decider`: folds, publishes while leading, compares, and has checkpoints written.

    `made` and `published` count decisions since the start; `checkpoint_seconds` is what the last
    checkpoint took.
    """

    topics: Final = (JOURNAL, DECISIONS)

    def __init__(
        self,
        decider: Decider,
        writer: LogWriter,
        leadership: Leadership,
        checkpointer: Checkpointer,
    ) -> None:
        self.decider = decider
        self._writer = writer
        self._leadership = leadership
        self.checkpointer = checkpointer
        self.made = 0
        self.published = 0
        self.checkpoint_seconds = 0.0
        self._watch = StallWatch(JOURNAL)
        self._published = decider.decisions.sequence
        self._back = _ReadBack()
        self._wake = asyncio.Event()
        self._wake.set()  # what was recovered may have been left unpublished
        self._writing: asyncio.Task[None] | None = None
        leadership.listen(self._wake.set)

    def next_offsets(self) -> dict[str, int]:
        """Where the feed begins."""
        return {JOURNAL: self.decider.journal_offset, DECISIONS: self.decider.decisions_offset}

    async def on_records(self, topic: str, records: Sequence[LogRecord]) -> None:
        """Takes what the feed hands on. Raises `Fatal` when a record cannot be decided or a decision differs."""
        for record in records:
            data = record.value or b""
            if topic == DECISIONS:
                if self.decider.on_decision(record.offset, data):
                    await self._checkpoint_beside()
                continue
            decision = self.decider.on_journal(record.offset, data)
            self._watch.note(self.decider.chain, time.monotonic())
            if decision is not None:
                self.made += 1
                self.checkpointer.on_decided(self.decider.state, self.decider.journal_offset)
                self._wake.set()
                await asyncio.sleep(0)

    async def run(self) -> None:
        """Publishes until cancelled."""
        failures = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(READ_BACK_S if self._awaited() else None):
                    await self._wake.wait()
            self._wake.clear()
            if self._back.is_late(self._awaited()):
                self._published = self.decider.decisions.sequence
            try:
                await self._publish()
                failures = 0
            except Unavailable as error:
                failures += 1
                event(logger, logging.WARNING, "publish_failed", error=str(error))
                await asyncio.sleep(retry_s(failures))
                self._wake.set()

    async def finish(self, reader: LogReader) -> None:
        """At a clean stop: a checkpoint of what has been decided, if its decision is in the log.

        None while the log does not answer: a checkpoint is only a shortcut, and the stop stays a clean one.
        """
        decider = self.decider
        self.checkpointer.on_decided(decider.state, decider.journal_offset, force=True)
        try:
            last = reader.read(DECISIONS, decider.decisions_offset, 10_000)
        except Unavailable as error:
            event(logger, logging.WARNING, "checkpoint_failed", error=str(error))
            return
        for record in last:
            decider.on_decision(record.offset, record.value or b"")
        await self._checkpoint_beside()
        await self._written()

    def _awaited(self) -> int | None:
        """The decision that has been read back, while published ones have not."""
        read_back = self.decider.decisions.sequence
        return read_back if self._published > read_back else None

    async def _publish(self) -> None:
        if not self._leadership.active:
            return
        pending = [item for item in self.decider.unpublished() if item[0] > self._published]
        if not pending:
            return
        entries: list[Entry] = [(DECISIONS, None, data) for _, data in pending]
        read_to = self.decider.decisions_offset
        offsets = await asyncio.to_thread(self._writer.append_many, entries)
        self._back.check(DECISIONS, offsets, read_to)
        self._published = pending[-1][0]
        self.published += len(pending)

    async def _checkpoint_beside(self) -> None:
        """Has a checkpoint written beside the decisions, one at a time, if this process leads; else it looks for the
        leader's.
        """
        sequence = self.decider.decisions.sequence
        taken = self.checkpointer.claim(sequence)
        if taken is None:
            return
        await self._written()
        leads = self._leadership.active
        work = (
            self._write_checkpoint(taken, self.decider.accepted_offset) if leads else self._look()
        )
        self._writing = asyncio.create_task(work)

    async def _written(self) -> None:
        """Returns when no checkpoint is being written. Whoever is cancelled meanwhile does not cancel it: a clean stop
        waits for it, too.
        """
        if self._writing is not None:
            await asyncio.wait([self._writing])
            self._writing.result()

    async def _look(self) -> None:
        with suppress(LockstepError):  # only metrics tell of it, and it is looked again
            await asyncio.to_thread(self.checkpointer.look)

    async def _write_checkpoint(self, taken: Taken, decision_offset: int) -> None:
        began = time.monotonic()
        try:
            await asyncio.to_thread(self.checkpointer.write, taken, decision_offset)
        except LockstepError as error:
            # Only a shortcut is missing or torn, or its topic is gone; readers do without, and the next one will do.
            event(logger, logging.WARNING, "checkpoint_failed", error=str(error))
            return
        self.checkpoint_seconds = time.monotonic() - began
        event(
            logger,
            logging.INFO,
            "checkpoint_written",
            sequence=taken.frozen.sequence,
            seconds=round(self.checkpoint_seconds, 3),
        )


def _nowhere(topic: str, next_offset: int) -> None:
    """No feed yet: it will begin at `next_offsets`."""
    del topic, next_offset


def _monotonic_us() -> int:
    return time.monotonic_ns() // 1_000
