"""A feed: every record of some topics from given offsets on, in order, once each, on any log.

Called by the runners of the roles. Faust delivers on Kafka and on the embedded log; its deliveries
are only hints here. What the feed hands on is decided by one number a topic, the next offset:
deliveries below it are dropped, a hole above it is filled through `LogReader`, and a slow poll of
the log's end finds what no delivery told. So stale generations, rebalances, doubled deliveries or a
stuck consumer can cost time, never a record. Logs without Faust (memory, or an embedded log that
another process writes) are read through `LogReader` alone, by the same rule.

It must not decode values, know roles, or import Faust before a log needs it.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from schemas.errors import Fatal, Unavailable
from streams.log import LogAddress, LogReader, LogRecord, LogSettings, open_reader
from streams.logs import event
from streams.place import CHECK_S, Places
from streams.topics import SETTINGS

OnRecords = Callable[[str, list[LogRecord]], Awaitable[None]]

logger = logging.getLogger(__name__)

#: Records handed on in one call at most.
BATCH_MAX: Final = 500
#: Hints kept for one topic; what comes above is dropped and read from the log later.
HINTS_MAX: Final = 4 * BATCH_MAX
HINT_BYTES_MAX: Final = 32 * 1024 * 1024
#: How often the end of each topic is looked at: while hints come, and while nothing else tells.
POLL_HINTED_S: Final = 1.0
POLL_ALONE_S: Final = 0.05
RETRY_S_MAX: Final = 5.0
READ_S_MAX: Final = 5.0
#: How long Faust may take to recover tables from their changelogs.
RECOVERY_S_MAX: Final = 120.0
#: How long it may take to stop; what is left of it then ends beside its successor.
STOP_S_MAX: Final = 10.0


class Feed:
    """One role's topics on one domain of a log.

    `topics`: short name -> next offset. `on_records(topic, records)` is called with records whose
    offsets are consecutive from there on, one call at a time; what it raises ends `run`.
    `on_ready` is awaited before the first record, with the tables of `app` (if any) recovered: a
    role whose place stands in its tables calls `reposition` there.

    Counted: records `hinted` (taken as delivered) and `filled` (read from the log), `gaps` in the
    deliveries, `repositions`. `app_lost`: the App that only hints has died.
    """

    def __init__(
        self,
        url: str,
        role: str,
        topics: Mapping[str, int],
        on_records: OnRecords,
        *,
        on_ready: Callable[[], Awaitable[object]] | None = None,
        domain: int = 0,
        domains: int = 1,
        settings: LogSettings | None = None,
        datadir: Path | None = None,
    ) -> None:
        self._url = url
        given = settings or LogSettings.from_environment()
        # A read that waits for a lost broker holds up `stop`; it is asked again anyway.
        self._settings = replace(given, timeout_s=min(given.timeout_s, READ_S_MAX))
        self._domain = domain
        self._on_records = on_records
        self._on_ready = on_ready
        self._next = dict(topics)
        self._hints: dict[str, deque[LogRecord]] = {topic: deque() for topic in topics}
        self._hint_bytes = 0
        self._stopping = False
        self._poll_at = 0.0
        self._retry_s = 0.0
        self._places = Places(self._next)
        self._check_at = 0.0
        self._wake = asyncio.Event()
        self._in_process = LogAddress.parse(url).scheme != "kafka"
        self._app_started = False
        self.app_lost = False
        self.hinted = self.filled = self.gaps = self.repositions = 0
        #: The role's Faust App, or None where none runs. Declare tables on it before `run`.
        self.app: Any = None
        if datadir is not None and LogAddress.parse(url).scheme != "memory":
            from streams.faust_app import build_app

            try:
                self.app = build_app(
                    role,
                    url,
                    tuple(topics),
                    self.hint,
                    settings=self._settings,
                    datadir=datadir,
                    domain=domain,
                    domains=domains,
                )
            except OSError as error:  # a disk that is full: deliveries are only hints
                self._lose_app(role, error)

    @property
    def waiting(self) -> bool:
        """The log did not answer the last read."""
        return self._retry_s > 0

    def next_offsets(self) -> dict[str, int]:
        """Topic -> offset of the next record to hand on."""
        return dict(self._next)

    def reposition(self, topic: str, next_offset: int) -> None:
        """Go on with `next_offset` on `topic`, back or forth.

        Call it from the feed's event loop.
        """
        self._next[topic] = next_offset
        self._places.forget(topic)
        self.repositions += 1
        self._forget_hints(topic)
        self._poll_now()

    async def run(self) -> None:
        """Hand records on until `stop`, or until `on_records` raises.

        Raises what `on_records` raised; `Fatal` when a record of a topic that is never compacted is
        gone, or the log has lost its end; `Unavailable` when a Faust App with tables died (start a new feed).
        """
        loop = asyncio.get_running_loop()
        reader = open_reader(self._url, self._domain, self._settings)

        def on_append() -> None:  # in the thread that appended
            if self.app is None:
                loop.call_soon_threadsafe(self._poll_now)

        end_listening = reader.listen(on_append)
        starting = asyncio.create_task(self._start_app())
        try:
            if self.app is not None and self.app.tables:
                await self._await_tables(starting)
            if self._on_ready is not None:
                await self._on_ready()
            while not self._stopping:
                self._check_app(starting)
                if not await self._step(reader):
                    await self._rest()
        finally:
            end_listening()
            await self._stop_app(starting)
            reader.close()

    async def stop(self) -> None:
        """Ask `run` to return after the call of `on_records` that is under way."""
        self._stopping = True
        self._wake.set()

    # One turn.

    async def _step(self, reader: LogReader) -> bool:
        """Hand on what is at hand, one batch of each topic; False when there was nothing."""
        polling = time.monotonic() >= self._poll_at
        progressed, polled = False, False
        for topic in list(self._next):
            records = self._take_hints(topic)
            self.hinted += len(records)
            if not records and (polling or self._hints[topic]):
                gap = bool(self._hints[topic])
                records = await self._read(reader, topic)
                polled = polled or bool(records)
                self.filled += len(records)
                self.gaps += gap and bool(records)
            if records and not self._stopping and self._follows(topic, records):
                self._next[topic] = records[-1].offset + 1
                self._places.note(records[-1])
                await self._hand_on(topic, records)
                progressed = True
        if polling and not polled:
            self._poll_at = time.monotonic() + self._poll_s()
            await self._check_places(reader)
        return progressed

    async def _check_places(self, reader: LogReader) -> None:
        """Now and then: whether the log still holds what was read of it last."""
        if time.monotonic() < self._check_at:
            return
        self._check_at = time.monotonic() + CHECK_S
        with suppress(Unavailable):  # asked again; a read says so, too
            if self._in_process:
                self._places.check(reader)
            else:
                await asyncio.to_thread(self._places.check, reader)

    def _take_hints(self, topic: str) -> list[LogRecord]:
        """The hints that continue `topic` without a hole; forgets those below."""
        hints, expected = self._hints[topic], self._next[topic]
        taken: list[LogRecord] = []
        while hints and hints[0].offset <= expected and len(taken) < BATCH_MAX:
            hint = hints.popleft()
            self._hint_bytes -= len(hint.value or b"")
            if hint.offset == expected:
                taken.append(hint)
                expected += 1
        return taken

    async def _read(self, reader: LogReader, topic: str) -> list[LogRecord]:
        """The next records from the log itself; empty when it has none or does not answer."""
        offset = self._next[topic]
        try:
            if self._in_process:
                records = reader.read(topic, offset, BATCH_MAX)
            else:
                records = await asyncio.to_thread(reader.read, topic, offset, BATCH_MAX)
        except Unavailable as error:
            self._retry_s = min(RETRY_S_MAX, 2 * self._retry_s or POLL_ALONE_S)
            event(logger, logging.WARNING, "log_unavailable", topic=topic, error=str(error))
            await self._sleep(self._retry_s)
            return []
        self._retry_s = 0.0
        return records

    def _follows(self, topic: str, records: list[LogRecord]) -> bool:
        """Whether `records` go on where the feed is now; raises when the log has a hole there."""
        first, expected = records[0].offset, self._next[topic]
        if SETTINGS[topic].compacted:
            return first >= expected
        if first < expected:
            return False  # read before a `reposition`
        check_gapless(topic, expected, records)
        return True

    async def _hand_on(self, topic: str, records: list[LogRecord]) -> None:
        if self.app is not None and self.app.tables:
            from streams.faust_app import table_event

            with table_event(self.app, records[-1], self._domain):
                await self._on_records(topic, records)
        else:
            await self._on_records(topic, records)

    async def _rest(self) -> None:
        self._wake.clear()
        if any(self._hints.values()) or self._stopping:
            return
        await self._sleep(self._poll_at - time.monotonic())

    async def _sleep(self, seconds: float) -> None:
        """At most `seconds`; less when a hint, an append, `reposition` or `stop` comes."""
        with suppress(TimeoutError):
            # Not `wait_for`: Python 3.11's loses a cancellation that comes as the event is set.
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._wake.wait()

    def _poll_now(self) -> None:
        self._poll_at = 0.0
        self._wake.set()

    def _poll_s(self) -> float:
        return POLL_HINTED_S if self._hinted() else POLL_ALONE_S

    def _hinted(self) -> bool:
        """Whether deliveries may come; an App that dies at this moment has no consumer to ask."""
        if not self._app_started or self.app_lost:
            return False
        try:
            return bool(self.app.consumer.assignment())
        except Exception:  # noqa: BLE001  (a library's; `_check_app` says what has become of it)
            return False

    # Hints.

    async def hint(self, record: LogRecord) -> None:
        """Take a delivery for what it is worth; never raises, never waits."""
        hints = self._hints[record.topic]
        if record.offset < self._next[record.topic]:
            return
        if hints and record.offset <= hints[-1].offset:
            if record.offset >= hints[0].offset:
                return
            self._forget_hints(record.topic)  # an older generation was delivered late: start over
        if len(hints) < HINTS_MAX and self._hint_bytes < HINT_BYTES_MAX:
            hints.append(record)
            self._hint_bytes += len(record.value or b"")
        self._wake.set()

    def _forget_hints(self, topic: str) -> None:
        hints = self._hints[topic]
        self._hint_bytes -= sum(len(hint.value or b"") for hint in hints)
        hints.clear()

    # The App.

    async def _start_app(self) -> None:
        if self.app is not None:
            await self.app.start()
            self._app_started = True

    async def _await_tables(self, starting: "asyncio.Task[None]") -> None:
        """Tables take no writes before Faust has recovered them; it may hang in that for ever."""
        await asyncio.wait([starting], timeout=RECOVERY_S_MAX)
        if not starting.done():
            raise Unavailable(
                f"Faust App {self.app.conf.id}: tables not recovered within {RECOVERY_S_MAX:g} s;"
                " remove its data directory and its changelog topics, they are only a cache"
            )
        self._check_app(starting)

    def _check_app(self, starting: "asyncio.Task[None]") -> None:
        """A dead App takes its tables with it; one that only hints is missed, not needed."""
        if self.app is None or self.app_lost:
            return
        reason: BaseException | None = None
        if starting.done():
            reason = _failure(starting)
        if reason is None and self.app.crashed:
            reason = self.app.crash_reason or RuntimeError("no reason given")
        if reason is None:
            return
        if self.app.tables:
            raise Unavailable(f"Faust App {self.app.conf.id} died: {reason!r}") from reason
        self._lose_app(self.app.conf.id, reason)

    def _lose_app(self, name: str, reason: BaseException) -> None:
        self.app_lost = True
        event(
            logger,
            logging.ERROR,
            "faust_app_lost",
            app=name,
            error=repr(reason),
            remedy=f"reading on without it, every {POLL_ALONE_S:g} s; restart the role",
        )

    async def _stop_app(self, starting: "asyncio.Task[None]") -> None:
        if self.app is None:
            return
        if not starting.done():
            starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        # In a task of its own: Faust passes over a cancellation, and may wait for a broker that is away.
        stopping = asyncio.create_task(self.app.stop())
        await asyncio.wait([stopping], timeout=STOP_S_MAX)
        late = TimeoutError(f"not within {STOP_S_MAX:g} s")
        error = _failure(stopping) if stopping.done() else late
        if error is not None:
            event(
                logger,
                logging.WARNING,
                "faust_app_not_stopped",
                app=self.app.conf.id,
                error=repr(error),
            )


def _failure(task: "asyncio.Task[None]") -> BaseException | None:
    """What ended a task of a library, which may cancel its own."""
    return asyncio.CancelledError() if task.cancelled() else task.exception()


def check_gapless(topic: str, expected: int, records: list[LogRecord]) -> None:
    """Raises `Fatal` when `records` of a topic that is never compacted do not go on at `expected` without a hole."""
    first = records[0].offset
    if first != expected or records[-1].offset - first != len(records) - 1:
        raise Fatal(
            f"{topic}: offset {expected} is gone from the log (next is {first});"
            " retention must be longer; start from a newer checkpoint",
            cause="history_lost",
        )
