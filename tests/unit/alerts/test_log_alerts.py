"""What goes wrong with the log, its roles and their machine, and the alert that says so."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from schemas.errors import Fatal, LockstepError, Unavailable
from schemas.topics import CHECKPOINTS, DECISIONS, JOURNAL
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.decider import Decider
from streams.feed import Feed
from streams.log import Entry, LogRecord
from streams.log_memory import MemoryReader, drop_memory_log
from streams.metrics import Metrics
from streams.recovery import recover
from streams.roles import DeciderRole, Leadership, SequencerRole
from streams.sequencer import Sequencer
from streams.translate import to_state
from tests import builders
from tests.alerts import fires, parse, produces
from tests.unit.streams.pipeline import Log, node, pod

HOUR_US = 3_600_000_000


@pytest.fixture
def log() -> Iterator[Log]:
    """A memory log of this test alone."""
    name = uuid4().hex
    yield Log(name)
    drop_memory_log(name)


class Pair:
    """A sequencer and a decider on a log, moved by hand; metrics know them."""

    def __init__(self, log: Log, metrics: Metrics) -> None:
        self.log = log
        found = recover(log.history())
        leadership = Leadership(always=True)
        self.sequencer = SequencerRole(
            found.sequencer(),
            log.writer,
            log.reader,
            leadership,
            journal_offset=found.decider.journal_offset,
            decisions_offset=found.decider.decisions_offset,
        )
        checkpointer = Checkpointer(CheckpointStore(log.reader), log.writer)
        self.decider = DeciderRole(found.decider, log.writer, leadership, checkpointer)
        metrics.roles.sequencer, metrics.roles.decider = self.sequencer, self.decider

    async def move(self, *, publish: bool = True) -> None:
        """Intake to journal, journal to decisions, and back to both."""
        await self.sequencer._follow_leadership()
        for topic, offset in self.sequencer.next_offsets().items():
            found = self.log.reader.read(topic, offset, 1_000)
            if found:
                await self.sequencer.on_records(topic, found)
        await self.sequencer._append()
        await self._read(JOURNAL)
        if publish:
            await self.decider._publish()
        await self._read(DECISIONS)

    async def _read(self, topic: str) -> None:
        for role in (self.sequencer, self.decider):
            found = self.log.reader.read(topic, role.next_offsets()[topic], 1_000)
            if found:
                await role.on_records(topic, found)


def play(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(story(), 20))


@produces("LockstepDown")
def test_a_process_whose_roles_do_not_run_is_down(metrics: Metrics) -> None:
    """While it recovers, after it has stopped, and when nothing answers, no Lockstep runs."""
    assert fires("LockstepDown", metrics.render())
    assert fires("LockstepDown", b"")
    metrics.roles.running = True
    assert not fires("LockstepDown", metrics.render())


@produces("LockstepDecisionsLate")
def test_decisions_that_are_not_published_are_late(log: Log, metrics: Metrics) -> None:
    """Records go on, decisions do not: the lag is told in records and in log time, until they are there."""

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        before = metrics.render()
        log.publish("nodes", node("n1"))
        await asyncio.sleep(0.01)
        await pair.move(publish=False)
        late = metrics.render()
        assert {frozenset(): 1.0} == parse(late)["lockstep_decision_lag_records"]
        assert parse(late)["lockstep_decision_lag_seconds"][frozenset()] >= 0.01
        assert fires("LockstepDecisionsLate", late, late)
        await pair.move()
        assert not fires("LockstepDecisionsLate", before, metrics.render())
        assert {frozenset(): 0.0} == parse(metrics.render())["lockstep_decision_lag_seconds"]

    play(story)


def test_records_decisions_and_observations_are_counted(log: Log, metrics: Metrics) -> None:
    """One record of three observations after the genesis: appended, accepted, decided, published."""

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        log.publish("pods", pod("a"), pod("b"), pod("c"))
        log.writer.append(JOURNAL, None, b"junk")
        await pair.move()
        scrape = parse(metrics.render())
        for name, value in (
            ("lockstep_records_appended_total", 2),
            ("lockstep_journal_sequence", 2),
            ("lockstep_observations_appended_total", 3),
            ("lockstep_decisions_made_total", 2),
            ("lockstep_decisions_published_total", 2),
            ("lockstep_decisions_sequence", 2),
            ("lockstep_checkpoint_behind_records", 2),
        ):
            assert (name, {frozenset(): value}) == (name, scrape[name])
        skipped = scrape["lockstep_entries_skipped_total"]
        assert 1 == skipped[frozenset({("topic", "journal")})]

    play(story)


@produces("LockstepDeadLetters")
def test_a_message_that_nobody_can_read_is_a_dead_letter(log: Log, metrics: Metrics) -> None:
    """Its reason is counted, and the roles go on."""

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        before = metrics.render()
        log.writer.append("pods", None, b"not json")
        log.publish("nodes", node("n1"))
        await pair.move()
        after = metrics.render()
        assert fires("LockstepDeadLetters", before, after)
        assert not fires("LockstepDeadLetters", after, after)
        rejected = parse(after)["lockstep_messages_rejected_total"]
        assert 1 == rejected[frozenset({("reason", "NotJson")})]
        assert "n1" in pair.decider.decider.state.nodes

    play(story)


@pytest.mark.parametrize("off_us", [-5 * HOUR_US, 5 * HOUR_US], ids=["behind", "ahead"])
@produces("LockstepClockOff")
def test_a_clock_that_has_jumped_is_told_and_never_leaps_into_the_log(
    log: Log, metrics: Metrics, off_us: int
) -> None:
    """A log five hours behind or ahead of the wall clock: time goes on from the log's, and says how far it is off."""
    record = Sequencer().build(time.time_ns() // 1_000 + off_us)
    assert record is not None
    log.writer.append(JOURNAL, None, record)

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        log.publish("nodes", node("n1"))
        await pair.move()
        scrape = parse(metrics.render())
        offset_s = scrape["lockstep_clock_offset_seconds"][frozenset()]
        assert off_us / 1e6 == pytest.approx(offset_s, abs=10)
        assert {frozenset(): 1.0} == scrape["lockstep_clock_alarms_total"]
        assert fires("LockstepClockOff", metrics.render())

    play(story)


def test_a_clock_that_is_right_is_not_off(log: Log, metrics: Metrics) -> None:
    """A new log is stamped with the wall clock."""

    async def story() -> None:
        await Pair(log, metrics).move()
        assert not fires("LockstepClockOff", metrics.render())

    play(story)


@produces("LockstepCheckpointsOld")
@pytest.mark.parametrize("refusal", [Unavailable("no answer"), Fatal("the topic is gone")])
def test_checkpoints_that_cannot_be_written_grow_old_and_stop_nobody(
    log: Log, metrics: Metrics, monkeypatch: pytest.MonkeyPatch, refusal: LockstepError
) -> None:
    """Decisions go on; how much a restart would have to fold is told."""
    append = log.writer.append

    def refuse(topic: str, key: bytes | None, value: bytes | None) -> int:
        if topic == CHECKPOINTS:
            raise refusal
        return append(topic, key, value)

    log.writer.append = refuse  # type: ignore[method-assign]

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        log.publish("nodes", node("n1"))
        await pair.move()
        pair.decider.checkpointer.on_decided(pair.decider.decider.state, 2, force=True)
        await pair.decider._checkpoint_beside()
        assert pair.decider._writing is not None
        await pair.decider._writing
        scrape = parse(metrics.render())
        assert {frozenset(): 1.0} == scrape["lockstep_checkpoints_failed_total"]
        assert {frozenset(): 2.0} == scrape["lockstep_checkpoint_behind_records"]
        assert not fires("LockstepCheckpointsOld", metrics.render())
        monkeypatch.setattr(Decider, "sequence", 50_001)
        assert fires("LockstepCheckpointsOld", metrics.render())

    play(story)


def test_the_age_of_a_checkpoint_is_measured_in_log_time(log: Log, metrics: Metrics) -> None:
    """Eleven minutes of log after the newest one are too many; an idle log does not age."""

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        await pair.decider.finish(log.reader)
        assert not fires("LockstepCheckpointsOld", metrics.render())
        pair.decider.decider.state.timestamp_us += 11 * 60 * 1_000_000
        assert fires("LockstepCheckpointsOld", metrics.render())

    play(story)


@produces("LockstepLogUnavailable")
def test_a_log_that_does_not_answer_is_told_until_it_does(
    log: Log, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The feed tries again, says so, and goes on by itself."""
    read, away = MemoryReader.read, True

    def reading(self: MemoryReader, *arguments: Any) -> list[LogRecord]:
        if away:
            raise Unavailable("the broker is away")
        return read(self, *arguments)

    monkeypatch.setattr(MemoryReader, "read", reading)
    taken: list[LogRecord] = []

    async def take(topic: str, records: list[LogRecord]) -> None:
        taken.extend(records)

    async def story() -> None:
        nonlocal away
        log.publish("pods", pod("a"))
        feed = metrics.roles.feeds["sequencer"] = Feed(log.url, "sequencer", {"pods": 0}, take)
        running = asyncio.create_task(feed.run())
        await until(lambda: fires("LockstepLogUnavailable", metrics.render()))
        away = False
        await until(lambda: taken)
        assert not fires("LockstepLogUnavailable", metrics.render())
        await feed.stop()
        await running

    play(story)


@produces("LockstepFaustAppLost")
def test_a_feed_whose_app_has_died_goes_on_without_it(log: Log, metrics: Metrics) -> None:
    """An App that only hints is missed, not needed: its feed polls, and says so."""
    taken: list[LogRecord] = []

    async def take(topic: str, records: list[LogRecord]) -> None:
        taken.extend(records)

    async def stop() -> None:
        """Nothing to stop."""

    async def story() -> None:
        feed = metrics.roles.feeds["decider"] = Feed(log.url, "decider", {"pods": 0}, take)
        feed.app = SimpleNamespace(
            tables={},
            crashed=True,
            crash_reason=RuntimeError("the fetcher died"),
            conf=SimpleNamespace(id="decider"),
            start=stop,
            stop=stop,
        )
        running = asyncio.create_task(feed.run())
        await until(lambda: fires("LockstepFaustAppLost", metrics.render()))
        log.publish("pods", pod("a"))
        await until(lambda: taken)
        await feed.stop()
        await running
        counted = parse(metrics.render())["lockstep_feed_records_total"]
        assert 1 == counted[frozenset({("role", "decider"), ("source", "log")})]

    play(story)


@produces("LockstepChainStalled")
@pytest.mark.parametrize("reader", ["sequencer", "decider"])
def test_records_that_follow_nothing_for_half_a_minute_stop_a_reader(
    log: Log, metrics: Metrics, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flood of records that claim to come later is another writer's: the reader stops, and says what to do."""

    offered: list[LogRecord] = []

    async def flood(role: SequencerRole | DeciderRole) -> None:
        for second in range(40):
            monkeypatch.setattr("streams.roles.time.monotonic", lambda now=second: float(now))
            stray = b'{"sequence":%d,"prev":"none","timestamp_us":1}' % (second + 9)
            offset = log.writer.append(JOURNAL, None, stray)
            offered.extend(log.reader.read(JOURNAL, offset, 1))
            await role.on_records(JOURNAL, offered[-1:])

    async def story() -> None:
        pair = Pair(log, metrics)
        await pair.move()
        monkeypatch.setattr("streams.roles.time", SimpleNamespace(monotonic=time.monotonic))
        with pytest.raises(Fatal, match="stop other writers of this topic") as stop:
            await flood(getattr(pair, reader))
        assert 31 == len(offered)
        monkeypatch.undo()
        metrics.roles.stopped = stop.value.cause
        assert fires("LockstepChainStalled", metrics.render())

    play(story)


@produces("LockstepHistoryLost")
def test_a_hole_in_a_topic_that_is_never_compacted_stops_the_feed(
    log: Log, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention ate what was still to be read: nothing is skipped in silence."""
    for index in range(5):
        log.publish("pods", pod(f"p{index}"))
    read = MemoryReader.read
    monkeypatch.setattr(
        MemoryReader, "read", lambda self, topic, offset, *more: read(self, topic, 3, *more)
    )

    async def take(topic: str, records: list[LogRecord]) -> None:
        raise AssertionError("nothing may be handed on")

    async def story() -> None:
        with pytest.raises(Fatal, match="offset 0 is gone from the log") as stop:
            await Feed(log.url, "sequencer", {"pods": 0}, take).run()
        metrics.roles.stopped = stop.value.cause
        assert fires("LockstepHistoryLost", metrics.render())

    play(story)


@produces("LockstepDiskLow")
def test_a_disk_that_fills_up_is_told_before_it_is_full(
    tmp_path: Path, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Less than 2 GB where the log or the tables are; a folder that is not there yet counts by its parent."""
    metrics.roles.disks["log"] = tmp_path / "not" / "there" / "yet"
    for free, low in ((10**10, False), (10**9, True)):
        monkeypatch.setattr("shutil.disk_usage", lambda path, free=free: SimpleNamespace(free=free))
        assert low == fires("LockstepDiskLow", metrics.render())


def test_an_append_that_fails_is_counted_and_tried_again(log: Log, metrics: Metrics) -> None:
    """The sequencer goes on by itself when the log answers again."""
    write, tries = log.writer.append_many, []

    def append_many(entries: list[Entry]) -> list[int]:
        tries.append(entries)
        if len(tries) == 1:
            raise Unavailable("the broker did not answer")
        return write(entries)

    log.writer.append_many = append_many  # type: ignore[method-assign,assignment]

    async def story() -> None:
        pair = Pair(log, metrics)
        running = asyncio.create_task(pair.sequencer.run())
        await until(lambda: log.values(JOURNAL))
        running.cancel()
        assert {frozenset(): 1.0} == parse(metrics.render())["lockstep_appends_failed_total"]

    play(story)


@produces("LockstepEvictionsFutile")
def test_evictions_that_lead_nowhere_end_and_are_told(metrics: Metrics) -> None:
    """An owner puts its pod back on the node each time: after three the pod that wanted the room is told so."""
    core = builders.Core()
    core.see(builders.node("n", 100))
    writer: Any = None
    checkpointer: Any = SimpleNamespace(newest=None)
    decider = Decider(core.state)
    metrics.roles.decider = DeciderRole(decider, writer, Leadership(always=True), checkpointer)
    core.see(builders.pod("hog-0", 100, node="n", owner="ReplicaSet/hog"))
    core.see(builders.pod("claim", 100, spec={"priority": 10}))
    for round_ in range(3):
        assert not fires("LockstepEvictionsFutile", metrics.render())
        evictions = [c for d in core.decisions for c in d.commands if c.kind == "EvictPod"]
        assert f"hog-{round_}" == evictions[-1].name
        again = builders.pod(f"hog-{round_ + 1}", 100, node="n", owner="ReplicaSet/hog")
        core.see(builders.ended(evictions[-1].id))
        core.see(again, builders.gone("pods", f"hog-{round_}"))
    assert fires("LockstepEvictionsFutile", metrics.render())
    waiting = parse(metrics.render())["lockstep_waiting_pods"]
    assert {frozenset({("code", "EvictionFutile")}): 1.0} == waiting
    assert 3 == sum(c.kind == "EvictPod" for d in core.decisions for c in d.commands)


def test_an_empty_state_has_metrics(metrics: Metrics) -> None:
    """A decider alone, with nothing folded: every value is there."""
    decider = Decider(to_state(None))
    checkpointer: Any = SimpleNamespace(newest=None)
    writer: Any = None
    metrics.roles.decider = DeciderRole(decider, writer, Leadership(always=True), checkpointer)
    scrape = parse(metrics.render())
    assert {frozenset(): 0.0} == scrape["lockstep_journal_sequence"]
    assert "lockstep_records_appended_total" not in scrape


async def until(holds: Callable[[], object]) -> None:
    """Waits until `holds()` is true; the story's time limit bounds it."""
    while not holds():  # noqa: ASYNC110  (what it waits for has no event)
        await asyncio.sleep(0.01)
