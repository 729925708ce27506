"""The feed hands on every record once and in order, whatever the deliveries are."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import Fatal, Unavailable
from streams.feed import BATCH_MAX, HINTS_MAX, Feed
from streams.log import LogRecord, open_writer
from streams.log_memory import MemoryReader, cut_memory_log, drop_memory_log


@pytest.fixture(name="url")
def a_memory_log() -> Iterator[str]:
    """The address of an empty memory log."""
    name = uuid4().hex
    yield f"memory://{name}"
    drop_memory_log(name)


def fill(url: str, topic: str, count: int) -> list[LogRecord]:
    """`count` records whose values are their offsets, as a reader sees them."""
    offsets = open_writer(url).append_many([(topic, None, b"%d" % i) for i in range(count)])
    return [LogRecord(topic, offset, 0, None, b"%d" % offset) for offset in offsets]


class Taken:
    """Collects what a feed hands on, and stops the feed when a topic has reached `until`."""

    def __init__(self, until: dict[str, int]) -> None:
        self.until = until
        self.offsets: dict[str, list[int]] = {topic: [] for topic in until}
        self.batches: list[int] = []
        self.feed: Feed | None = None

    async def __call__(self, topic: str, records: list[LogRecord]) -> None:
        self.batches.append(len(records))
        self.offsets[topic] += [record.offset for record in records]
        assert self.feed is not None
        if all(self.feed.next_offsets()[t] >= end for t, end in self.until.items()):
            await self.feed.stop()


def run(feed: Feed, taken: Taken | None = None) -> None:
    """Run the feed to its end, at most ten seconds."""
    if taken is not None:
        taken.feed = feed

    async def main() -> None:
        async with asyncio.timeout(10):
            await feed.run()

    asyncio.run(main())


def test_reads_all_topics_from_their_offsets(url: str) -> None:
    """Each topic starts at its own next offset, and batches are bounded."""
    fill(url, "pods", 2 * BATCH_MAX + 1)
    fill(url, "nodes", 3)
    taken = Taken({"pods": 2 * BATCH_MAX + 1, "nodes": 3})
    run(Feed(url, "role", {"pods": 7, "nodes": 1}, taken), taken)
    assert list(range(7, 2 * BATCH_MAX + 1)) == taken.offsets["pods"]
    assert [1, 2] == taken.offsets["nodes"]
    assert BATCH_MAX == max(taken.batches)


@given(st.lists(st.integers(0, 39), max_size=120), st.integers(0, 40))
def test_any_deliveries_give_the_log(hinted: list[int], start: int) -> None:
    """Stale, doubled, missing and disordered deliveries all end in the same exact sequence."""
    name = uuid4().hex
    url = f"memory://{name}"
    try:
        records = fill(url, "pods", 40) + fill(url, "nodes", 1)
        taken = Taken({"pods": 40, "nodes": 1})
        feed = Feed(url, "role", {"pods": start, "nodes": 0}, taken)

        async def main() -> None:
            for offset in hinted:
                await feed.hint(records[offset])
            taken.feed = feed
            async with asyncio.timeout(10):
                await feed.run()

        asyncio.run(main())
        assert list(range(start, 40)) == taken.offsets["pods"]
    finally:
        drop_memory_log(name)


def test_hints_are_bounded(url: str) -> None:
    """More deliveries than the feed keeps cost no record: they are read from the log."""
    count = HINTS_MAX + 100
    records = fill(url, "pods", count)
    taken = Taken({"pods": count})
    feed = Feed(url, "role", {"pods": 0}, taken)

    async def main() -> None:
        for record in records:
            await feed.hint(record)
        taken.feed = feed
        await feed.run()

    asyncio.run(main())
    assert list(range(count)) == taken.offsets["pods"]


def test_an_append_wakes_a_resting_feed(url: str) -> None:
    """What is appended while the feed rests comes within a fraction of the slow poll."""
    taken = Taken({"pods": 1})
    feed = taken.feed = Feed(url, "role", {"pods": 0}, taken)

    async def main() -> None:
        running = asyncio.create_task(feed.run())
        await asyncio.sleep(0.1)
        fill(url, "pods", 1)
        async with asyncio.timeout(5):
            await running

    asyncio.run(main())
    assert [0] == taken.offsets["pods"]


def test_reposition_goes_back_and_forth(url: str) -> None:
    """A role may move a topic from inside its callback; deliveries of before do not count."""
    records = fill(url, "pods", 10)
    seen: list[int] = []

    async def on_records(topic: str, batch: list[LogRecord]) -> None:
        seen.extend(record.offset for record in batch)
        if seen == list(range(10)):
            for record in records[4:6]:
                await feed.hint(record)
            feed.reposition("pods", 2)
        elif len(seen) == 18:
            feed.reposition("pods", 9)
        elif len(seen) == 19:
            await feed.stop()

    feed = Feed(url, "role", {"pods": 0}, on_records)
    run(feed)
    assert [*range(10), *range(2, 10), 9] == seen


def test_error_of_the_role_ends_the_feed(url: str) -> None:
    """What the callback raises comes out of `run`, and the record counts as handed on."""
    fill(url, "pods", 3)

    async def on_records(topic: str, records: list[LogRecord]) -> None:
        raise Fatal("journal differs at 7")

    feed = Feed(url, "role", {"pods": 0}, on_records)
    with pytest.raises(Fatal, match="differs at 7"):
        run(feed)
    assert {"pods": 3} == feed.next_offsets()


def test_trimmed_history_is_fatal(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that retention has taken is named; nothing is skipped in silence."""
    fill(url, "pods", 10)
    whole = MemoryReader.read

    def trimmed(self: MemoryReader, topic: str, offset: int, *rest: int) -> list[LogRecord]:
        return whole(self, topic, max(offset, 4), *rest)

    monkeypatch.setattr(MemoryReader, "read", trimmed)
    taken = Taken({"pods": 10})
    with pytest.raises(Fatal, match="pods: offset 2 is gone"):
        run(Feed(url, "role", {"pods": 2}, taken), taken)
    assert [] == taken.offsets["pods"]


def test_log_that_does_not_answer_is_asked_again(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A feed outlives a log that is away for a while."""
    fill(url, "pods", 3)
    whole, failures = MemoryReader.read, [Unavailable("away"), Unavailable("still away")]

    def flaky(self: MemoryReader, topic: str, offset: int, *rest: int) -> list[LogRecord]:
        if failures:
            raise failures.pop()
        return whole(self, topic, offset, *rest)

    monkeypatch.setattr(MemoryReader, "read", flaky)
    taken = Taken({"pods": 3})
    run(Feed(url, "role", {"pods": 0}, taken), taken)
    assert [0, 1, 2] == taken.offsets["pods"]


def test_a_log_that_lost_its_end_ends_the_feed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its offsets are given out again, and what stands there now does not follow what was read."""
    monkeypatch.setattr("streams.feed.CHECK_S", 0.0)
    fill(url, "journal", 3)

    async def cut(_topic: str, _records: list[LogRecord]) -> None:
        cut_memory_log(url.removeprefix("memory://"), "journal", 1)
        open_writer(url).append_many([("journal", None, b"x"), ("journal", None, b"y")])

    with pytest.raises(Fatal, match="journal: offset 2 holds another entry"):
        run(Feed(url, "test", {"journal": 0}, cut))


class App:
    """As much of Faust's as a feed without tables asks for."""

    tables: tuple[str, ...] = ()
    crashed = False
    crash_reason: BaseException | None = None
    conf = SimpleNamespace(id="test.role")
    consumer = SimpleNamespace(assignment=frozenset)

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        """It runs no more."""


def test_an_app_that_cannot_be_stopped_does_not_end_the_service(url: str) -> None:
    """At a takeover feeds are exchanged while brokers may be away; the old one's App is needed no more."""

    class Stuck(App):
        async def stop(self) -> None:
            raise ConnectionError("no broker")

    fill(url, "pods", 3)
    taken = Taken({"pods": 3})
    feed = Feed(url, "role", {"pods": 0}, taken)
    feed.app = Stuck()
    run(feed, taken)
    assert [0, 1, 2] == taken.offsets["pods"]


def test_an_app_that_dies_while_it_is_asked_is_missed_and_not_needed(url: str) -> None:
    """Its consumer raises whatever it likes then, and what it cancels of its own is not ours."""

    class Dying(App):
        asked = 0

        @property
        def consumer(self) -> Any:  # type: ignore[override]
            self.asked += 1
            self.crashed = True
            raise RuntimeError("not yet started")

    class Cancelled(App):
        async def start(self) -> None:
            raise asyncio.CancelledError

    for app in (Dying(), Cancelled()):
        fill(url, "pods", 3)
        taken = Taken({"pods": 6})
        feed = Feed(url, "role", {"pods": 0}, taken)
        feed.app = app
        threading.Timer(0.2, fill, (url, "pods", 3)).start()
        run(feed, taken)
        assert feed.app_lost
        drop_memory_log(url.removeprefix("memory://"))


def test_tables_are_not_waited_for_of_an_app_that_has_died(url: str) -> None:
    """Faust's `start` returns as if all was well when the App died meanwhile; its tables must not be mended then."""

    class Tables(App):
        tables = ("pods",)

    class Crashed(Tables):
        crashed = True

    class Cancelled(Tables):
        async def start(self) -> None:
            raise asyncio.CancelledError

    async def on_ready() -> None:
        raise AssertionError("mended")

    for app in (Crashed(), Cancelled()):
        feed = Feed(url, "role", {"pods": 0}, Taken({"pods": 1}), on_ready=on_ready)
        feed.app = app
        with pytest.raises(Unavailable, match="died"):
            run(feed)


def test_a_stop_while_an_app_is_stopped_is_not_lost(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Faust passes over a cancellation: the feed was begun anew, and a clean stop waited for ever."""
    monkeypatch.setattr("streams.feed.STOP_S_MAX", 5.0)

    class Slow(App):
        tables = ("pods",)
        crashed = True

        async def stop(self) -> None:
            stopping.set()
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(30)

    stopping = asyncio.Event()

    async def story() -> None:
        feed = Feed(url, "role", {"pods": 0}, Taken({"pods": 1}))
        feed.app = Slow()
        running = asyncio.create_task(feed.run())
        await stopping.wait()
        running.cancel()
        await asyncio.wait([running], timeout=1)
        assert running.cancelled()

    asyncio.run(story())


def test_an_app_that_never_stops_is_left_behind(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its role would never read on."""
    monkeypatch.setattr("streams.feed.STOP_S_MAX", 0.05)

    class Never(App):
        async def stop(self) -> None:
            await asyncio.Event().wait()

    fill(url, "pods", 3)
    taken = Taken({"pods": 3})
    feed = Feed(url, "role", {"pods": 0}, taken)
    feed.app = Never()
    run(feed, taken)
    assert [0, 1, 2] == taken.offsets["pods"]
