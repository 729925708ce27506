"""A Kafka client that a broker tells for a moment, now and then, that a topic is not there."""

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.errors import Fatal, LockstepError, Unavailable
from streams import log_kafka, log_kafka_topics
from streams.log import LogAddress, LogSettings
from streams.log_kafka import KafkaReader, KafkaWriter
from streams.topics import SETTINGS


class Client:
    """Answers, or knows no topic (a broker that has just started)."""

    def __init__(self) -> None:
        self.starting = False
        self.there: dict[str, Any] = {"journal": None}

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        if self.starting:
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        return 0, 5

    def list_topics(self, **_: object) -> Any:
        return SimpleNamespace(topics={} if self.starting else self.there)

    def poll(self, _: float) -> None:
        """Nothing to tell."""

    def unassign(self) -> None:
        """Nothing is assigned."""

    def purge(self, **_: object) -> None:
        """Nothing waits."""

    def close(self) -> None:
        """Replaced by another one."""


@pytest.fixture(autouse=True)
def nothing_has_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just started."""
    monkeypatch.setattr(log_kafka, "_answered", set())


def test_what_a_broker_denied_long_ago_does_not_count_when_it_denies_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the two it answered, so the topic was there: only what it denies all the time is gone."""
    client, now_s = Client(), [0.0]
    monkeypatch.setattr(KafkaReader, "_open", lambda _: client)
    monkeypatch.setattr(log_kafka.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(log_kafka.time, "sleep", lambda s: now_s.__setitem__(0, now_s[0] + s))
    reader = KafkaReader(LogAddress.parse("kafka://nowhere:9"), 0, LogSettings(timeout_s=1.0))
    for _ in range(3):
        client.starting = False
        assert 5 == reader.end_offset("journal")
        now_s[0] += 60
        client.starting = True
        with pytest.raises(Unavailable):
            reader.end_offset("journal")
    now_s[0] += 60
    with pytest.raises(Fatal, match="deleted"):
        reader.end_offset("journal")


def test_who_takes_over_while_a_broker_starts_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A standby writes its first record then. It took the topic for missing, though its reader knew it, and ended."""
    client = Client()
    monkeypatch.setattr(KafkaReader, "_open", lambda _: client)
    monkeypatch.setattr(KafkaWriter, "_open", lambda _: client)
    monkeypatch.setattr(log_kafka, "_SPREADING_S", 0.0)
    address, settings = LogAddress.parse("kafka://nowhere:9"), LogSettings(timeout_s=1.0)
    client.starting = True
    with pytest.raises(LockstepError, match=r"no topic lockstep\.journal") as unknown:
        KafkaWriter(address, 0, settings).append("journal", None, b"")
    assert not isinstance(unknown.value, Unavailable)
    client.starting = False
    assert 5 == KafkaReader(address, 0, settings).end_offset("journal")
    client.starting = True
    with pytest.raises(Unavailable):
        KafkaWriter(address, 0, settings).append("journal", None, b"")


def test_a_topic_that_was_there_at_the_start_is_only_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first dead letter, weeks later, while a broker starts: nobody had asked for that topic, and it ended all."""
    client = Client()
    monkeypatch.setattr(log_kafka_topics, "_admin", lambda *_: client)
    monkeypatch.setattr(KafkaWriter, "_open", lambda _: client)
    monkeypatch.setattr(log_kafka, "_SPREADING_S", 0.0)
    address, settings = LogAddress.parse("kafka://nowhere:9"), LogSettings(timeout_s=1.0)
    client.there = {address.prefix + topic: SimpleNamespace() for topic in SETTINGS}
    log_kafka_topics.check_kafka_history(address, 1, settings)
    client.starting = True
    with pytest.raises(Unavailable):
        KafkaWriter(address, 0, settings).append("deadletter", None, b"")


class Fetched:
    """One message that a client has fetched, or an error that stands among them."""

    def __init__(self, offset: int, error: KafkaError | None = None) -> None:
        self._offset = offset
        self._error = error

    def error(self) -> KafkaError | None:
        return self._error

    def offset(self) -> int:
        return self._offset

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"%d" % self._offset


class Fetching(Client):
    """Six records; the first fetch brings an error of a starting broker behind the second one."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Fetched] = []
        self.erring = True

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        return 0, 6

    def assign(self, places: list[Any]) -> None:
        self.waiting = [Fetched(offset) for offset in range(places[0].offset, 6)]
        if self.erring:
            self.waiting.insert(2, Fetched(0, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
            self.erring = False

    def poll(self, *_: object) -> Any:
        return self.waiting.pop(0) if self.waiting else None

    def consume(self, count: int, _: float) -> list[Fetched]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def position(self, _: object) -> list[Any]:
        return [SimpleNamespace(offset=6 - len(self.waiting))]


@pytest.mark.parametrize("limit", [4, 100])
def test_what_was_fetched_behind_an_error_is_not_lost(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was passed over: then a record seemed to be gone from the log for good, or none ever came again."""
    client = Fetching()
    monkeypatch.setattr(KafkaReader, "_open", lambda _: client)
    reader = KafkaReader(LogAddress.parse("kafka://nowhere:9"), 0, LogSettings(timeout_s=1.0))
    assert [0, 1] == [record.offset for record in reader.read("journal", 0, limit)]
    assert [2, 3, 4, 5][:limit] == [record.offset for record in reader.read("journal", 2, limit)]


class Acknowledging(Client):
    """Takes every record at once; says of the second one that it has it already, without its place."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[str] = []

    def list_topics(self, **_: object) -> Any:
        found = SimpleNamespace(partitions={0: SimpleNamespace(leader=1)})
        return SimpleNamespace(topics={"lockstep.journal": found})

    def produce(self, name: str, *_: object, on_delivery: Any, **__: object) -> None:
        self.taken.append(name)
        place = -1_001 if len(self.taken) == 2 else len(self.taken)
        on_delivery(None, SimpleNamespace(offset=lambda: place))


def test_a_record_without_a_place_is_not_taken_for_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that has forgotten the first batch of a producer calls it a repetition, and it would be lost."""
    client = Acknowledging()
    monkeypatch.setattr(KafkaWriter, "_open", lambda _: client)
    writer = KafkaWriter(LogAddress.parse("kafka://nowhere:9"), 0, LogSettings(timeout_s=1.0))
    with pytest.raises(Unavailable, match="no place for record 2 of 3"):
        writer.append_many([("journal", None, b"x")] * 3)
    assert [4, 5] == writer.append_many([("journal", None, b"x")] * 2)
