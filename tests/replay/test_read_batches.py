"""How a reader chunks its reads is no part of history: the decider on a real feed, read in batches of many sizes."""

import asyncio
from collections.abc import Sequence

import pytest

from schemas.topics import DECISIONS, JOURNAL
from state.model.state import State
from streams import feed as feeds
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.decider import Decider
from streams.feed import Feed
from streams.log import LogRecord, open_reader, open_writer
from streams.log_memory import drop_memory_log
from streams.roles import DeciderRole, Leadership
from tests.replay.journals import GOLDEN, load


@pytest.mark.parametrize("batch", [1, 3, 50, 500])
def test_the_same_decisions_whatever_the_size_of_a_read(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every decision of the golden journal is published with its recorded bytes, once and in order."""
    monkeypatch.setattr(feeds, "BATCH_MAX", batch)
    golden, name = load(GOLDEN), f"memory://batches{batch}"
    drop_memory_log(f"batches{batch}")
    writer, reader = open_writer(name), open_reader(name)
    writer.append_many([(JOURNAL, None, data) for data in golden.records])
    sizes: list[int] = []

    async def run() -> None:
        checkpointer = Checkpointer(CheckpointStore(reader), writer)
        role = DeciderRole(Decider(State()), writer, Leadership(always=True), checkpointer)

        async def note(topic: str, records: Sequence[LogRecord]) -> None:
            if topic == JOURNAL:
                sizes.append(len(records))
            await role.on_records(topic, records)

        feed = Feed(name, "decider", role.next_offsets(), note)
        tasks = [asyncio.create_task(feed.run()), asyncio.create_task(role.run())]
        async with asyncio.timeout(60):
            while role.decider.decisions.sequence < len(golden.records):
                await asyncio.sleep(0.01)
                assert not any(task.done() for task in tasks)
        await feed.stop()
        await tasks[0]
        tasks[1].cancel()

    asyncio.run(run())
    published = [each.value for each in reader.read(DECISIONS, 0, 10_000)]
    assert (golden.decisions, len(golden.records)) == (published, sum(sizes))
    assert max(sizes) == min(batch, len(golden.records))
