"""Faust's transport driver `embedded:///path`: consumer and producer on the embedded log.

One process, one member, every partition of what it subscribes to. It exists so that the same Faust
Apps run with and without Kafka. Like on Kafka its deliveries are hints (`streams.feed` orders them
and fills holes), so it commits no offsets: a partition is read from its end at the time of the
assignment. Table changelogs are read from where Faust's recovery says.

Loaded by Faust through the entry point `faust.transports`; nothing of ours imports it.
"""

# Signatures are Faust's: arguments that mean nothing here stay.
# ruff: noqa: ARG002, ASYNC109

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from importlib.metadata import version
from typing import Any, ClassVar, Final

from faust.exceptions import ImproperlyConfigured
from faust.transport import base
from faust.transport.consumer import Consumer as FaustConsumer
from faust.transport.producer import Producer as FaustProducer
from faust.types import TP, ConsumerMessage, RecordMetadata
from yarl import URL

from streams.embedded.store import Row, Store, acquire, release

#: Rows taken from one partition in one turn.
FETCH_ROWS: Final = 500


class _Topics:
    """The one question that Faust's assignor asks about a cluster: how many partitions a topic has."""

    def __init__(self, transport: "Transport") -> None:
        self._transport = transport

    def partitions_for_topic(self, topic: str) -> set[int]:
        return set(range(self._transport.partitions(topic)))


class Consumer(FaustConsumer):
    """Reads assigned partitions from the log, woken by appends of this process."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._store: Store | None = None
        self._next: dict[TP, int] = {}
        self._arrived = asyncio.Event()

    # Life.

    async def on_start(self) -> None:
        await super().on_start()
        loop = asyncio.get_running_loop()

        def on_append() -> None:  # in the thread that appended
            loop.call_soon_threadsafe(self._arrived.set)

        self._store = acquire(self.transport.path)
        self._end_listening = self._store.arrivals.listen(on_append)

    async def on_stop(self) -> None:
        await super().on_stop()
        store, self._store = self._store, None
        if store is not None:
            self._end_listening()
            release(store)

    def close(self) -> None:
        """Nothing beyond `on_stop`."""

    # Membership: an assignment of everything, made by Faust's own assignor.

    async def subscribe(self, topics: Iterable[str]) -> None:
        # The rebalance waits for this very call to have returned, so it runs beside it.
        self.add_future(self._assign(set(topics)))

    async def _assign(self, topics: set[str]) -> None:
        app, assignor = self.app, self.app.assignor
        app.on_rebalance_start()
        await self.on_partitions_revoked(set(self._next))
        metadata = assignor.metadata(topics)
        assigned = assignor.assign(_Topics(self.transport), {"embedded": metadata})["embedded"]
        assignor.on_assignment(assigned)
        partitions = {
            TP(topic, number) for topic, numbers in assigned.assignment for number in numbers
        }
        self._next = {tp: self._next.get(tp, self.highwater(tp)) for tp in partitions}
        app.consumer_generation_id += 1
        await self.on_partitions_assigned(set(partitions), app.consumer_generation_id)

    def assignment(self) -> set[TP]:
        return set(self._next)

    # Fetching.

    async def _getmany(
        self, active_partitions: set[TP] | None, timeout: float
    ) -> dict[TP, list[Row]]:
        wanted = self._next if active_partitions is None else active_partitions
        self._arrived.clear()
        found = self._fetch(wanted)
        if not found and self.flow_active:
            try:
                # Not `wait_for`: Python 3.11's loses a cancellation that comes as the event is set.
                async with asyncio.timeout(timeout):
                    await self._arrived.wait()
            except TimeoutError:
                return {}
            found = self._fetch(wanted)
        return found

    def _fetch(self, wanted: Iterable[TP]) -> dict[TP, list[Row]]:
        found: dict[TP, list[Row]] = {}
        if self._store is not None and self.flow_active:
            for tp in list(wanted):
                rows = self._store.read(tp.topic, tp.partition, self._next[tp], FETCH_ROWS)
                if rows:
                    found[tp] = rows
                    self._next[tp] = rows[-1][0] + 1
        return found

    def _to_message(self, tp: TP, record: Row) -> ConsumerMessage:
        offset, timestamp_ms, key, value = record
        return ConsumerMessage(
            tp.topic,
            tp.partition,
            offset,
            timestamp_ms / 1000.0,
            0,
            [],
            key,
            value,
            None,
            len(key or b""),
            len(value or b""),
            tp,
            generation_id=self.app.consumer_generation_id,
        )

    def resume_flow(self) -> None:
        super().resume_flow()
        self._arrived.set()

    def resume_partitions(self, tps: Iterable[TP]) -> None:
        super().resume_partitions(tps)
        self._arrived.set()

    # Positions.

    def _new_topicpartition(self, topic: str, partition: int) -> TP:
        return TP(topic, partition)

    async def _commit(self, offsets: Mapping[TP, int]) -> bool:
        return True  # offsets of a group are not kept: deliveries are hints

    async def seek_to_committed(self) -> Mapping[TP, int]:
        return {}

    async def _seek(self, partition: TP, offset: int) -> None:
        self._next[partition] = offset
        self._arrived.set()

    async def seek_wait(self, partitions: Mapping[TP, int]) -> None:
        for partition, offset in partitions.items():
            await self.seek(partition, max(offset, 0))

    async def seek_to_beginning(self, *partitions: TP) -> None:
        for partition in partitions:
            await self._seek(partition, 0)

    async def position(self, tp: TP) -> int | None:
        return self._next.get(tp)

    def highwater(self, tp: TP) -> int:
        return 0 if self._store is None else self._store.end(tp.topic, tp.partition)

    async def highwaters(self, *partitions: TP) -> Mapping[TP, int]:
        return {tp: self.highwater(tp) for tp in partitions}

    async def earliest_offsets(self, *partitions: TP) -> Mapping[TP, int]:
        assert self._store is not None, "a consumer that is not started has no offsets"
        return {tp: self._store.start(tp.topic, tp.partition) for tp in partitions}

    # Topics.

    def topic_partitions(self, topic: str) -> int:
        return int(self.transport.partitions(topic))

    def key_partition(
        self, topic: str, key: bytes | None, partition: int | None = None
    ) -> int | None:
        return 0 if partition is None else partition

    async def create_topic(self, topic: str, *args: Any, **settings: Any) -> None:
        self.transport.declare(topic, settings)


class Producer(FaustProducer):
    """Appends what Faust sends (table changelogs): in order, one durable commit for all that waits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._store: Store | None = None
        self._waiting: list[
            tuple[tuple[str, int, bytes | None, bytes | None], asyncio.Future[Any]]
        ] = []
        self._appending: asyncio.Task[None] | None = None

    async def on_start(self) -> None:
        await super().on_start()
        self._store = acquire(self.transport.path)

    async def on_stop(self) -> None:
        await super().on_stop()
        await self.flush()
        store, self._store = self._store, None
        if store is not None:
            release(store)

    async def send(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partition: int | None,
        timestamp: float | None,
        headers: Any,
        *,
        transactional_id: str | None = None,
    ) -> Awaitable[RecordMetadata]:
        sent: asyncio.Future[RecordMetadata] = asyncio.get_running_loop().create_future()
        self._waiting.append(((topic, partition or 0, key, value), sent))
        if self._appending is None or self._appending.done():
            self._appending = asyncio.create_task(self._append())
        return sent

    async def _append(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            assert self._store is not None, "a producer that is not started cannot send"
            try:
                offsets = await asyncio.to_thread(
                    self._store.append_many, [entry for entry, _ in waiting]
                )
            except Exception as error:  # noqa: BLE001 (whatever it is, the senders must hear it)
                for _, sent in waiting:
                    sent.set_exception(error)
                await self.crash(error)
                return
            for ((topic, number, _, _), sent), offset in zip(waiting, offsets, strict=True):
                if not sent.done():
                    tp = TP(topic, number)
                    sent.set_result(RecordMetadata(topic, number, tp, offset, 0.0, 0))

    async def send_and_wait(self, *args: Any, **kwargs: Any) -> RecordMetadata:
        return await (await self.send(*args, **kwargs))

    async def flush(self) -> None:
        await self.buffer.flush()
        if self._appending is not None:
            await self._appending

    async def create_topic(self, topic: str, *args: Any, **settings: Any) -> None:
        self.transport.declare(topic, settings)

    def key_partition(self, topic: str, key: bytes) -> TP:
        return TP(topic, 0)

    def supports_headers(self) -> bool:
        return False


class Transport(base.Transport):
    """The driver.

    `path` is the log's directory; every topic has as many partitions as the App says.
    """

    Consumer: ClassVar[type[Consumer]] = Consumer
    Producer: ClassVar[type[Producer]] = Producer
    default_port = 0
    driver_version = f"rocksdict={version('rocksdict')}"

    def __init__(self, url: list[URL], app: Any, loop: Any = None) -> None:
        super().__init__(url, app, loop)
        self.path: str = url[0].path
        if app.in_transaction:
            raise ImproperlyConfigured("embedded: exactly-once is not offered; use at-least-once")

    def partitions(self, topic: str) -> int:
        """Partitions of a topic: the domains that this App's topics are declared for."""
        return int(self.app.conf.topic_partitions)

    def declare(self, topic: str, settings: Mapping[str, Any]) -> None:
        """Make a topic known to the log; a table's changelog is compacted."""
        store = acquire(self.path)
        try:
            store.declare(topic, compacted=bool(settings.get("compacting")))
        finally:
            release(store)
