"""The publishing port, and the class that packs observations into intake messages.

Order is kept per topic: what is published later never stands before what was published earlier,
also after a failure, as long as the caller repeats a failed call before it makes the next one. Must
not drop, merge or judge observations. Informers, device agents and the sink's results publish
through it; `lockstep` gives it the log's `append_many`, or that of `KafkaAppender` where nothing
but producers runs.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from schemas.codec import encode
from schemas.envelope import INTAKE_BYTES_MAX, INTAKE_OBSERVATIONS_MAX
from schemas.errors import Fatal, InvalidMessage, Unavailable
from schemas.observations import VERSION, Observed

if TYPE_CHECKING:
    from confluent_kafka import Message, Producer

#: Short topic name, key, value.
Entry = tuple[str, bytes | None, bytes | None]
#: Appends all entries in order and durably, or raises `Unavailable`; blocks, so it is called in a
#: thread.
AppendMany = Callable[[list[Entry]], object]


class Publisher(Protocol):
    """Where observations go."""

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """Append the observations, in order, to the intake topic; durable when it returns.

        Raises `Unavailable` when the outcome is not known: some of the observations may be in the
        log. Repeat the whole call then; whoever folds them drops what it has seen.
        """


class PackingPublisher:
    """`Publisher` over a log: a burst becomes few messages, each within the limits."""

    def __init__(self, producer: str, append_many: AppendMany) -> None:
        self._producer = producer
        self._append_many = append_many
        self._turns: dict[str, asyncio.Lock] = {}

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """See `Publisher.publish`."""
        key = self._producer.encode()
        entries: list[Entry] = [(topic, key, value) for value in pack(self._producer, observations)]
        if entries:
            # A cancelled caller must not let the next one overtake an append that is still under
            # way.
            await asyncio.shield(asyncio.create_task(self._append(topic, entries)))

    async def _append(self, topic: str, entries: list[Entry]) -> None:
        async with self._turns.setdefault(topic, asyncio.Lock()):
            await asyncio.to_thread(self._append_many, entries)


def pack(producer: str, observations: Sequence[Observed]) -> Iterator[bytes]:
    """Canonical bytes of as few intake messages as hold the observations in order.

    Raises `InvalidMessage` when one observation alone is larger than a message may be.
    """
    head = b'{"observations":['
    tail = b'],"producer":%b,"version":%d}' % (_encoded(producer), VERSION)
    room_bytes = INTAKE_BYTES_MAX - len(head) - len(tail)
    parts: list[bytes] = []
    size_bytes = 0
    for observation in observations:
        part = encode(observation)
        if len(part) > room_bytes:
            raise InvalidMessage(
                "TooLarge", f"an observation of {len(part)} bytes, at most {room_bytes}"
            )
        if parts and (
            len(parts) == INTAKE_OBSERVATIONS_MAX or size_bytes + len(part) + 1 > room_bytes
        ):
            yield head + b",".join(parts) + tail
            parts, size_bytes = [], 0
        size_bytes += len(part) + bool(parts)
        parts.append(part)
    if parts:
        yield head + b",".join(parts) + tail


def _encoded(text: str) -> bytes:
    """A text as it stands in canonical JSON."""
    return encode({"": text})[len(b'{"":') : -1]


class KafkaAppender:
    """`AppendMany` on Kafka: one idempotent producer, all replicas acknowledge, no gaps.

    `client` holds librdkafka's own settings: brokers, TLS, SASL. `domain` is the partition.
    `timeout_s` bounds the retries of one call. After any failure the producer is replaced, so a
    later call never overtakes an earlier one.
    """

    def __init__(
        self, client: dict[str, Any], *, prefix: str, domain: int = 0, timeout_s: float = 30.0
    ) -> None:
        self._settings: Final[dict[str, Any]] = {
            "linger.ms": 2,
            # What Faust's client (aiokafka) reads without another library.
            "compression.type": "gzip",
            "compression.level": 1,
            "message.max.bytes": 2 * INTAKE_BYTES_MAX,
            **client,
            "enable.idempotence": True,
            # When a message fails, all behind it fail too: what is in the log is a prefix of the
            # call.
            "enable.gapless.guarantee": True,
            "acks": "all",
            "delivery.timeout.ms": int(timeout_s * 1000),
        }
        self._prefix = prefix
        self._domain = domain
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._producer: Producer | None = None

    def __call__(self, entries: list[Entry]) -> None:
        """Append in order. Raises `Unavailable` (repeat the call) or `Fatal` (settings)."""
        with self._lock:
            try:
                self._append(entries)
            except BaseException:
                self._abandon()
                raise

    def close(self) -> None:
        """Give back the connection. Repeatable."""
        with self._lock:
            self._abandon()

    def _append(self, entries: list[Entry]) -> None:
        from confluent_kafka import KafkaException

        failures: list[str] = []
        delivered = 0

        def on_delivery(error: object, _message: "Message") -> None:
            nonlocal delivered
            delivered += 1
            if error is not None:
                failures.append(str(error))

        producer = self._open()
        try:
            for topic, key, value in entries:
                producer.produce(
                    self._prefix + topic,
                    value=value,
                    key=key,
                    partition=self._domain,
                    on_delivery=on_delivery,
                )
        except (KafkaException, BufferError) as error:
            raise Unavailable(f"Kafka takes no message for {topic}: {error}") from error
        deadline = time.monotonic() + self._timeout_s + 1.0
        while delivered < len(entries) and time.monotonic() < deadline:
            producer.poll(0.1)
        if failures or delivered < len(entries):
            why = failures[0] if failures else f"no answer within {self._timeout_s} s"
            raise Unavailable(f"Kafka did not acknowledge a burst for {entries[0][0]}: {why}")

    def _open(self) -> "Producer":
        if self._producer is None:
            from confluent_kafka import KafkaException, Producer

            try:
                self._producer = Producer(self._settings)
            except (KafkaException, ValueError, TypeError) as error:
                raise Fatal(f"Kafka client settings: {error}") from error
        return self._producer

    def _abandon(self) -> None:
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=True, blocking=False)
            self._producer = None
