"""The roles as services on a memory log: leading, standing by, taking over, a backlog, a clean stop."""

import asyncio
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from schemas.errors import Fatal, Unavailable
from schemas.topics import CHECKPOINTS, DEADLETTER, DECISIONS, JOURNAL
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.feed import Feed
from streams.history import Start, accepted_records
from streams.log import Entry, LogRecord
from streams.log_memory import MemoryReader, drop_memory_log
from streams.recovery import recover
from streams.roles import DeciderRole, Leadership, SequencerRole
from streams.sequencer import Sequencer
from streams.verify import verify
from tests.unit.streams.pipeline import Log, message, node, pod
from tests.unit.streams.pipeline import SequencerRole as Steps


class Process:
    """Sequencer and decider as one process would run them."""

    def __init__(self, log: Log, *, always: bool = True) -> None:
        self.log = log
        self.leadership = Leadership(always=always)
        found = recover(log.history())
        self.sequencer = SequencerRole(
            found.sequencer(),
            log.writer,
            log.reader,
            self.leadership,
            journal_offset=found.decider.journal_offset,
            decisions_offset=found.decider.decisions_offset,
        )
        checkpointer = Checkpointer(CheckpointStore(log.reader), log.writer)
        self.decider = DeciderRole(found.decider, log.writer, self.leadership, checkpointer)

    async def __aenter__(self) -> "Process":
        feeds = [
            Feed(self.log.url, "role", role.next_offsets(), role.on_records)
            for role in (self.sequencer, self.decider)
        ]
        self.sequencer.reposition = feeds[0].reposition
        work = [feed.run() for feed in feeds] + [self.sequencer.run(), self.decider.run()]
        self._tasks = [asyncio.create_task(each) for each in work]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome


async def until(holds: Callable[[], object], seconds: float = 10.0) -> None:
    """Waits until `holds()` is true."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  (what it waits for has no event)
            await asyncio.sleep(0.01)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Log:
    """A memory log of this test alone."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name)
    drop_memory_log(name)
    return Log(name)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 30))


def taken(log: Log) -> list[str]:
    """Names of the pods in the journal, in order."""
    return [
        seen["name"]
        for _, data in accepted_records(log.history(), Start())
        for seen in json.loads(data)["observations"]
        if seen["kind"] == "PodObserved"
    ]


def test_a_leader_sequences_decides_and_leaves_a_checkpoint(log: Log) -> None:
    """What is published is decided; a clean stop leaves a checkpoint that the next start uses."""

    async def story() -> None:
        log.sync_all()
        async with Process(log) as process:
            log.publish("nodes", node("n1"))
            log.publish("pods", pod("a"))
            await until(lambda: process.decider.decider.state.pods)
            await until(lambda: not process.decider.decider.unpublished())
        await process.decider.finish(log.reader)
        assert process.decider.decider.sequence == recover(log.history()).started_at

    play(story)
    assert (None, 0) == (verify(log.history()).difference, verify(log.history()).undecided)


def test_decisions_that_were_left_unpublished_are_published_at_the_start(log: Log) -> None:
    """Killed between record and decision: the next one publishes it, though nothing else happens."""
    sequencer = Sequencer()
    record = sequencer.build(time.time_ns() // 1_000)
    log.writer.append(JOURNAL, None, record)

    async def story() -> None:
        async with Process(log):
            await until(lambda: log.values(DECISIONS))

    play(story)
    assert [record] == log.values(JOURNAL)
    assert 1 == len(log.values(DECISIONS))


def test_a_standby_writes_the_genesis_and_nothing_else_until_it_leads(log: Log) -> None:
    """An empty log needs its first record before there can be a Lease; intake waits for the leader."""

    async def story() -> None:
        async with Process(log, always=False) as process:
            await until(lambda: log.values(JOURNAL))
            log.publish("pods", pod("a"))
            await asyncio.sleep(0.2)
            assert (1, 0) == (len(log.values(JOURNAL)), len(log.values(DECISIONS)))
            process.leadership.acquire()
            await until(lambda: len(log.values(DECISIONS)) == 2)

    play(story)
    assert ["a"] == taken(log)


def test_a_standby_writes_no_checkpoint(log: Log) -> None:
    """Not when one is due, and not at a clean stop: the leader writes them."""

    async def story() -> None:
        async with Process(log, always=False) as leader, Process(log, always=False) as standby:
            store = CheckpointStore(log.reader)
            standby.decider.checkpointer = Checkpointer(store, log.writer, records=1)
            leader.leadership.acquire()
            log.publish("nodes", node("n1"))
            await until(lambda: "n1" in standby.decider.decider.state.nodes)
            await until(lambda: not standby.decider.decider.unpublished())
        await standby.decider.finish(log.reader)
        assert [] == log.values(CHECKPOINTS)
        await leader.decider.finish(log.reader)
        assert log.values(CHECKPOINTS)

    play(story)


def test_a_stop_while_the_log_is_away_is_a_clean_one(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the checkpoint is missing, which is a shortcut; the next start does without."""

    async def story() -> None:
        log.sync_all()
        async with Process(log) as process:
            await until(lambda: process.decider.decider.sequence > 1)
            await until(lambda: not process.decider.decider.unpublished())

        def away(*_: object) -> list[LogRecord]:
            raise Unavailable("no broker")

        with monkeypatch.context() as patched:
            patched.setattr(MemoryReader, "read", away)
            await process.decider.finish(log.reader)

    play(story)
    assert [] == log.values(CHECKPOINTS)
    assert 0 == recover(log.history()).started_at


def test_a_stop_while_a_checkpoint_waits_for_the_one_before_is_a_clean_one(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed that waited took the write along when it was cancelled, and that write's end ended the stop."""
    slow = threading.Event()
    whole = CheckpointStore.write

    def write(self: CheckpointStore, *rest: Any) -> None:
        slow.wait(5)
        whole(self, *rest)

    async def story() -> None:
        log.sync_all()
        async with Process(log) as process:
            await until(lambda: not process.decider.decider.unpublished())
            store = CheckpointStore(log.reader)
            process.decider.checkpointer = Checkpointer(store, log.writer, records=1)
            monkeypatch.setattr(CheckpointStore, "write", write)
            for number in range(3):
                log.publish("nodes", node(f"n{number}"))
                await asyncio.sleep(0.1)
        slow.set()
        await process.decider.finish(log.reader)

    play(story)
    assert log.values(CHECKPOINTS)


def test_a_standby_knows_of_the_leaders_checkpoints(log: Log) -> None:
    """Else its metrics would say that none gets written, and the alert would ring for every standby."""

    async def story() -> None:
        async with Process(log, always=False) as leader, Process(log, always=False) as standby:
            for process in (leader, standby):
                store = CheckpointStore(log.reader)
                process.decider.checkpointer = Checkpointer(store, log.writer, records=1)
            leader.leadership.acquire()
            for number in range(3):
                log.publish("nodes", node(f"n{number}"))
                await until(lambda n=number: f"n{n}" in standby.decider.decider.state.nodes)
                await until(lambda: not standby.decider.decider.unpublished())
                await until(lambda: leader.decider.checkpointer.newest is not None)
            await until(lambda: standby.decider.checkpointer.newest is not None)

    play(story)


def test_a_take_over_goes_on_where_the_journal_stands(log: Log) -> None:
    """The old leader lost its Lease, the new one writes: the old one stands by, and nothing is taken twice."""

    async def story() -> None:
        async with Process(log, always=False) as old, Process(log, always=False) as new:
            old.leadership.acquire()
            log.publish("pods", pod("a"))
            await until(lambda: taken(log) == ["a"])
            old.leadership.lose()
            log.publish("pods", pod("b"))
            await until(lambda: taken(log) == ["a", "b"])
            new.leadership.acquire()
            for name in "cdef":
                log.publish("pods", pod(name))
                await until(lambda name=name: name in taken(log))
            await until(lambda: not old.leadership.active)
            log.publish("pods", pod("g"))
            await until(lambda: "g" in taken(log))

    play(story)
    assert list("abcdefg") == taken(log)
    assert None is verify(log.history()).difference


def test_time_goes_on_after_a_record_from_a_clock_ahead(log: Log) -> None:
    """A deposed leader whose clock is an hour ahead wrote one more: time runs on from there, at half speed."""
    log.sync_all()
    old = Steps(log)
    old.take_intake()
    assert old.append(1_000_000)
    found = recover(log.history())
    role = SequencerRole(
        found.sequencer(),
        log.writer,
        log.reader,
        Leadership(always=True),
        journal_offset=found.decider.journal_offset,
        decisions_offset=0,
    )

    async def story() -> None:
        running = asyncio.create_task(role.run())
        await until(lambda: role.clock_offset_us(0) is not None)
        log.publish("pods", pod("a"))
        old.read()
        old.take_intake()
        ahead_us = time.time_ns() // 1_000 + 3_600_000_000
        assert old.append(ahead_us)
        begin = role.next_offsets()[JOURNAL]
        await role.on_records(JOURNAL, log.reader.read(JOURNAL, begin, 10))
        assert role.sequencer.timestamp_us == ahead_us
        before_us = role.clock_offset_us(0) or 0
        await asyncio.sleep(0.05)
        assert before_us + 20_000 <= (role.clock_offset_us(0) or 0)
        running.cancel()

    play(story)


def test_a_backlog_larger_than_memory_allows_is_taken_whole(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More waits on a topic than may be held: it is taken piece by piece, while records are read back."""
    monkeypatch.setattr("streams.sequencer.BACKLOG_OBSERVATIONS_MAX", 10)
    names = [f"p{index}" for index in range(300)]
    for name in names:
        log.publish("pods", pod(name))

    async def story() -> None:
        async with Process(log):
            await until(lambda: len(taken(log)) == 300)

    play(story)
    assert names == taken(log)


def test_an_append_whose_outcome_is_unknown_is_tried_again(log: Log) -> None:
    """Once it did not arrive, once it did: every message is in the journal once."""
    write, tries = log.writer.append_many, []

    def append_many(entries: list[Entry]) -> list[int]:
        tries.append(entries)
        if len(tries) == 3:
            raise Unavailable("the broker did not answer")
        offsets = write(entries)
        if len(tries) == 5:
            raise Unavailable("the answer was lost")
        return offsets

    log.writer.append_many = append_many  # type: ignore[method-assign,assignment]
    write([("pods", None, None)])

    async def story() -> None:
        async with Process(log):
            for name in ("a", "b", "c", "d"):
                write([("pods", None, message(pod(name)))])
                await until(lambda name=name: name in taken(log))
            await until(lambda: verify(log.history()).undecided == 0)

    play(story)
    assert ["a", "b", "c", "d"] == taken(log)
    assert None is verify(log.history()).difference
    assert 1 == len(log.values(DEADLETTER))
    assert [] == log.values(CHECKPOINTS)


@pytest.mark.parametrize("topic", [JOURNAL, DECISIONS])
def test_an_append_that_the_log_loses_again_stops_its_writer(
    log: Log, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was acknowledged and never comes back: appended again, its offset is given out twice."""
    monkeypatch.setattr("streams.roles.READ_BACK_S", 0.2)
    write, lost = log.writer.append_many, []

    def append_many(entries: list[Entry]) -> list[int]:
        if entries[0][0] == topic and log.reader.end_offset(topic) == 1 and not lost:
            lost.append(topic)
            return [1 + number for number in range(len(entries))]
        return write(entries)

    log.writer.append_many = append_many  # type: ignore[method-assign,assignment]

    async def story() -> None:
        process = Process(log)
        async with process:
            await until(lambda: log.reader.end_offset(topic) == 1)
            write([("pods", None, message(pod("a")))])
            await until(lambda: any(task.done() for task in process._tasks))

    with pytest.raises(Fatal, match=f"{topic}: offset 1 was given out again") as found:
        play(story)
    assert "decisions_ahead" == found.value.cause
