"""A new leader reads thousands of records at once: none of its roles takes more than one in a turn of the event loop,
for the Lease is renewed in the same loop.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from schemas.topics import DECISIONS
from streams.chain import DecisionChain
from streams.log import LogRecord
from streams.log_memory import drop_memory_log
from streams.projector import TABLES, Projector
from streams.recovery import recover
from streams.roles import Leadership, SequencerRole
from streams.sink.role import SinkRole
from streams.tables import TablesRole
from streams.translate import to_state
from tests.unit.streams.pipeline import DeciderRole, Log, pod, settle
from tests.unit.streams.pipeline import SequencerRole as Steps

RECORDS = 30


@pytest.fixture
def log() -> Log:
    """A memory log with decided records."""
    drop_memory_log("turns")
    log = Log("turns")
    log.sync_all()
    sequencer, decider = Steps(log), DeciderRole(log)
    for number in range(RECORDS):
        log.publish("pods", pod(f"p{number}"))
        settle(log, sequencer, decider, 1_000 * number)
    return log


async def _most_in_a_turn(work: Awaitable[None], done: Callable[[], int]) -> int:
    """The most that `done` grew by in one turn of the loop while `work` ran."""
    steps: list[int] = []

    async def count() -> None:
        while True:
            before = done()
            await asyncio.sleep(0)
            steps.append(done() - before)

    counting = asyncio.create_task(count())
    await asyncio.sleep(0)
    await work
    counting.cancel()
    return max(steps)


def _decisions(log: Log) -> list[LogRecord]:
    found = log.reader.read(DECISIONS, 0, 1_000)
    assert len(found) >= RECORDS
    return found


def test_the_projector_takes_one_decision_a_turn(log: Log) -> None:
    """And all of them in the end."""
    role = TablesRole(Projector(to_state(None)), 0)
    tables: dict[str, dict[bytes, bytes]] = {name: {} for name in TABLES}
    role.attach(tables)
    records = _decisions(log)
    work = role.on_records(DECISIONS, records)
    assert 1 == asyncio.run(_most_in_a_turn(work, lambda: role.projector.state.sequence))
    assert (len(records), RECORDS) == (role.projector.state.sequence, len(tables["pods"]))


def test_the_sink_takes_one_decision_a_turn(log: Log) -> None:
    """Fed by its feed, and when it reads to the end for a Lease."""
    role = SinkRole(
        None,
        log.reader,
        chain=DecisionChain(),
        offset=0,
        on_resync=lambda _: None,
        still_waits=lambda _: True,
    )
    records = _decisions(log)

    def taken() -> int:
        return role.next_offsets()[DECISIONS]

    half = RECORDS // 2
    assert 1 == asyncio.run(_most_in_a_turn(role.on_records(DECISIONS, records[:half]), taken))
    assert 1 == asyncio.run(_most_in_a_turn(role.read_to_end(), taken))
    assert len(records) == taken()


def test_the_sequencer_takes_one_message_a_turn(log: Log) -> None:
    """Of a batch that a feed hands on at once."""
    found = recover(log.history())
    sequencer = found.sequencer()
    role = SequencerRole(
        sequencer,
        log.writer,
        log.reader,
        Leadership(always=True),
        journal_offset=found.decider.journal_offset,
        decisions_offset=found.decider.decisions_offset,
    )
    for number in range(RECORDS):
        log.publish("pods", pod(f"late{number}"))
    wanted = sequencer.wanted("pods")
    records = log.reader.read("pods", wanted, 1_000)

    async def play() -> int:
        running = asyncio.create_task(role.run())
        while role.clock_offset_us(0) is None:  # noqa: ASYNC110  (until it has taken the lead)
            await asyncio.sleep(0.001)
        most = await _most_in_a_turn(
            role.on_records("pods", records), lambda: sequencer.wanted("pods")
        )
        running.cancel()
        return most

    assert 1 == asyncio.run(play())
    assert wanted + RECORDS == sequencer.wanted("pods")
