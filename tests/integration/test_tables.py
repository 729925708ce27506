"""The tables on RocksDB, through a real Faust App on the embedded log: equal to a fold, whatever was on disk."""

import asyncio
import shutil
from pathlib import Path

from schemas.topics import DECISIONS
from state.model.state import State
from state.snapshot import decode, encode
from streams.feed import Feed
from streams.log import create_topics, open_writer
from streams.projector import TABLES, Projector
from streams.tables import TablesRole
from tests.builders import Core, cards, gone, member, node, pod, podgroup

Rows = dict[str, list[tuple[str, bytes]]]


def _play() -> Core:
    core = Core()
    core.see(node("n1"), node("n2", gpus=2), topic="nodes")
    core.see(cards("n2", 2), topic="devices")
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(
        member("a", "g"), member("b", "g"), pod("gpu", spec={"requests": {"nvidia.com/gpu": 1}})
    )
    core.see(pod("late"), pod("gone"))
    core.see(gone("pods", "gone"))
    return core


def _wanted(core: Core) -> Rows:
    projector = Projector(State())
    for decision in core.decisions:
        projector.on_decision(decision.data)
    rows: Rows = {name: [] for name in TABLES}
    for table, key, row in projector.all_rows():
        if row is not None:
            rows[table].append((key, row))
    return rows


def _run(url: str, datadir: Path, until: int, state: State) -> tuple[Rows, int]:
    """Folds `decisions` after `state` into tables; their rows then, and how many were mended at the start."""
    role = TablesRole(Projector(state), state.sequence)
    mended: list[int] = []

    async def follow() -> Rows:
        async def mend() -> None:
            mended.append(await role.mend(feed, 0))

        feed = Feed(
            url,
            "projector",
            role.next_offsets(),
            role.on_records,
            on_ready=mend,
            datadir=datadir,
        )
        role.declare(feed)
        running = asyncio.create_task(feed.run())
        while not mended or role.next_offsets()[DECISIONS] < until:
            await asyncio.sleep(0.02)
            assert not running.done() or running.result() is None
        found = {name: role.items(name) for name in TABLES}
        await feed.stop()
        await running
        return found

    return asyncio.run(follow()), mended[0]


def test_tables_equal_a_fold_whatever_is_on_disk(tmp_path: Path) -> None:
    """After the first run, after a restart over full tables, and after the directory was removed."""
    core = _play()
    url = f"embedded://{tmp_path}/log"
    create_topics(url, 1)
    writer = open_writer(url)
    writer.append_many([(DECISIONS, None, decision.data) for decision in core.decisions])
    until, wanted, datadir = len(core.decisions), _wanted(core), tmp_path / "data"
    held = sum(map(len, wanted.values()))
    assert (wanted, 0) == _run(url, datadir, until, State())
    assert (wanted, held) == _run(url, datadir, until, State())  # all rows were ahead of the fold
    assert (wanted, 0) == _run(url, datadir, until, decode(encode(core.state)))
    shutil.rmtree(datadir)
    # Nothing comes back from a changelog, which another process may have written, too.
    assert (wanted, held) == _run(url, datadir, until, decode(encode(core.state)))
    writer.close()
