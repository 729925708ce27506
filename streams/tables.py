"""The tables `pods`, `nodes`, `gangs`, `quotas`, `gpus` as Faust tables on RocksDB, kept by the projector's role.

They are a cache of `decisions`: at every start what is on disk is compared with a fold of the log and mended, so
a wiped, torn or stale directory is normal. Built by `lockstep run`. Must not be read by anything that decides, nor
import Faust before there are tables of its own.
"""

import asyncio
import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, TypeVar

from schemas.errors import Unavailable
from schemas.topics import DECISIONS
from streams.chain import DecisionChain, StallWatch
from streams.feed import Feed
from streams.log import LogRecord
from streams.logs import event
from streams.projector import TABLES, Projector, RowChange

logger = logging.getLogger(__name__)

#: (table, key) -> canonical bytes of the row, None when it is gone.
Rows = dict[tuple[str, str], bytes | None]
Item = TypeVar("Item")

#: Rows that are compared or mended before the event loop may turn to something else, such as the Lease: 50,000 at once
#: take seconds.
SLICE_ROWS: Final = 500


class TablesRole:
    """Drives a `Projector` from `decisions`; rows are written once a batch, with the last value of each key."""

    topics: Final = (DECISIONS,)

    def __init__(self, projector: Projector, decisions_offset: int) -> None:
        self.projector = projector
        self._chain = DecisionChain(projector.state.sequence, projector.state.digest)
        self._next = decisions_offset
        self._watch = StallWatch(DECISIONS)
        self._tables: dict[str, Any] = {}

    def next_offsets(self) -> dict[str, int]:
        """Where the feed begins."""
        return {DECISIONS: self._next}

    def declare(self, feed: Feed) -> None:
        """Declares the tables on the feed's App, before it runs. Raises `Unavailable` when there could be none."""
        from streams.faust_app import TABLE_OPTIONS, LocalTable

        app = feed.app
        if app is None:
            raise Unavailable("tables: no Faust App to keep them in")
        self._tables = {
            name: app.tables.add(
                LocalTable(
                    app,
                    name=name,
                    key_type=bytes,
                    value_type=bytes,
                    partitions=app.conf.topic_partitions,
                    options=dict(TABLE_OPTIONS),
                )
            )
            for name in TABLES
        }

    def attach(self, tables: Mapping[str, Any]) -> None:
        """Keeps rows in `tables`, by name, instead: mappings of bytes to bytes."""
        self._tables = dict(tables)

    async def mend(self, feed: Feed, domain: int) -> int:
        """`mend_beside` in the tables of the feed's App."""
        from streams.faust_app import table_event

        here = LogRecord(DECISIONS, max(self._next - 1, 0), 0, None, None)
        with table_event(feed.app, here, domain):
            return await self.mend_beside()

    async def mend_beside(self) -> int:
        """`mend_rows` in turns with the rest of the event loop; no record may be handed in before it returns.

        Raises `Unavailable` when the tables go away meanwhile.
        """
        wrong = 0
        for mended in self._mend_slices():
            wrong += mended
            await asyncio.sleep(0)
        return wrong

    def mend_rows(self) -> int:
        """Makes the tables equal to the projector's State; returns how many rows were wrong."""
        return sum(self._mend_slices())

    def _mend_slices(self) -> Iterator[int]:
        """A slice of the work at each step; how many wrong rows it mended."""
        wanted: Rows = {}
        for changes in _slices(self.projector.rows()):
            wanted |= _by_place(changes)
            yield 0
        held: Rows = {}
        for name in TABLES:
            for items in self._slices_of(name):
                held |= {(name, bytes(key).decode()): bytes(row) for key, row in items}
                yield 0
        wrong: Rows = {
            place: wanted.get(place) for place in held if held[place] != wanted.get(place)
        }
        wrong |= {place: row for place, row in wanted.items() if place not in held}
        for rows in _slices(wrong.items()):
            self._write(dict(rows))
            yield len(rows)
        event(logger, logging.INFO, "tables_ready", rows=len(wanted), mended=len(wrong))

    def items(self, name: str) -> list[tuple[str, bytes]]:
        """Keys and rows of one table as they are on disk, by key."""
        return sorted((bytes(key).decode(), bytes(row)) for key, row in self._tables[name].items())

    async def on_records(self, _topic: str, records: Sequence[LogRecord]) -> None:
        """Takes what the feed hands on. Raises `Unavailable` when the tables take no rows: `mend` makes up for it."""
        rows: Rows = {}
        for record in records:
            self._next = record.offset + 1
            data = record.value or b""
            accepted = self._chain.accept(data)
            self._watch.note(self._chain, time.monotonic())
            if accepted:
                rows |= _by_place(self.projector.on_decision(data))
                await asyncio.sleep(0)
        for part in _slices(rows.items()):
            self._write(dict(part))
            await asyncio.sleep(0)

    def _slices_of(self, name: str) -> Iterator[list[tuple[bytes, bytes]]]:
        """Keys and rows of one table as they are on disk."""
        with _faults_of_tables():
            slices = _slices(self._tables[name].items())
        while True:
            with _faults_of_tables():
                part = next(slices, None)
            if part is None:
                return
            yield part

    def _write(self, rows: Rows) -> None:
        with _faults_of_tables():
            for (table, key), row in rows.items():
                name = key.encode()
                if row is not None:
                    self._tables[table][name] = row
                elif self._tables[table].get(name) is not None:
                    del self._tables[table][name]


@contextmanager
def _faults_of_tables() -> Iterator[None]:
    """What tables raise, as `Unavailable`: a rebalance takes them away in the middle, a disk refuses a row. The feed is
    begun anew then, and mends them.
    """
    try:
        yield
    except Exception as error:
        raise Unavailable(f"tables: {error!r}") from error


def _slices(items: Iterable[Item]) -> Iterator[list[Item]]:
    rest = iter(items)
    while part := list(islice(rest, SLICE_ROWS)):
        yield part


def _by_place(changes: Iterable[RowChange]) -> Rows:
    return {(table, key): row for table, key, row in changes}
