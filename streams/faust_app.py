"""Builds the Faust App of a role, for Kafka and for the embedded log alike. Called by
`streams.feed` and roles.

An App here delivers *hints*: what it hands to `on_message` may be late, doubled, stale or missing,
and `streams.feed` makes an exact sequence of it. So nothing is acknowledged and no group offset is
kept: a new assignment starts at the end of the topic. Exactly-once mode is never used.

There is no App at import time and no `faust.Worker`: the caller starts and stops the App inside its
own event loop, and keeps its signals. Several Apps may run in one loop.
"""

import ssl
import uuid
import weakref
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import faust
from faust.events import Event
from faust.streams import _current_event
from faust.types import TP, ConsumerMessage
from mode.threads import ServiceThread, WorkerThread

from schemas.errors import LockstepError
from streams.log import LogAddress, LogRecord, LogSettings
from streams.topics import MESSAGE_BYTES_MAX

OnMessage = Callable[[LogRecord], Awaitable[None]]

SESSION_TIMEOUT_S: Final = 10.0
#: RocksDB of a table. Small, so that five tables reach their full size within minutes and stay there: Faust's defaults
#: reserve a block cache of 2 GiB and three write buffers of 64 MiB for each.
TABLE_OPTIONS: Final = {
    "driver": "rocksdict",
    "block_cache_size": 4 * 1024 * 1024,
    "write_buffer_size": 2 * 1024 * 1024,
    "max_write_buffer_number": 2,
}
#: Keys whose partition Faust remembers, for each table; a table of ours has one.
KEY_INDEX_MAX: Final = 100


class _Thread(WorkerThread):
    """A consumer's thread. One that waits for a broker may never end, and must not keep a process that has ended."""

    def __init__(self, service: ServiceThread, **kwargs: Any) -> None:
        super().__init__(service, **kwargs)
        self.daemon = True

    def run(self) -> None:
        """Until the consumer has stopped. Whose loop is closed by then has nobody to tell that it has."""
        try:
            super().run()
        except RuntimeError:
            if not self.service.parent_loop.is_closed():
                raise


class LocalTable(faust.Table):
    """A Faust table that sends no changelog: `decisions` says it all, and several processes may keep tables.

    A changelog would hold the rows of whoever wrote last, be it the slower one, and bring them back at a recovery.
    """

    def on_key_set(self, key: Any, value: Any) -> None:
        """Called by Faust when a row was set."""
        self._sensor_on_set(self, key, value)

    def on_key_del(self, key: Any) -> None:
        """Called by Faust when a row was removed."""
        self._sensor_on_del(self, key)


def build_app(
    role: str,
    url: str,
    topics: Sequence[str],
    on_message: OnMessage,
    *,
    settings: LogSettings,
    datadir: Path,
    domain: int = 0,
    domains: int = 1,
) -> faust.App:
    """The App `PREFIX.ROLE` (`-DOMAIN` behind it, above domain 0) with one agent over `topics`.

    `topics` are short names. `on_message` gets each delivery of this domain, one at a time; an
    exception out of it is Faust's to log, so it should not raise. Tables go to RocksDB below
    `datadir`. Raises `LockstepError` for an address without a Faust transport.
    """
    address = LogAddress.parse(url)
    if address.scheme == "memory":
        raise LockstepError(f"log address {url}: there is no Faust transport for a memory log")
    app_id = f"{address.prefix}{role}" + (f"-{domain}" if domain else "")
    datadir.mkdir(parents=True, exist_ok=True)
    if address.scheme == "kafka":
        from faust.transport.drivers.aiokafka import AIOKafkaConsumerThread

        AIOKafkaConsumerThread.Worker = _Thread
    app = _app(app_id, address, settings, datadir, domains)
    channel = app.topic(
        *(address.prefix + topic for topic in topics),
        acks=False,
        key_serializer="raw",
        key_type=bytes,
        value_serializer="raw",
        value_type=bytes,
    )

    async def deliver(stream: Any) -> None:
        async for event in stream.events():
            message = event.message
            if message.partition == domain:
                topic = message.topic.removeprefix(address.prefix)
                timestamp_ms = int(message.timestamp * 1000)
                await on_message(
                    LogRecord(topic, message.offset, timestamp_ms, message.key, message.value)
                )

    app.agent(channel, name=f"{app_id}.deliver", concurrency=1)(deliver)
    return app


def _app(
    app_id: str, address: LogAddress, settings: LogSettings, datadir: Path, domains: int
) -> faust.App:
    return faust.App(
        app_id,
        autodiscover=False,
        broker=_broker(address),
        broker_commit_interval=5.0,
        broker_heartbeat_interval=3.0,
        broker_session_timeout=SESSION_TIMEOUT_S,
        consumer_auto_offset_reset="latest",
        consumer_group_instance_id=_member_id(datadir),
        consumer_max_fetch_size=MESSAGE_BYTES_MAX,
        datadir=str(datadir),
        processing_guarantee="at_least_once",
        producer_acks=-1,
        producer_linger=0.005,
        producer_max_request_size=MESSAGE_BYTES_MAX,
        store="rocksdb://",
        stream_recovery_delay=0.0,
        stream_wait_empty=False,
        table_key_index_size=KEY_INDEX_MAX,
        topic_disable_leader=True,
        topic_partitions=domains,
        web_enabled=False,
        **_credentials(settings),
    )


@contextmanager
def table_event(app: faust.App, record: LogRecord, domain: int = 0) -> Iterator[None]:
    """Within it Faust's tables can be written: they only take writes that belong to an event."""
    prefix = app.conf.id[: app.conf.id.rfind(".") + 1]
    tp = TP(prefix + record.topic, domain)
    message = ConsumerMessage(
        tp.topic,
        domain,
        record.offset,
        record.timestamp_ms / 1000,
        0,
        [],
        record.key,
        record.value,
        None,
        tp=tp,
    )
    event = Event(app, record.key, record.value, [], message)
    token = _current_event.set(weakref.ref(event))
    try:
        yield
    finally:
        _current_event.reset(token)


def _member_id(datadir: Path) -> str:
    """A static group member's name, kept with the data that only one process can hold.

    So a role that was killed rejoins at once, not when its old session has run out.
    """
    file = datadir / "member"
    # A full disk takes the name of a file and no more.
    if not file.exists() or not file.read_text():
        file.write_text(f"lockstep-{uuid.uuid4().hex}")
    return file.read_text()


def _broker(address: LogAddress) -> str | list[str]:
    if address.scheme == "embedded":
        return f"embedded://{address.place}"
    return ";".join(f"kafka://{host}" for host in address.place.split(","))


def _credentials(settings: LogSettings) -> dict[str, Any]:
    """Faust's form of TLS and SASL settings."""
    if settings.security_protocol == "PLAINTEXT":
        return {}
    context = None
    if settings.security_protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=settings.ssl_ca or None)
        if settings.ssl_certificate:
            context.load_cert_chain(
                settings.ssl_certificate,
                settings.ssl_key or None,
                settings.ssl_key_password or None,
            )
    if not settings.security_protocol.startswith("SASL"):
        return {"broker_credentials": faust.SSLCredentials(context)}
    return {
        "broker_credentials": faust.SASLCredentials(
            username=settings.sasl_username,
            password=settings.sasl_password,
            mechanism=settings.sasl_mechanism or "PLAIN",
            ssl_context=context,
        )
    }
