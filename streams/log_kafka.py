"""The log on Kafka (librdkafka through confluent-kafka): reader and writer. Opened by `streams.log`
only; topics are made in `streams.log_kafka_topics`.

Reading is outside any group: positions are given by the caller, nothing is committed. Writing is
idempotent with acks=all. Faust is not here: it has its own client, and its deliveries are only
hints (`streams.faust_app`).
"""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from schemas.errors import Fatal, LockstepError, Unavailable
from streams.log import Entry, LogAddress, LogRecord, LogSettings
from streams.log_kafka_client import MISSING, MUTE, client_config, translated
from streams.topics import MESSAGE_BYTES_MAX, SETTINGS

#: Room for the frame around a message of the greatest size.
_FETCH_BYTES: Final = MESSAGE_BYTES_MAX + 64 * 1024
_LINGER_MS: Final = 1
_RETRY_S: Final = 0.05
#: How long a client that has ended may take to say why.
_ENDED_S: Final = 0.5
#: How long a new topic may be unknown to a broker that did not make it.
_SPREADING_S: Final = 2.0
#: So long a broker must say that a topic, or an offset, that was there is not: one that has just
#: started may say so for a moment.
GONE_S: Final = 20.0
#: A client that had answers before and has none for so long is replaced, and the new one has the rest of the time.
_STUCK_S: Final = 5.0
_MOVING: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
#: (brokers, topic) that have answered in this process, whoever asked: a broker that denies one has only just started.
_answered: set[tuple[str, str]] = set()


def note_there(address: LogAddress, names: Iterable[str]) -> None:
    """The brokers have told of these topics, by their whole names."""
    _answered.update((address.place, name) for name in names)


def _whole_name(address: LogAddress, topic: str) -> str:
    if topic not in SETTINGS:
        raise LockstepError(f"no topic {address.prefix}{topic} in this log")
    return address.prefix + topic


def await_topics(client: Any, names: set[str], settings: LogSettings, within_s: float) -> list[str]:
    """Wait until every partition of `names` has a leader; returns those that have not."""
    deadline = time.monotonic() + within_s
    while True:
        topics = client.list_topics(timeout=settings.timeout_s).topics
        waiting = [
            name
            for name in sorted(names)
            if name not in topics or any(p.leader < 0 for p in topics[name].partitions.values())
        ]
        if not waiting or time.monotonic() > deadline:
            return waiting
        time.sleep(_RETRY_S)


class _Doubts:
    """What the broker says against what it said before, by topic; believed once it has said so for
    `GONE_S`.
    """

    def __init__(self) -> None:
        self._since_s: dict[str, float] = {}

    def confirmed(self, topic: str) -> bool:
        """It says so now; true when it has for long enough."""
        now_s = time.monotonic()
        return now_s - self._since_s.setdefault(topic, now_s) >= GONE_S

    def dispel(self, topic: str) -> None:
        """It says what it said before, or nothing at all."""
        self._since_s.pop(topic, None)

    def gone(self, client: Any, name: str, timeout_s: float) -> bool:
        """The client does not know the topic `name`. True when a broker has said for long enough that
        there is none: a client without a broker forgets its topics too.
        """
        try:
            there = name in client.list_topics(timeout=timeout_s).topics
        except KafkaException:
            there = True
        if there:
            self.dispel(name)
        return not there and self.confirmed(name)


def _deleted(name: str, what: str) -> Fatal:
    return Fatal(
        f"topic {name} {what}: it was deleted; nothing is made in its place; restore it,"
        " or begin a new log (docs/runbooks/LockstepTopicDeleted.md)",
        cause="topic_deleted",
    )


class KafkaReader:
    """`LogReader` of one domain.

    One consumer; it fetches the topic that is being read, and no other.
    """

    def __init__(self, address: LogAddress, domain: int, settings: LogSettings) -> None:
        self._address = address
        self._domain = domain
        self._settings = settings
        self._lock = threading.RLock()
        self._assigned: str | None = None
        self._next = 0
        self._had_answers = False
        self._high = 0  # end of the assigned topic when last asked
        self._absent = _Doubts()  # topics that the broker says are not there
        self._short = _Doubts()  # topics that end before what was read
        self._lost = False  # the last question had no answer
        self._consumer = self._open()

    def _open(self) -> Consumer:
        with translated(self._address, "client settings"):
            return Consumer(
                client_config(self._address, self._settings)
                | {
                    "group.id": f"{self._address.prefix}reader",  # demanded by the client, never used
                    "enable.auto.commit": False,
                    "enable.auto.offset.store": False,
                    "auto.offset.reset": "error",  # never jump: the caller judges a lost position
                    "isolation.level": "read_uncommitted",
                    "fetch.message.max.bytes": _FETCH_BYTES,
                    # A fetch that waits also holds up the first one of the next topic: a sweep of the
                    # nine intake topics with news took 1.0 s at 100 ms, and takes 0.13 s at 10 ms.
                    "fetch.wait.max.ms": 10,
                    "fetch.error.backoff.ms": 50,
                    "queued.min.messages": 100_000,
                    # Of each of six readers: what waits there is memory of ours, and the log has it anyway.
                    "queued.max.messages.kbytes": 8_192,
                }
            )

    def _renew(self) -> None:
        """A client that had no answer is replaced: some never find their broker again (seen after SIGSTOP)."""
        self._consumer.close()
        self._consumer, self._assigned, self._lost = self._open(), None, False

    def _watermarks(self, topic: str) -> tuple[int, int]:
        """Start and end of the topic. Raises `Unavailable` when nobody says within the reader's `timeout_s`.

        A client that was idle while its broker restarted may never find it again: a standby that takes over would stand
        still for all of that time.
        """
        started, timeout_s = time.monotonic(), self._settings.timeout_s
        with self._lock:
            if self._had_answers and not self._lost and timeout_s > _STUCK_S:
                try:
                    return self._ask(topic, _STUCK_S)
                except Unavailable:
                    if time.monotonic() < started + 0.9 * _STUCK_S:
                        raise  # what comes at once is an answer, such as a refusal
            if self._lost:
                self._renew()
            return self._ask(topic, max(started + timeout_s - time.monotonic(), 1.0))

    def _ask(self, topic: str, within_s: float) -> tuple[int, int]:
        name, started = self._name(topic), time.monotonic()
        known = (self._address.place, name) in _answered
        with translated(self._address, name, self._consumer, known=known):
            while True:
                try:
                    low, high = self._consumer.get_watermark_offsets(
                        TopicPartition(name, self._domain), timeout=within_s
                    )
                except KafkaException as error:
                    code, now = error.args[0].code(), time.monotonic()
                    # While a partition moves or was just made, its leader is not known everywhere.
                    patience_s = within_s if known else _SPREADING_S
                    if (code in _MOVING and now < started + within_s) or (
                        code in MISSING and now < started + patience_s
                    ):
                        time.sleep(_RETRY_S)
                        continue
                    self._unassign()  # what is fetched would go astray in the poll for the reason
                    self._lost = True
                    timeout_s = self._settings.timeout_s
                    missing = known and code in MISSING
                    if missing and self._absent.gone(self._consumer, name, timeout_s):
                        raise _deleted(name, "is no longer at the broker") from error
                    raise
                else:
                    _answered.add((self._address.place, name))
                    self._had_answers = True
                    self._absent.dispel(name)
                    return int(low), int(high)

    def _name(self, topic: str) -> str:
        return _whole_name(self._address, topic)

    def start_offset(self, topic: str) -> int:
        self._rest()
        return self._watermarks(topic)[0]

    def end_offset(self, topic: str) -> int:
        self._rest()
        return self._watermarks(topic)[1]

    def _rest(self) -> None:
        """A fetch that waits for news holds up every other question on its connection."""
        with self._lock:
            if self._assigned is not None and self._next >= self._high:
                self._unassign()

    def read(self, topic: str, offset: int, limit: int, timeout_s: float = 0.0) -> list[LogRecord]:
        if limit <= 0:
            return []
        with self._lock:
            if self._assigned == topic and self._next == offset:
                if offset < self._high:
                    return self._read_until(topic, offset, limit, self._high)
                if ready := self._take(topic, offset, limit, 0.0):
                    return ready
            if timeout_s <= 0 and self._assigned is not None:
                self._unassign()  # see `_rest`
            low, high = self._watermarks(topic)
            name = self._name(topic)
            if offset <= high:
                self._short.dispel(name)
            elif self._short.confirmed(name):
                raise _deleted(name, f"ends at offset {high}, though offset {offset - 1} was read")
            if offset > high or (offset == high and timeout_s <= 0):
                return []
            if self._assigned != topic or self._next != offset:
                self._assign(topic, max(offset, low))
            self._high = high
            if offset < high:
                return self._read_until(topic, offset, limit, high)
            return self._take(topic, offset, limit, timeout_s)

    def _unassign(self) -> None:
        self._consumer.unassign()
        self._assigned = None

    def _assign(self, topic: str, offset: int) -> None:
        name = self._name(topic)
        with translated(self._address, name):
            self._consumer.assign([TopicPartition(name, self._domain, offset)])
        self._assigned, self._next = topic, offset

    def _read_until(self, topic: str, offset: int, limit: int, high: int) -> list[LogRecord]:
        """Records known to exist below `high`; empty when all were compacted away."""
        deadline = time.monotonic() + self._settings.timeout_s
        while time.monotonic() < deadline:
            found = self._take(topic, offset, limit, 0.2)
            if found:
                return found
            if self._position(topic) >= high:
                return []
        self._assigned = None
        raise Unavailable(
            f"kafka {self._address.place}: {self._name(topic)} did not deliver offset {offset} "
            f"within {self._settings.timeout_s:g} s"
        )

    def _position(self, topic: str) -> int:
        name = self._name(topic)
        with translated(self._address, name, known=True):
            (position,) = self._consumer.position([TopicPartition(name, self._domain)])
        return -1 if position.offset == OFFSET_INVALID else int(position.offset)

    def _take(self, topic: str, offset: int, limit: int, timeout_s: float) -> list[LogRecord]:
        with translated(self._address, self._name(topic), known=True):
            first = self._consumer.poll(timeout_s)
            if first is None:
                return []
            self._assigned = None  # what was fetched is lost if it is not handed on
            more = self._consumer.consume(limit - 1, 0) if limit > 1 else []
        found: list[LogRecord] = []
        for message in (first, *more):
            error = message.error()
            if error is not None:
                if not found:
                    self._refuse(error, topic)
                break  # what came behind it is fetched anew
            at = message.offset()
            if at >= offset:
                found.append(
                    LogRecord(topic, at, message.timestamp()[1], message.key(), message.value())
                )
        else:
            self._assigned = topic
        if found:
            self._next = found[-1].offset + 1
        return found

    def _refuse(self, error: KafkaError, topic: str) -> None:
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise Fatal(
                f"kafka {self._address.place}: {self._name(topic)} has no offset {self._next}",
                cause="history_lost",
            )
        with translated(self._address, self._name(topic), known=True):
            raise KafkaException(error)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 port
        """Never calls: the log lives in another process."""
        return lambda: None

    def close(self) -> None:
        with self._lock:
            self._consumer.close()


class KafkaWriter:
    """`LogWriter` of one domain: one idempotent producer, replaced after any failure."""

    def __init__(self, address: LogAddress, domain: int, settings: LogSettings) -> None:
        self._address = address
        self._domain = domain
        self._settings = settings
        self._lock = threading.Lock()
        self._closed = False
        self._producer: Producer | None = None
        self._found: set[str] = set()  # topics that this writer has seen with a leader
        self._doubts = _Doubts()

    def _name(self, topic: str) -> str:
        """The whole name of a topic that is there; without this check an append would only time
        out.
        """
        name = _whole_name(self._address, topic)
        if topic not in self._found:
            key = (self._address.place, name)
            with translated(self._address, name, self._open(), known=key in _answered):
                if await_topics(self._open(), {name}, self._settings, _SPREADING_S):
                    raise KafkaException(KafkaError(KafkaError._UNKNOWN_TOPIC))
            self._found.add(topic)
            _answered.add(key)
        return name

    def _open(self) -> Producer:
        if self._closed:
            raise Fatal("kafka: a closed writer cannot append")
        if self._producer is None:
            with translated(self._address, "client settings"):
                self._producer = Producer(
                    client_config(self._address, self._settings)
                    | {
                        "enable.idempotence": True,
                        # A record that fails takes all later ones with it: what is in the log is a
                        # prefix.
                        "enable.gapless.guarantee": True,
                        "logger": MUTE,
                        "acks": "all",
                        "linger.ms": _LINGER_MS,
                        # What Faust's client reads without another library.
                        "compression.type": "gzip",
                        "compression.level": 1,
                        "message.max.bytes": MESSAGE_BYTES_MAX,
                        "delivery.timeout.ms": int(self._settings.timeout_s * 1000),
                        "queue.buffering.max.messages": 1_000_000,
                        "queue.buffering.max.kbytes": 1_048_576,
                    }
                )
        return self._producer

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        return self.append_many([(topic, key, value)])[0]

    def append_many(self, entries: Sequence[Entry]) -> list[int]:
        with self._lock:
            reports: dict[int, tuple[KafkaError | None, int]] = {}
            producer = self._open()
            try:
                for index, entry in enumerate(entries):
                    self._produce(producer, entry, index, reports)
                self._await(producer, reports, entries)
            except BaseException:
                self._abandon(producer)
                raise
            return [reports[index][1] for index in range(len(entries))]

    def _produce(
        self,
        producer: Producer,
        entry: Entry,
        index: int,
        reports: dict[int, tuple[KafkaError | None, int]],
    ) -> None:
        topic, key, value = entry

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            reports[index] = error, message.offset()

        name = self._name(topic)
        with translated(self._address, name, known=True):
            try:
                producer.produce(name, value, key, partition=self._domain, on_delivery=on_delivery)
            except BufferError as error:
                raise Unavailable(
                    f"kafka {self._address.place}: too much waits to be sent to {name}"
                ) from error
            except KafkaException:
                producer.poll(_ENDED_S)  # a client that was refused for good says why here
                raise

    def _await(
        self,
        producer: Producer,
        reports: dict[int, tuple[KafkaError | None, int]],
        entries: Sequence[Entry],
    ) -> None:
        """Wait for every record's outcome; raises on the first record (in order) that failed."""
        count = len(entries)
        ended_by: KafkaError | None = None
        deadline = time.monotonic() + self._settings.timeout_s + 1.0
        while len(reports) < count:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"kafka {self._address.place}: no answer to {count - len(reports)} of {count} "
                    "records; they may or may not be in the log"
                )
            # What is refused for good ends the client, with an exception here and a report for each record.
            try:
                producer.poll(0.1)
            except KafkaException as ended:
                ended_by = ended.args[0]
        for index, (topic, _, _) in enumerate(entries):
            error = reports[index][0]
            name = self._name(topic)
            if error is None:
                self._doubts.dispel(name)
                if reports[index][1] < 0:
                    # The broker took it for one that it has already; where, nobody knows, nor whether it is so.
                    raise Unavailable(
                        f"kafka {self._address.place}: {name} has no place for record {index + 1} of {count}; "
                        "it may or may not be in the log"
                    )
                continue
            timeout_s = self._settings.timeout_s
            if error.code() in MISSING and self._doubts.gone(producer, name, timeout_s):
                raise _deleted(name, "is no longer at the broker")
            what = f"append to {name}, record {index + 1} of {count}"
            thrown_away = error.code() == KafkaError._PURGE_QUEUE
            with translated(self._address, what, known=True):
                raise KafkaException((thrown_away and ended_by) or error)

    def _abandon(self, producer: Producer) -> None:
        """Drop what waits; what a broker already has may still be written."""
        producer.purge(in_queue=True, in_flight=True, blocking=False)
        self._producer = None

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._producer = None
