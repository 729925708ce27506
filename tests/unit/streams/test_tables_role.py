"""Mending tables beside the rest of the event loop: all of it is done, and no turn of the loop does much of it."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from schemas.errors import Unavailable
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


class Moving(dict[bytes, bytes]):
    """A table over stores by partition, as Faust's is: a rebalance takes a store away while rows are read."""

    def __init__(self) -> None:
        super().__init__()
        self.stores: dict[int, dict[bytes, bytes]] = {0: {}}

    def __setitem__(self, key: bytes, row: bytes) -> None:
        if not self.stores:
            raise OSError("closed")
        self.stores[0][key] = row

    def __delitem__(self, key: bytes) -> None:
        del self.stores[0][key]

    def get(self, key: bytes) -> bytes | None:  # type: ignore[override]
        return self.stores[0].get(key)

    def items(self) -> Iterator[tuple[bytes, bytes]]:  # type: ignore[override]
        for store in self.stores.values():
            yield from store.items()


def test_a_rebalance_while_tables_are_mended_begins_the_feed_anew() -> None:
    """Seconds after a take-over, when the old leader's membership runs out: it ended the new leader."""
    core = Core()
    core.see(*(node(f"n{index}") for index in range(3)), topic="nodes")
    role = TablesRole(Projector(core.state), 0)
    moving = {name: Moving() for name in TABLES}
    for index in range(2 * SLICE_ROWS):
        moving["pods"].stores[0][b"%d" % index] = b"stale"
    tables: dict[str, Any] = dict(moving)
    role.attach(tables)

    whole = dict(moving["pods"].stores)
    slices = role._mend_slices()
    next(slices)  # what is wanted
    next(slices)  # half of the pods
    moving["pods"].stores.clear()
    with pytest.raises(Unavailable, match="changed size"):
        list(slices)
    moving["nodes"].stores.clear()
    with pytest.raises(Unavailable, match="closed"):
        asyncio.run(role.mend_beside())
    moving["pods"].stores, moving["nodes"].stores = whole, {0: {}}
    assert 2 * SLICE_ROWS + 3 == role.mend_rows()
