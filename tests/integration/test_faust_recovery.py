"""Faust Apps on the embedded log and on real Kafka: kills, restarts at a position, lost races."""

import asyncio
import json
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.feed import Feed
from streams.log import LogRecord, create_topics, open_reader, open_writer
from tests.integration.faust_role import ROWS, fold
from tests.integration.kafka_broker import KafkaAddress, LocalBroker

#: How often a role is killed: a few times always, twenty times in `make acceptance`.
KILLS = pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.acceptance)])


def inputs_for(kills: int) -> int:
    """More inputs than the role can fold before the last kill."""
    return 250 * (kills + 1)


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)], name="url")
def a_log(request: pytest.FixtureRequest, tmp_path: Path, prefix: str) -> Iterator[str]:
    """The address of an empty log: embedded, or on a real broker."""
    if request.param == "embedded":
        yield f"embedded://{tmp_path}/log?prefix={prefix}"
    else:
        kafka: KafkaAddress = request.getfixturevalue("kafka")
        url = f"{kafka.url}?prefix={prefix}"
        create_topics(url)
        yield url


def start_role(url: str, datadir: Path, count: int, *options: str) -> "subprocess.Popen[str]":
    """The role of `faust_role.py` in its own process."""
    command = [sys.executable, "-m", "tests.integration.faust_role", url, str(datadir)]
    return subprocess.Popen(
        [*command, "--count", str(count), "--feed", str(count), *options],
        stdout=subprocess.PIPE,
        text=True,
    )


def run_role(url: str, datadir: Path, count: int, *options: str) -> str:
    """Run the role to its end; returns what it printed last."""
    with start_role(url, datadir, count, *options) as process:
        try:
            printed, _ = process.communicate(timeout=120)
        finally:
            process.kill()
    assert 0 == process.returncode
    return printed.splitlines()[-1]


def read_all(url: str, topic: str) -> list[LogRecord]:
    reader = open_reader(url)
    found: list[LogRecord] = []
    while chunk := reader.read(topic, len(found), 1000):
        found += chunk
    reader.close()
    return found


def check_outputs(url: str, count: int) -> None:
    """One output for each input, in order, each with the right hash."""
    inputs, hashed = read_all(url, "pods"), ""
    outputs = [json.loads(record.value or b"") for record in read_all(url, "decisions")]
    assert count == len(inputs)
    assert list(range(count)) == [output["offset"] for output in outputs]
    for record, output in zip(inputs, outputs, strict=True):
        hashed = fold(hashed, record.value)
        assert hashed == output["hash"]


def kill_often(url: str, datadir: Path, kills: int, *options: str) -> None:
    """Start the role and SIGKILL it, several times, while inputs keep coming."""
    chance = random.Random(7)
    for _ in range(kills):
        with start_role(url, datadir, inputs_for(kills), *options) as process:
            assert process.stdout is not None
            for _ in range(chance.randint(1, 8)):
                assert process.stdout.readline(), "the role ended by itself"
            time.sleep(chance.uniform(0, 0.05))
            process.send_signal(signal.SIGKILL)


@KILLS
def test_fold_is_exact_after_kills(url: str, tmp_path: Path, kills: int) -> None:
    """Killed again and again, the role has folded each record once, with nothing left out."""
    count = inputs_for(kills)
    kill_often(url, tmp_path / "data", kills)
    run_role(url, tmp_path / "data", count)
    check_outputs(url, count)
    print(f"{kills} kills: {count} records, each folded once")


@KILLS
def test_table_is_exact_after_kills(url: str, tmp_path: Path, kills: int) -> None:
    """A Faust table written by a killed role ends as a fold from scratch would write it."""
    datadir, count = tmp_path / "data", inputs_for(kills)
    kill_often(url, datadir, kills, "--table")
    table = json.loads(run_role(url, datadir, count, "--table"))
    check_outputs(url, count)
    wanted = {f"row{offset % ROWS}": offset for offset in range(count)} | {"next": count}
    assert wanted == table
    shutil.rmtree(datadir)
    assert wanted == json.loads(run_role(url, datadir, count, "--table"))
    print(f"{kills} kills: {count} records, {len(wanted)} rows as a fold from scratch writes them")


class Collected:
    """A feed that keeps the offsets it was handed."""

    def __init__(self, url: str, datadir: Path, start: int = 0) -> None:
        self.offsets: list[int] = []
        self._end = 0
        self._reached = asyncio.Event()
        self.feed = Feed(url, "role", {"pods": start}, self._take, datadir=datadir)

    async def _take(self, topic: str, records: list[LogRecord]) -> None:
        self.offsets += [record.offset for record in records]
        if len(self.offsets) >= self._end:
            self._reached.set()

    async def reach(self, end: int, within_s: float = 30) -> None:
        self._end = end
        self._reached.clear()
        if len(self.offsets) < end:
            async with asyncio.timeout(within_s):
                await self._reached.wait()


def test_two_apps_of_one_role_each_get_everything(url: str, tmp_path: Path) -> None:
    """Rebalances between two members of one group lose and repeat nothing for either."""

    async def main() -> None:
        writer = open_writer(url)
        one, two = (Collected(url, tmp_path / name) for name in ("one", "two"))
        appended = 0
        tasks = [asyncio.create_task(one.feed.run())]
        for turn in range(60):
            if turn == 15:
                tasks.append(asyncio.create_task(two.feed.run()))
            if turn == 40:
                await one.feed.stop()
                await tasks[0]
            await asyncio.to_thread(writer.append_many, [("pods", None, b"x")] * 10)
            appended += 10
            await asyncio.sleep(0.05)
        await two.reach(appended)
        await two.feed.stop()
        await tasks[1]
        writer.close()
        assert list(range(appended)) == two.offsets
        assert list(range(len(one.offsets))) == one.offsets
        assert len(one.offsets) >= 390

    asyncio.run(main())


def test_restart_at_a_position_and_several_apps_in_one_loop(url: str, tmp_path: Path) -> None:
    """Feeds of several roles share a process and a loop; each starts where it is told to."""

    async def main() -> None:
        writer = open_writer(url)
        writer.append_many([("pods", None, b"x")] * 100)
        feeds = {start: Collected(url, tmp_path / str(start), start) for start in (0, 42, 100)}
        tasks = [asyncio.create_task(each.feed.run()) for each in feeds.values()]
        await feeds[0].reach(100)
        await asyncio.to_thread(writer.append_many, [("pods", None, b"x")] * 7)
        for start, each in feeds.items():
            await each.reach(107 - start)
            await each.feed.stop()
        await asyncio.gather(*tasks)
        writer.close()
        for start, each in feeds.items():
            assert list(range(start, 107)) == each.offsets

    asyncio.run(main())


@pytest.mark.kafka
def test_feed_outlives_its_broker(
    breakable_kafka: LocalBroker, tmp_path: Path, prefix: str
) -> None:
    """A broker that dies and comes back costs time, no record; the writer's outcomes hold."""
    url = f"{breakable_kafka.address.url}?prefix={prefix}"
    create_topics(url)

    async def main() -> None:
        writer = open_writer(url)
        collected = Collected(url, tmp_path / "data")
        running = asyncio.create_task(collected.feed.run())
        await asyncio.to_thread(writer.append_many, [("pods", None, b"before")] * 50)
        await collected.reach(50)
        await asyncio.to_thread(breakable_kafka.kill)
        late = asyncio.create_task(
            asyncio.to_thread(writer.append_many, [("pods", None, b"during")] * 50)
        )
        await asyncio.sleep(2)
        await asyncio.to_thread(breakable_kafka.start)
        assert list(range(50, 100)) == await late
        await collected.reach(100)
        await collected.feed.stop()
        await running
        writer.close()
        assert list(range(100)) == collected.offsets

    asyncio.run(main())
