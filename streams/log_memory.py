"""The log in memory, for tests and `simulate`: the same port, nothing on disk.

`memory://name` names one log of this process; it stays until `drop_memory_log(name)`, so that a
test can close everything and start again on the same history. It must import neither RocksDB nor a
Kafka client.
"""

import threading
import time
from collections.abc import Callable, Sequence

from schemas.errors import LockstepError
from schemas.topics import DEFAULT_PREFIX
from streams.log import Arrivals, Entry, LogAddress, LogRecord
from streams.topics import SETTINGS

_Row = tuple[int, int, bytes | None, bytes | None]
_logs: dict[str, "_MemoryLog"] = {}
_logs_lock = threading.Lock()


class _MemoryLog:
    """All topics of all domains of one name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.arrivals = Arrivals()
        self.rows: dict[tuple[str, int], list[_Row]] = {}

    @classmethod
    def named(cls, name: str) -> "_MemoryLog":
        with _logs_lock:
            return _logs.setdefault(name, cls())


def drop_memory_log(name: str) -> None:
    """Forget the log `memory://name` and all it holds."""
    with _logs_lock:
        _logs.pop(name, None)


def trim_memory_log(name: str, topic: str, before: int, prefix: str = DEFAULT_PREFIX) -> None:
    """What retention does to domain 0 of a topic: rows below offset `before` go, all but the newest."""
    log = _MemoryLog.named(name)
    with log.lock:
        rows = log.rows.get((prefix + topic, 0), [])
        kept = [row for row in rows if row[0] >= before]
        rows[:] = kept or rows[-1:]


def cut_memory_log(
    name: str, topic: str, end: int, prefix: str = DEFAULT_PREFIX
) -> list[LogRecord]:
    """What an unclean election does to domain 0 of a topic: it ends at offset `end`; returns what is lost."""
    log = _MemoryLog.named(name)
    with log.lock:
        rows = log.rows.get((prefix + topic, 0), [])
        lost = [LogRecord(topic, *row) for row in rows if row[0] >= end]
        rows[:] = [row for row in rows if row[0] < end]
    return lost


class _End:
    """What reader and writer share: the named log, one domain, names of topics."""

    def __init__(self, address: LogAddress, domain: int) -> None:
        self._log = _MemoryLog.named(address.place)
        self._domain = domain
        self._prefix = address.prefix

    def _rows(self, topic: str) -> list[_Row]:
        if topic not in SETTINGS:
            raise LockstepError(f"no topic {self._prefix}{topic} in this log")
        return self._log.rows.setdefault((self._prefix + topic, self._domain), [])

    def close(self) -> None:
        """Nothing to give back."""


class MemoryReader(_End):
    """`LogReader` of a memory log."""

    def start_offset(self, topic: str) -> int:
        rows = self._rows(topic)
        return rows[0][0] if rows else 0

    def end_offset(self, topic: str) -> int:
        rows = self._rows(topic)
        return rows[-1][0] + 1 if rows else 0

    def read(self, topic: str, offset: int, limit: int, timeout_s: float = 0.0) -> list[LogRecord]:
        if timeout_s > 0 and self.end_offset(topic) <= offset:
            self._log.arrivals.wait_for(lambda: self.end_offset(topic) > offset, timeout_s)
        with self._log.lock:
            rows = self._rows(topic)
            # Nothing is ever taken out of the middle but in compacted topics, which are short.
            first = max(offset - (rows[0][0] if rows else 0), 0)
            if SETTINGS[topic].compacted:
                first = next((i for i, row in enumerate(rows) if row[0] >= offset), len(rows))
            return [LogRecord(topic, *row) for row in rows[first : first + limit]]

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        return self._log.arrivals.listen(callback)


class MemoryWriter(_End):
    """`LogWriter` of a memory log. Several writers may be open; appends are atomic."""

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        return self.append_many([(topic, key, value)])[0]

    def append_many(self, entries: Sequence[Entry]) -> list[int]:
        timestamp_ms = time.time_ns() // 1_000_000
        offsets = []
        with self._log.lock:
            targets = [self._rows(topic) for topic, _, _ in entries]
            for (topic, key, value), rows in zip(entries, targets, strict=True):
                offset = rows[-1][0] + 1 if rows else 0
                if SETTINGS[topic].compacted and key is not None:
                    rows[:] = [row for row in rows if row[2] != key]
                rows.append((offset, timestamp_ms, key, value))
                offsets.append(offset)
        if offsets:
            self._log.arrivals.notify()
        return offsets
