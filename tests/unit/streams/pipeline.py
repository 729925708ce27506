"""A whole pipeline on a memory log, moved by hand: roles of one domain, each with its own reading
places.
"""

from typing import Any

from schemas.codec import encode
from schemas.topics import DEADLETTER, DECISIONS, INTAKE, JOURNAL, RESOURCES
from streams.decider import Decider
from streams.history import LogHistory
from streams.log import open_reader, open_writer
from streams.recovery import recover
from streams.sequencer import Sequencer
from streams.translate import to_state

GIB = 1 << 30


def message(*observations: dict[str, Any]) -> bytes:
    """An intake message."""
    return encode({"producer": "test", "observations": list(observations)})


def node(name: str, cpu: int = 4_000) -> dict[str, Any]:
    """A node with room."""
    allocatable = {"cpu": cpu, "memory": 64 * GIB, "pods": 110}
    return {
        "kind": "NodeObserved",
        "uid": f"uid-{name}",
        "rv": 1,
        "name": name,
        "allocatable": allocatable,
    }


def pod(name: str, cpu: int = 100, rv: int = 1, **fields: Any) -> dict[str, Any]:
    """A pending pod of ours."""
    return {
        "kind": "PodObserved",
        "uid": f"uid-{name}",
        "rv": rv,
        "namespace": "default",
        "name": name,
        "created_us": 1,
        "spec": {"scheduler_name": "lockstep", "requests": {"cpu": cpu, "memory": GIB}},
        **fields,
    }


class Log:
    """The log at an address, or `memory://NAME`, with what a test does to it."""

    def __init__(self, name: str) -> None:
        self.url = name if "://" in name else f"memory://{name}"
        self.writer = open_writer(self.url)
        self.reader = open_reader(self.url)

    def close(self) -> None:
        """Gives the log back."""
        self.reader.close()
        self.writer.close()

    def publish(self, topic: str, *observations: dict[str, Any]) -> int:
        """Appends one intake message."""
        return self.writer.append(topic, None, message(*observations))

    def sync_all(self) -> None:
        """Every kind is listed and empty, or absent: the gate opens."""
        for resource, topic in RESOURCES.items():
            self.publish(topic, {"kind": "KindAbsent", "resource": resource, "producer": "test"})

    def values(self, topic: str) -> list[bytes]:
        """All values of a topic."""
        found = self.reader.read(topic, 0, 1_000_000)
        return [record.value or b"" for record in found]

    def history(self) -> LogHistory:
        """The log as history."""
        return LogHistory(self.reader, self.reader)


class SequencerRole:
    """A sequencer with its reading places."""

    def __init__(self, log: Log, sequencer: Sequencer | None = None) -> None:
        self.log = log
        self.sequencer = sequencer or Sequencer()
        self.journal_offset = 0
        self.decisions_offset = 0

    @classmethod
    def recovered(cls, log: Log) -> "SequencerRole":
        """One that starts from the log alone."""
        found = recover(log.history())
        role = cls(log, found.sequencer())
        role.journal_offset = found.decider.journal_offset
        role.decisions_offset = found.decider.decisions_offset
        return role

    def read(self, limit: int = 1_000) -> None:
        """Reads back journal and decisions."""
        for record in self.log.reader.read(JOURNAL, self.journal_offset, limit):
            self.sequencer.on_journal(record.value or b"")
            self.journal_offset = record.offset + 1
        for record in self.log.reader.read(DECISIONS, self.decisions_offset, limit):
            self.sequencer.on_decision(record.value or b"")
            self.decisions_offset = record.offset + 1

    def take_intake(self, limit: int = 1_000) -> None:
        """Offers what the intake topics hold."""
        for topic in INTAKE:
            for record in self.log.reader.read(topic, self.sequencer.wanted(topic), limit):
                assert self.sequencer.offer(topic, record.offset, record.value) is None

    def append(self, now_us: int) -> bool:
        """Builds and appends one record."""
        record = self.sequencer.build(now_us)
        if record is not None:
            self.log.writer.append(JOURNAL, None, record)
        for letter in self.sequencer.take_dead_letters():
            self.log.writer.append(DEADLETTER, None, letter)
        return record is not None


class DeciderRole:
    """A decider that publishes what the topic lacks."""

    def __init__(self, log: Log, decider: Decider | None = None) -> None:
        self.log = log
        self.decider = decider or Decider(to_state(None))

    @classmethod
    def recovered(cls, log: Log) -> "DeciderRole":
        """One that starts from the log alone."""
        return cls(log, recover(log.history()).decider)

    def read(self, limit: int = 1_000) -> None:
        """Folds the journal, and compares with the decisions."""
        for record in self.log.reader.read(JOURNAL, self.decider.journal_offset, limit):
            self.decider.on_journal(record.offset, record.value or b"")
        for record in self.log.reader.read(DECISIONS, self.decider.decisions_offset, limit):
            self.decider.on_decision(record.offset, record.value or b"")

    def publish(self, limit: int = 1_000) -> None:
        """Appends what the topic is not known to hold."""
        for _, data in self.decider.unpublished()[:limit]:
            self.log.writer.append(DECISIONS, None, data)


def settle(log: Log, sequencer: SequencerRole, decider: DeciderRole, now_us: int) -> None:
    """Moves one sequencer and one decider until nothing is left to do at `now_us`."""
    while True:
        sequencer.read()
        sequencer.take_intake()
        appended = sequencer.append(now_us)
        decider.read()
        decider.publish()
        decider.read()
        if not appended and not decider.decider.unpublished():
            return
