"""The log's port: `LogReader` and `LogWriter`, and the one place that picks an adapter from an
address.

Every role, the command line and every test read and write the log through these two protocols. An
adapter is chosen by the address: `kafka://host:9092[,host2:9092]`, `embedded:///absolute/path`,
`memory://name`. The query `?prefix=x.` replaces the prefix of topic names (default `lockstep.`);
callers only ever say the short names of `schemas.topics`. A partition is a scheduling domain.

This module imports neither RocksDB nor a Kafka client: an adapter is loaded when its address is
first opened.
"""

import math
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, Self
from urllib.parse import parse_qsl, urlsplit

from schemas.errors import LockstepError
from schemas.topics import DEFAULT_PREFIX

#: Scheme of an address -> what it is, for the error message of an unknown one.
SCHEMES: Final = ("kafka://host:9092", "embedded:///path", "memory://name")

#: How a Kafka client may speak, and prove who it is: what both of our clients can.
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")
_VARIABLES: Final = "LOCKSTEP_KAFKA_"

#: What a writer is given: short topic name, key, value.
Entry = tuple[str, bytes | None, bytes | None]


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One message of a topic.

    `timestamp_ms` is the log's own (wall clock at append), for people only.
    """

    topic: str
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


class LogReader(Protocol):
    """Reads one domain of a log, outside any consumer group. Safe to use from several threads, one
    call at a time.

    Every method raises `Unavailable` when the log does not answer, `LockstepError` for a topic that
    does not exist.
    """

    def start_offset(self, topic: str) -> int:
        """Offset of the oldest record kept (the end offset when there is none)."""

    def end_offset(self, topic: str) -> int:
        """Offset that the next appended record will get."""

    def read(self, topic: str, offset: int, limit: int, timeout_s: float = 0.0) -> list[LogRecord]:
        """At most `limit` records with offsets >= `offset`, in order.

        Empty only when nothing at or after `offset` arrived within `timeout_s`. A first offset
        above the asked one means that what was between has been trimmed or compacted.
        """

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` (from any thread) after appends made in this process; returns what ends
        it.

        A log that is written by another process never calls: poll as well.
        """

    def close(self) -> None:
        """Give back threads, connections and files. Repeatable."""


class LogWriter(Protocol):
    """Appends to one domain of a log. Safe to use from several threads.

    Raises `Unavailable` when the outcome is not known (records may be in the log, in order, without
    holes, or not at all: read back), `Fatal` when this writer can never append again.
    """

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        """Append one record; it is durable when its offset is returned."""

    def append_many(self, entries: Sequence[Entry]) -> list[int]:
        """Append in order with one durable commit (atomic on the embedded log); returns the
        offsets.
        """

    def close(self) -> None:
        """Give back threads, connections and files; the embedded log may be opened by another
        process.
        """


@dataclass(frozen=True, slots=True)
class LogSettings:
    """How this process reaches the log: nothing here changes a decision.

    Secrets never stand in an address.
    """

    #: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    #: Files: certificate authorities, client certificate and its key.
    ssl_ca: str = ""
    ssl_certificate: str = ""
    ssl_key: str = ""
    ssl_key_password: str = field(default="", repr=False)
    #: How long a read or an append may wait for a broker before it is `Unavailable`.
    timeout_s: float = 30.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Settings from `LOCKSTEP_KAFKA_<FIELD>`; `…_SASL_PASSWORD_FILE` names a file with the
        password.

        Raises `LockstepError` that names the variable, never a value that may be secret.
        """

        def read(name: str, default: str = "") -> str:
            return environment.get(_VARIABLES + name, default)

        settings = cls(
            security_protocol=_choice(
                "SECURITY_PROTOCOL", read("SECURITY_PROTOCOL", "PLAINTEXT"), PROTOCOLS
            ),
            sasl_mechanism=read("SASL_MECHANISM").upper(),
            sasl_username=read("SASL_USERNAME"),
            sasl_password=read("SASL_PASSWORD")
            or _content("SASL_PASSWORD_FILE", read("SASL_PASSWORD_FILE")).strip(),
            ssl_ca=read("SSL_CA"),
            ssl_certificate=read("SSL_CERTIFICATE"),
            ssl_key=read("SSL_KEY"),
            ssl_key_password=read("SSL_KEY_PASSWORD"),
            timeout_s=_seconds("TIMEOUT_S", read("TIMEOUT_S", "30")),
        )
        settings._check()
        return settings

    def _check(self) -> None:
        """Finds here what a client would only say in its own words."""
        if self.security_protocol.startswith("SASL"):
            _choice("SASL_MECHANISM", self.sasl_mechanism, MECHANISMS)
        if self.security_protocol.endswith("SSL"):
            _content("SSL_CA", self.ssl_ca)
            _content("SSL_CERTIFICATE", self.ssl_certificate)
            _content("SSL_KEY", self.ssl_key)


def _choice(name: str, value: str, wanted: Sequence[str]) -> str:
    if value.upper() not in wanted:
        raise LockstepError(f"{_VARIABLES}{name}: want one of {', '.join(wanted)}")
    return value.upper()


def _content(name: str, file: str) -> str:
    """What stands in the file that a variable names; empty when it names none."""
    if not file:
        return ""
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise LockstepError(f"{_VARIABLES}{name}: cannot read {file}: {reason}") from error


def _seconds(name: str, value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise LockstepError(f"{_VARIABLES}{name}: want a number of seconds, such as 30")
    return seconds


@dataclass(frozen=True, slots=True)
class LogAddress:
    """A parsed `--log` address. `place` is host list, path or name, by scheme."""

    scheme: str
    place: str
    prefix: str = DEFAULT_PREFIX

    @classmethod
    def parse(cls, url: str) -> Self:
        """Raises `LockstepError` naming what is wrong with `url` and what would be right."""
        parts = urlsplit(url)
        if "@" in parts.netloc:  # first of all: the other messages show the address
            raise LockstepError(
                "log address: no user or password in it;"
                " set LOCKSTEP_KAFKA_SASL_USERNAME and LOCKSTEP_KAFKA_SASL_PASSWORD"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        prefix = query.pop("prefix", DEFAULT_PREFIX)
        if query:
            raise LockstepError(
                f"log address {url}: unknown option {sorted(query)[0]!r}; only prefix"
            )
        if parts.scheme == "embedded":
            if parts.netloc or not parts.path.strip("/"):
                raise LockstepError(f"log address {url}: want embedded:///absolute/path")
            return cls(parts.scheme, parts.path.rstrip("/"), prefix)
        place = parts.netloc
        if parts.scheme not in ("kafka", "memory") or not place or parts.path.strip("/"):
            raise LockstepError(f"log address {url}: want one of {', '.join(SCHEMES)}")
        return cls(parts.scheme, place, prefix)


class Arrivals:
    """Wakes threads and listeners of this process after appends; part of the logs that live in a
    process.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._listeners: list[Callable[[], None]] = []

    def notify(self) -> None:
        """Wake all who wait and call all who listen."""
        with self._condition:
            self._condition.notify_all()
            listeners = list(self._listeners)
        for listener in listeners:
            listener()

    def wait_for(self, arrived: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `arrived()` or the time is over; returns the last answer."""
        with self._condition:
            return self._condition.wait_for(arrived, timeout_s)

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` after every append; returns what ends it."""
        with self._condition:
            self._listeners.append(callback)

        def end() -> None:
            with self._condition:
                if callback in self._listeners:
                    self._listeners.remove(callback)

        return end


def open_reader(url: str, domain: int = 0, settings: LogSettings | None = None) -> LogReader:
    """A reader of one domain.

    Raises `LockstepError` for a bad address or a log that is not there.
    """
    address = LogAddress.parse(url)
    if address.scheme == "memory":
        from streams.log_memory import MemoryReader

        return MemoryReader(address, domain)
    if address.scheme == "embedded":
        from streams.embedded.log import EmbeddedReader

        return EmbeddedReader(address, domain)
    from streams.log_kafka import KafkaReader

    return KafkaReader(address, domain, settings or LogSettings.from_environment())


def open_writer(url: str, domain: int = 0, settings: LogSettings | None = None) -> LogWriter:
    """A writer of one domain.

    Raises `LockstepError` for a bad address or when another process writes it.
    """
    address = LogAddress.parse(url)
    if address.scheme == "memory":
        from streams.log_memory import MemoryWriter

        return MemoryWriter(address, domain)
    if address.scheme == "embedded":
        from streams.embedded.log import EmbeddedWriter

        return EmbeddedWriter(address, domain)
    from streams.log_kafka import KafkaWriter

    return KafkaWriter(address, domain, settings or LogSettings.from_environment())


def create_topics(
    url: str, domains: int = 1, replication: int | None = None, settings: LogSettings | None = None
) -> list[str]:
    """Make the topics that are missing, with the settings of `streams.topics`; returns their short
    names.

    `replication`: copies of each topic (default: 3, or the number of brokers if fewer). The
    embedded and the memory log make a topic when it is first written, so there it returns nothing.
    """
    address = LogAddress.parse(url)
    if address.scheme != "kafka":
        return []
    from streams.log_kafka_topics import create_kafka_topics

    return create_kafka_topics(
        address, domains, replication, settings or LogSettings.from_environment()
    )


def check_history(url: str, domains: int = 1, settings: LogSettings | None = None) -> None:
    """Raises `Fatal` when a topic of history was deleted from a log that holds records.

    Call it before `create_topics`, which would make an empty one in its place.
    """
    address = LogAddress.parse(url)
    if address.scheme == "kafka":
        from streams.log_kafka_topics import check_kafka_history

        check_kafka_history(address, domains, settings or LogSettings.from_environment())


def check_topics(url: str, domains: int = 1, settings: LogSettings | None = None) -> list[str]:
    """What differs from the settings of `streams.topics`, one line a difference; empty when all is
    right.
    """
    address = LogAddress.parse(url)
    if address.scheme != "kafka":
        return []
    from streams.log_kafka_topics import check_kafka_topics

    return check_kafka_topics(address, domains, settings or LogSettings.from_environment())
