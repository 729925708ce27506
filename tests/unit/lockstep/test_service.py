"""What the service asks its log before its roles run: a broker that restarts at that moment is asked again."""

import asyncio
from collections.abc import Awaitable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from lockstep.cluster import ClusterSide
from lockstep.service import Service, ServiceSettings
from schemas.errors import Unavailable
from schemas.topics import DECISIONS
from streams.faust_app import _member_id
from streams.feed import Feed
from streams.log import LogRecord
from streams.log_memory import MemoryReader, drop_memory_log
from streams.metrics import Roles
from streams.projector import Projector
from streams.roles import Leadership
from streams.tables import TablesRole
from streams.translate import to_state
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, settle


@pytest.fixture(name="log")
def a_log_with_history(monkeypatch: pytest.MonkeyPatch) -> Iterator[Log]:
    """Its reader does not answer the first three questions that a test asks."""
    monkeypatch.setattr("streams.retry.RETRY_S", 0.001)
    name = uuid4().hex
    log = Log(name)
    log.sync_all()
    settle(log, SequencerRole(log), DeciderRole(log), 1_000)
    refusals, whole = [1, 2, 3], MemoryReader.end_offset

    def end_offset(self: MemoryReader, topic: str) -> int:
        if refusals and refusals.pop():
            raise Unavailable("no broker")
        return whole(self, topic)

    monkeypatch.setattr(MemoryReader, "end_offset", end_offset)
    yield log
    assert not refusals
    drop_memory_log(name)


def _within_s(seconds: float, work: Awaitable[Any]) -> Any:
    async def main() -> Any:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(main())


def test_the_logs_id_is_asked_for_again(log: Log) -> None:
    """It ended the service, seconds after it had started."""
    service = Service.__new__(Service)
    service.reader = log.reader
    assert 64 == len(_within_s(5, service._log_id()))


def test_the_sinks_place_is_asked_for_again(log: Log, tmp_path: Path) -> None:
    """It ended the service, seconds after it had started."""
    side = ClusterSide(
        ServiceSettings(log=log.url, datadir=tmp_path),
        identity="me",
        log_id="log-1",
        writer=log.writer,
        reader=log.reader,
        leadership=Leadership(always=False),
        roles=Roles(),
        state=None,
    )
    assert {DECISIONS: 0} == _within_s(5, side._role(None)).next_offsets()


def test_a_disk_without_room_at_a_takeover_costs_hints_and_tables_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new leader makes its folders then; a full disk ended it, and the next one."""

    def full(_: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streams.faust_app._member_id", full)
    feed = Feed("kafka://127.0.0.1:1", "decider", {DECISIONS: 0}, _drop, datadir=tmp_path)
    assert (None, True) == (feed.app, feed.app_lost)
    with pytest.raises(Unavailable, match="no Faust App"):
        TablesRole(Projector(to_state(None)), 0).declare(feed)


def test_a_member_without_a_name_gets_one(tmp_path: Path) -> None:
    """What a disk that was full for a moment has left of the file."""
    (tmp_path / "member").write_text("")
    name = _member_id(tmp_path)
    assert name.startswith("lockstep-")
    assert name == _member_id(tmp_path)


async def _drop(topic: str, records: list[LogRecord]) -> None:
    """Takes nothing in."""
