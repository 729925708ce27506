"""The embedded log's reader and writer, as `streams.log` opens them.

Where this process writes the log, a reader sees a record as soon as it is durable, from memory;
elsewhere it follows the writer's files. Short topic names become whole names here; what a record
is made of and how it is kept is `streams.embedded.store`'s.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence

from schemas.errors import Fatal, LockstepError
from streams.embedded.store import CATCH_UP_S, Follower, Store, acquire, opened, release
from streams.log import Entry, LogAddress, LogRecord
from streams.topics import SETTINGS


class EmbeddedReader:
    """`LogReader` of an embedded log: from memory in the writing process, else following."""

    def __init__(self, address: LogAddress, domain: int) -> None:
        self._path = os.path.realpath(address.place)
        self._domain = domain
        self._prefix = address.prefix
        self._lock = threading.Lock()
        self._followed: Follower | None = None
        if opened(self._path) is None:
            self._followed = Follower(self._path)

    def _name(self, topic: str) -> str:
        if topic not in SETTINGS:
            raise LockstepError(f"no topic {self._prefix}{topic} in this log")
        return self._prefix + topic

    def _follower(self) -> Follower:
        if self._followed is None:
            self._followed = Follower(self._path)
        return self._followed

    def start_offset(self, topic: str) -> int:
        name, store = self._name(topic), opened(self._path)
        if store is not None:
            return store.start(name, self._domain)
        with self._lock:
            follower = self._follower()
            follower.catch_up()
            known = follower.topic(name)
            if known is None:
                return 0
            end = follower.end_of(known[0], self._domain)
            return follower.start_of(known[0], self._domain, end)

    def end_offset(self, topic: str) -> int:
        name, store = self._name(topic), opened(self._path)
        if store is not None:
            return store.end(name, self._domain)
        with self._lock:
            follower = self._follower()
            follower.catch_up()
            known = follower.topic(name)
            return 0 if known is None else follower.end_of(known[0], self._domain)

    def read(self, topic: str, offset: int, limit: int, timeout_s: float = 0.0) -> list[LogRecord]:
        name, store = self._name(topic), opened(self._path)
        if store is None:
            return self._read_following(topic, name, offset, limit, timeout_s)
        shared = store
        if timeout_s > 0 and shared.end(name, self._domain) <= offset:
            shared.arrivals.wait_for(lambda: shared.end(name, self._domain) > offset, timeout_s)
        return [LogRecord(topic, *row) for row in shared.read(name, self._domain, offset, limit)]

    def _read_following(
        self, topic: str, name: str, offset: int, limit: int, timeout_s: float
    ) -> list[LogRecord]:
        deadline = time.monotonic() + timeout_s
        while True:
            with self._lock:
                follower = self._follower()
                found = self._scan(follower, topic, name, offset, limit)
                if not found:
                    follower.catch_up()
                    found = self._scan(follower, topic, name, offset, limit)
            if found or time.monotonic() >= deadline:
                return found
            time.sleep(CATCH_UP_S)

    def _scan(
        self, follower: Follower, topic: str, name: str, offset: int, limit: int
    ) -> list[LogRecord]:
        known = follower.topic(name)
        if known is None or limit <= 0:
            return []
        found: list[LogRecord] = []
        end = follower.end_of(known[0], self._domain)
        for row in follower.rows(known[0], self._domain, max(offset, 0), end):
            found.append(LogRecord(topic, *row))
            if len(found) == limit:
                break
        return found

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        store = opened(self._path)
        return store.arrivals.listen(callback) if store is not None else lambda: None

    def close(self) -> None:
        with self._lock:
            if self._followed is not None:
                self._followed.close()
                self._followed = None


class EmbeddedWriter:
    """`LogWriter` of an embedded log; makes a topic when it is first written."""

    def __init__(self, address: LogAddress, domain: int) -> None:
        self._store: Store | None = acquire(address.place)
        self._domain = domain
        self._prefix = address.prefix
        self._declared: set[str] = set()

    def append(self, topic: str, key: bytes | None, value: bytes | None) -> int:
        return self.append_many([(topic, key, value)])[0]

    def append_many(self, entries: Sequence[Entry]) -> list[int]:
        if self._store is None:
            raise Fatal(f"embedded log: a closed writer cannot append to {self._prefix}…")
        for topic, _, _ in entries:
            if topic not in self._declared:
                if topic not in SETTINGS:
                    raise LockstepError(f"no topic {self._prefix}{topic} in this log")
                self._store.declare(self._prefix + topic, compacted=SETTINGS[topic].compacted)
                self._declared.add(topic)
        if not entries:
            return []
        return self._store.append_many(
            [(self._prefix + topic, self._domain, key, value) for topic, key, value in entries]
        )

    def close(self) -> None:
        store, self._store = self._store, None
        if store is not None:
            release(store)
