"""What a log says after the fact, for tests of the whole service: tables against a refold, syncs against binds."""

import asyncio
import json
from pathlib import Path

from schemas.topics import DECISIONS, JOURNAL
from state.model.policy import needed_resources
from streams.feed import Feed
from streams.history import LogHistory
from streams.log import LogReader, open_reader
from streams.projector import Projector
from streams.recovery import recover
from streams.tables import TablesRole


def rows_that_differ(url: str, datadir: Path) -> int:
    """How many rows of the projector's tables below `datadir` differ from a fold of the log from scratch."""
    reader = open_reader(url)
    recovered = recover(LogHistory(reader, reader))
    role = TablesRole(Projector(recovered.decider.state), recovered.decider.decisions_offset)
    wrong: list[int] = []

    async def compare() -> None:
        async def mend() -> None:
            wrong.append(await role.mend(feed, 0))

        feed = Feed(
            url,
            "projector",
            role.next_offsets(),
            role.on_records,
            on_ready=mend,
            datadir=datadir / "projector",
        )
        role.declare(feed)
        running = asyncio.create_task(feed.run())
        while not wrong:
            await asyncio.sleep(0.05)
            assert not running.done() or running.result() is None
        await feed.stop()
        await running

    asyncio.run(compare())
    reader.close()
    assert role.projector.state.pods, "an empty log proves nothing"
    return wrong[0]


def first_bind(url: str) -> int:
    """Sequence of the first decision that binds."""
    reader = open_reader(url)
    for record in _all(reader, DECISIONS):
        decision = json.loads(record)
        if any(command["kind"] == "BindPod" for command in decision["commands"]):
            return int(decision["sequence"])
    raise AssertionError("nothing was bound")


def all_listed(url: str) -> int:
    """Sequence of the first record by which every needed resource has been listed, or found missing."""
    reader = open_reader(url)
    missing = dict.fromkeys(needed_resources(None))
    for data in _all(reader, JOURNAL):
        record = json.loads(data)
        for seen in record["observations"]:
            if seen["kind"] in ("SyncFinished", "KindAbsent"):
                missing.pop(seen["resource"], None)
        if not missing:
            return int(record["sequence"])
    raise AssertionError(f"never listed: {', '.join(missing)}")


def _all(reader: LogReader, topic: str) -> list[bytes]:
    end, found = reader.end_offset(topic), []
    while len(found) < end:
        found += [record.value or b"" for record in reader.read(topic, len(found), 500, 10.0)]
    reader.close()
    return found
