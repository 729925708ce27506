"""The follower of decisions: what the past leaves to do, what the present asks for."""

import asyncio
from typing import Any

import pytest

from schemas.codec import encode
from schemas.envelope import BindPod
from schemas.errors import Unavailable
from schemas.topics import DECISIONS
from streams.chain import DecisionChain
from streams.log import LogRecord
from streams.log_memory import MemoryReader, drop_memory_log
from streams.sink.role import SinkRole
from tests.unit.streams.pipeline import Log


class Recorder:
    """Stands for a sink: keeps what it is given."""

    def __init__(self) -> None:
        self.restored: list[str] = []
        self.given: list[tuple[list[str], list[str]]] = []
        self.times: list[int] = []

    def note_time(self, timestamp_us: int) -> None:
        self.times.append(timestamp_us)

    def restore(self, commands: Any) -> None:
        self.restored = [command.id for command in commands]

    def on_decision(
        self, commands: Any, ended: Any = (), withdrawn: Any = (), requests: Any = ()
    ) -> None:
        self.given.append(([command.id for command in commands], list(ended)))


def command(kind: str, id_: str, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "BindPod": {"node": "n1"},
        "PatchStatus": {"resource": "pods", "fields": {}},
    }[kind]
    named = {"kind": kind, "id": id_, "namespace": "d", "name": name, "uid": f"uid-{name}"}
    return {**named, **fields}


class World:
    """A log of decisions, a recorder, and the role between them."""

    def __init__(self, name: str, waiting: tuple[str, ...] = ()) -> None:
        drop_memory_log(name)
        self.log = Log(name)
        self.sink = Recorder()
        self.resyncs: list[str] = []
        self._sequence = 0
        self.role = SinkRole(
            self.sink,  # type: ignore[arg-type]
            self.log.reader,
            chain=DecisionChain(),
            offset=0,
            open_commands=[BindPod(id="0.1", namespace="d", name="z", uid="uid-z", node="n1")],
            on_resync=self.resyncs.append,
            still_waits=lambda uid: uid in waiting,
        )

    def decide(
        self, *commands: dict[str, Any], ended: tuple[str, ...] = (), requests: Any = ()
    ) -> bytes:
        """Appends the next decision."""
        previous = f"d{self._sequence}" if self._sequence else "0" * 64
        self._sequence += 1
        data = encode(
            {
                "sequence": self._sequence,
                "record_hash": "h",
                "previous_digest": previous,
                "digest": f"d{self._sequence}",
                "timestamp_us": 1_000 * self._sequence,
                "commands": list(commands),
                "ended": list(ended),
                "withdrawn": [],
                "requests": list(requests),
            }
        )
        self.log.writer.append(DECISIONS, None, data)
        return data

    def feed(self, offset: int) -> None:
        records = self.log.reader.read(DECISIONS, offset, 100)
        asyncio.run(self.role.on_records(DECISIONS, records))

    def read_to_end(self) -> None:
        asyncio.run(self.role.read_to_end())


def test_the_past_leaves_open_commands_and_last_statuses_of_who_still_waits() -> None:
    """Statuses are last-wins: those of bound or gone pods, and old resync requests, are not played again."""
    world = World("past", waiting=("uid-a", "uid-b"))
    world.decide(command("PatchStatus", "1.0", "a"), command("PatchStatus", "1.1", "c"))
    world.decide(command("PatchStatus", "2.0", "a"), command("PatchStatus", "2.1", "b"))
    world.decide(
        command("BindPod", "3.0", "b"), requests=[{"kind": "ResyncRequested", "resource": "pods"}]
    )
    world.decide(ended=("3.0",))
    world.read_to_end()
    assert ["0.1"] == world.sink.restored
    assert [1_000, 2_000, 3_000, 4_000] == world.sink.times
    assert [([], []), ([], []), (["3.0"], []), ([], ["3.0"]), (["2.0"], [])] == world.sink.given
    assert [] == world.resyncs


def test_the_present_is_handed_on_as_it_comes() -> None:
    """Commands, statuses and resync requests; a probe's answer is nobody's request."""
    world = World("present")
    world.read_to_end()
    world.decide(
        command("BindPod", "1.0", "a"),
        command("PatchStatus", "1.1", "b"),
        requests=[
            {"kind": "ResyncRequested", "resource": "nodes"},
            {"kind": "ProbeFolded", "id": "7"},
        ],
    )
    world.feed(0)
    assert [([], []), (["1.0", "1.1"], [])] == world.sink.given
    assert ["nodes"] == world.resyncs


def test_what_was_read_ahead_is_not_taken_twice() -> None:
    """The feed delivers again what `read_to_end` has read; a second decider's copy is skipped."""
    world = World("twice")
    data = world.decide(command("BindPod", "1.0", "a"))
    world.log.writer.append(DECISIONS, None, data)
    world.read_to_end()
    world.feed(0)
    assert [(["1.0"], []), ([], [])] == world.sink.given
    assert {DECISIONS: 2} == world.role.next_offsets()


def test_a_log_that_does_not_answer_at_a_takeover_is_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Who had just got the Lease ended with the whole service over one question without an answer."""
    monkeypatch.setattr("streams.retry.RETRY_S", 0.001)
    world = World("silent")
    world.decide(command("BindPod", "1.0", "a"))
    ends, reads = [Unavailable("no end")], [Unavailable("no record"), Unavailable("none yet")]
    whole_end, whole_read = MemoryReader.end_offset, MemoryReader.read

    def end_offset(self: MemoryReader, topic: str) -> int:
        if ends:
            raise ends.pop()
        return whole_end(self, topic)

    def read(self: MemoryReader, topic: str, offset: int, *rest: Any) -> list[LogRecord]:
        if reads:
            raise reads.pop()
        return whole_read(self, topic, offset, *rest)

    monkeypatch.setattr(MemoryReader, "end_offset", end_offset)
    monkeypatch.setattr(MemoryReader, "read", read)
    world.read_to_end()
    assert [(["1.0"], []), ([], [])] == world.sink.given
    assert ([], []) == (ends, reads)


def test_a_command_of_an_unknown_kind_is_not_skipped() -> None:
    """A sink that passed it over would leave it unanswered for ever."""
    world = World("unknown")
    world.decide({**command("BindPod", "1.0", "a"), "kind": "Launch"})
    with pytest.raises(KeyError):
        world.read_to_end()
