"""Mending tables beside the rest of the event loop: all of it is done, and no turn of the loop does much of it."""

import asyncio
from collections.abc import Iterator

from streams.projector import TABLES, Projector
from streams.tables import SLICE_ROWS, TablesRole
from tests.builders import Core, node, pod

NODES = 1_600


class Table(dict[bytes, bytes]):
    """Rows in memory; `touched` counts those read or written, over all tables."""

    touched = 0

    def __setitem__(self, key: bytes, row: bytes) -> None:
        super().__setitem__(key, row)
        Table.touched += 1

    def __delitem__(self, key: bytes) -> None:
        super().__delitem__(key)
        Table.touched += 1

    def items(self) -> Iterator[tuple[bytes, bytes]]:  # type: ignore[override]
        for item in super().items():
            Table.touched += 1
            yield item


def test_mending_holds_the_event_loop_for_a_slice_at_a_time() -> None:
    """Rows that lack, that differ and that are too many: mended, and no turn of the loop sees more than a slice."""
    core = Core()
    for start in range(0, NODES, 400):
        core.see(*(node(f"n{index}") for index in range(start, start + 400)), topic="nodes")
    core.see(pod("a"))
    role = TablesRole(Projector(core.state), 0)
    tables = {name: Table() for name in TABLES}
    for index in range(600):
        tables["nodes"][f"n{index}".encode()] = b"stale"
        tables["pods"][f"uid-old-{index}".encode()] = b"gone"
    role.attach(tables)
    turns: list[int] = []

    async def count_turns() -> None:
        while True:
            before = Table.touched
            await asyncio.sleep(0)
            turns.append(Table.touched - before)

    async def mend() -> int:
        counting = asyncio.create_task(count_turns())
        await asyncio.sleep(0)
        wrong = await role.mend_beside()
        counting.cancel()
        return wrong

    assert NODES + 1 + 600 == asyncio.run(mend())
    assert max(turns) <= SLICE_ROWS
    wanted = [(table, key.encode(), row) for table, key, row in role.projector.all_rows()]
    held = [(name, key, row) for name in TABLES for key, row in sorted(dict.items(tables[name]))]
    assert wanted == sorted(held)
    assert 0 == role.mend_rows()
