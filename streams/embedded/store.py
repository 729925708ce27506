"""The embedded log's database: every topic of every domain in one RocksDB (rocksdict) directory.

One process writes (RocksDB's own lock), any number of others follow it through a secondary
instance. Within the writing process all readers and writers of one path share one `Store`. Topic
names here are whole names. Called by `streams.embedded.log` and the Faust transport beside it.

Keys (big-endian): `L` topic id, partition, offset -> timestamp, key, value; `T` topic name -> topic
id, policy; `K` topic id, partition, record key -> offset of the newest record with that key
(compacted topics only).

A commit is one WriteBatch with a synced write-ahead log: after a crash all of it is there or none,
and a torn tail is cut off at the next open. Damage before the tail is an error, never skipped.
"""

import os
import struct
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rocksdict import (
    AccessType,
    DBCompressionType,
    DBRecoveryMode,
    Options,
    Rdict,
    WriteBatch,
    WriteOptions,
)

from schemas.errors import Fatal, LockstepError, Unavailable
from streams.log import Arrivals

#: What is kept of a record: offset, timestamp_ms, key, value.
Row = tuple[int, int, bytes | None, bytes | None]

_LOG_KEY: Final = struct.Struct(">cIIQ")
_PARTITION_KEY: Final = struct.Struct(">cII")
_OFFSET: Final = struct.Struct(">Q")
_TOPIC: Final = struct.Struct(">I?")
_HEAD: Final = struct.Struct(">qi?")
_OFFSET_MAX: Final = 2**64 - 1
#: Newest records of a partition held in memory: at most so many and so many bytes (either twice,
#: just before a cut).
TAIL_RECORDS: Final = 4096
TAIL_BYTES: Final = 16 * 1024 * 1024
WRITE_BUFFER_BYTES: Final = 32 * 1024 * 1024
#: A follower asks the writer's files for news at most so often.
CATCH_UP_S: Final = 0.02
#: How often a follower looks whether all files are there: a writer may just have merged some.
WHOLE_TRIES: Final = 3
WHOLE_PAUSE_S: Final = 0.1


def _encode(timestamp_ms: int, key: bytes | None, value: bytes | None) -> bytes:
    head = _HEAD.pack(timestamp_ms, -1 if key is None else len(key), value is not None)
    return b"".join((head, key or b"", value or b""))


def _decode(offset: int, data: bytes) -> Row:
    timestamp_ms, key_bytes, has_value = _HEAD.unpack_from(data)
    start = _HEAD.size
    if key_bytes < 0:
        return offset, timestamp_ms, None, data[start:] if has_value else None
    end = start + key_bytes
    return offset, timestamp_ms, data[start:end], data[end:] if has_value else None


def _options() -> Any:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_write_buffer_size(WRITE_BUFFER_BYTES)
    options.set_max_open_files(
        -1
    )  # a follower needs every file held open, or it loses compacted ones
    options.set_keep_log_file_num(2)
    # Only the unsynced end of the last write-ahead file may be torn; anything else is damage and
    # must be seen.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    return options


@dataclass(slots=True, eq=False)
class _Partition:
    """One partition in the writing process: its end and its newest rows."""

    topic_id: int
    number: int
    compacted: bool
    end: int
    tail_base: int
    tail: list[Row] = field(default_factory=list)
    tail_bytes: int = 0

    def extend(self, rows: list[Row]) -> None:
        self.end = rows[-1][0] + 1
        if self.compacted:
            return  # its rows may be superseded at once: always read from the database
        self.tail.extend(rows)
        self.tail_bytes += sum(len(row[2] or b"") + len(row[3] or b"") for row in rows)
        if len(self.tail) > 2 * TAIL_RECORDS or self.tail_bytes > 2 * TAIL_BYTES:
            kept, kept_bytes = 0, 0
            for row in reversed(self.tail):
                kept_bytes += len(row[2] or b"") + len(row[3] or b"")
                if kept == TAIL_RECORDS or kept_bytes > TAIL_BYTES:
                    kept_bytes -= len(row[2] or b"") + len(row[3] or b"")
                    break
                kept += 1
            del self.tail[: len(self.tail) - kept]
            self.tail_bytes = kept_bytes
            self.tail_base = self.end - kept


class _Database:
    """Reading of one open RocksDB, whoever opened it."""

    def __init__(self, db: Any) -> None:
        self._db = db

    def topic(self, name: str) -> tuple[int, bool] | None:
        """Id and policy of a topic; None while nobody has written it."""
        data = self._db.get(b"T" + name.encode())
        return None if data is None else _TOPIC.unpack(data)

    def end_of(self, topic_id: int, partition: int) -> int:
        cursor = self._db.iter()
        cursor.seek_for_prev(_LOG_KEY.pack(b"L", topic_id, partition, _OFFSET_MAX))
        return self._offset_at(cursor, topic_id, partition, 0, 1)

    def start_of(self, topic_id: int, partition: int, end: int) -> int:
        cursor = self._db.iter()
        cursor.seek(_LOG_KEY.pack(b"L", topic_id, partition, 0))
        return self._offset_at(cursor, topic_id, partition, end, 0)

    @staticmethod
    def _offset_at(cursor: Any, topic_id: int, partition: int, absent: int, add: int) -> int:
        if not cursor.valid():
            try:
                cursor.status()
            except Exception as error:
                raise Fatal(
                    f"embedded log: damaged: {error}; restore a copy", cause="log_damaged"
                ) from error
            return absent
        key = cursor.key()
        prefix = _PARTITION_KEY.pack(b"L", topic_id, partition)
        return _OFFSET.unpack_from(key, 9)[0] + add if key.startswith(prefix) else absent

    def rows(self, topic_id: int, partition: int, offset: int, end: int) -> Iterator[Row]:
        """Rows of [offset, end) in order; `end` is the partition's end.

        Raises `Fatal` when they end before it: the newest row is always kept, and RocksDB's
        iterator ends without a word at a damaged block.
        """
        stop = _LOG_KEY.pack(b"L", topic_id, partition, end)
        start = _LOG_KEY.pack(b"L", topic_id, partition, offset)
        unpack = _OFFSET.unpack_from
        reached = offset
        for key, data in self._db.items(from_key=start):
            if key >= stop:
                break
            reached = unpack(key, 9)[0] + 1
            yield _decode(reached - 1, data)
        if reached < end:
            raise Fatal(
                f"embedded log: damaged after offset {reached - 1} of {end} (topic id {topic_id},"
                f" domain {partition}); restore a copy of the directory",
                cause="log_damaged",
            )

    def close(self) -> None:
        self._db.close()


@dataclass(slots=True, eq=False)
class _Commit:
    """One `append_many` waiting for its group."""

    entries: Sequence[tuple[_Partition, bytes | None, bytes | None]]
    offsets: list[int] = field(default_factory=list)
    error: BaseException | None = None
    done: bool = False


class Store(_Database):
    """The log as its one writing process sees it. Topic names are whole names. Thread-safe."""

    def __init__(self, path: str) -> None:
        try:
            os.makedirs(path, exist_ok=True)
            db = Rdict(path, options=_options())
        except OSError as error:
            raise LockstepError(f"embedded log {path}: {error.strerror}") from error
        except Exception as error:
            raise _open_error(path, error) from error
        super().__init__(db)
        self.path = path
        self.arrivals = Arrivals()
        self.references = 0
        self._durable = WriteOptions()
        self._durable.sync = True
        self._partitions: dict[tuple[str, int], _Partition] = {}
        self._topics_next = self._count_topics()
        self._lock = threading.Lock()  # partitions and their tails
        self._turn = threading.Lock()  # whoever holds it commits for all who wait
        self._waiting: list[_Commit] = []
        self._broken: str | None = None

    def _count_topics(self) -> int:
        count, cursor = 0, self._db.iter()
        cursor.seek(b"T")
        while cursor.valid() and cursor.key().startswith(b"T"):
            count += 1
            cursor.next()
        cursor.status()  # raises at damage, where two topics would end up with one id
        return count

    def declare(self, topic: str, *, compacted: bool) -> None:
        """Make `topic` known with its policy; nothing happens when it is known."""
        with self._lock:
            if self.topic(topic) is None:
                data = _TOPIC.pack(self._topics_next, compacted)
                try:
                    self._db.put(b"T" + topic.encode(), data, self._durable)
                except Exception as error:
                    raise self._break(error) from error
                self._topics_next += 1

    def partition(self, topic: str, number: int) -> _Partition | None:
        """The partition's live end and tail; None for a topic that nobody declared."""
        found = self._partitions.get((topic, number))
        if found is not None:
            return found
        with self._lock:
            known = self.topic(topic)
            if known is None:
                return None
            topic_id, compacted = known
            end = self.end_of(topic_id, number)
            made = _Partition(topic_id, number, compacted, end, end)
            return self._partitions.setdefault((topic, number), made)

    def end(self, topic: str, number: int) -> int:
        partition = self.partition(topic, number)
        return 0 if partition is None else partition.end

    def start(self, topic: str, number: int) -> int:
        partition = self.partition(topic, number)
        if partition is None:
            return 0
        return self.start_of(partition.topic_id, number, partition.end)

    def read(self, topic: str, number: int, offset: int, limit: int) -> list[Row]:
        partition = self.partition(topic, number)
        if partition is None or limit <= 0:
            return []
        offset = max(offset, 0)
        with self._lock:
            end = partition.end
            if offset >= partition.tail_base and not partition.compacted:
                first = offset - partition.tail_base
                return partition.tail[first : first + limit]
        found: list[Row] = []
        for row in self.rows(partition.topic_id, number, offset, end):
            found.append(row)
            if len(found) == limit:
                break
        return found

    def append_many(
        self, entries: Sequence[tuple[str, int, bytes | None, bytes | None]]
    ) -> list[int]:
        """Append (topic, partition, key, value) in order, atomically and durably; returns offsets.

        Concurrent calls share one synced write: the first thread in commits for all that wait.
        """
        resolved = []
        for topic, number, key, value in entries:
            partition = self.partition(topic, number)
            if partition is None:
                raise LockstepError(f"embedded log {self.path}: topic {topic} was not declared")
            resolved.append((partition, key, value))
        mine = _Commit(resolved)
        with self._lock:
            self._waiting.append(mine)
        with self._turn:
            if not mine.done:
                with self._lock:
                    commits, self._waiting = self._waiting, []
                self._commit(commits)
        if mine.error is not None:
            raise mine.error
        if entries:
            self.arrivals.notify()
        return mine.offsets

    def _commit(self, commits: list[_Commit]) -> None:
        try:
            if self._broken is not None:
                raise Fatal(
                    f"embedded log {self.path}: {self._broken}; nothing later was taken; make room,"
                    " then restart to reopen it",
                    cause="log_write_failed",
                )
            rows = self._write(commits)
        except BaseException as error:
            for commit in commits:
                commit.error = error
                commit.done = True
            if not isinstance(error, Exception):
                raise
            return
        with self._lock:
            for partition, added in rows.items():
                partition.extend(added)
        for commit in commits:
            commit.done = True

    def _write(self, commits: list[_Commit]) -> dict[_Partition, list[Row]]:
        """One synced batch for all `commits`; fills in their offsets."""
        timestamp_ms = time.time_ns() // 1_000_000
        batch = WriteBatch(raw_mode=True)
        rows: dict[_Partition, list[Row]] = {}
        newest: dict[bytes, int] = {}
        for commit in commits:
            for partition, key, value in commit.entries:
                added = rows.setdefault(partition, [])
                offset = partition.end + len(added)
                log_key = _LOG_KEY.pack(b"L", partition.topic_id, partition.number, offset)
                batch.put(log_key, _encode(timestamp_ms, key, value))
                if partition.compacted and key is not None:
                    self._supersede(batch, partition, key, offset, newest)
                added.append((offset, timestamp_ms, key, value))
                commit.offsets.append(offset)
        try:
            self._db.write(batch, self._durable)
        except Exception as error:
            raise self._break(error) from error
        return rows

    def close(self) -> None:
        """After a failed write the database complains once more; what happened has been told then."""
        try:
            super().close()
        except Exception:
            if self._broken is None:
                raise

    def _break(self, error: Exception) -> Unavailable:
        """What reached the disk is unknown: this instance must not guess where the log ends."""
        self._broken = f"a write failed ({error})"
        return Unavailable(f"embedded log {self.path}: {self._broken}")

    def _supersede(
        self, batch: Any, partition: _Partition, key: bytes, offset: int, newest: dict[bytes, int]
    ) -> None:
        """Compaction at once: the record that `key` had before goes in the same batch."""
        pointer = _PARTITION_KEY.pack(b"K", partition.topic_id, partition.number) + key
        before = newest.get(pointer)
        if before is None and (stored := self._db.get(pointer)) is not None:
            before = _OFFSET.unpack(stored)[0]
        if before is not None:
            batch.delete(_LOG_KEY.pack(b"L", partition.topic_id, partition.number, before))
        newest[pointer] = offset
        batch.put(pointer, _OFFSET.pack(offset))


def _open_error(path: str, error: Exception) -> LockstepError:
    if "/LOCK: " in str(error):  # the lock file; a directory or a block may have "lock" in its name
        return LockstepError(
            f"embedded log {path}: another process writes it; stop that one first"
            " (reading is always possible)"
        )
    return LockstepError(f"embedded log {path}: cannot open: {error}")


_stores: dict[str, Store] = {}
_stores_lock = threading.Lock()


def acquire(path: str) -> Store:
    """The store of `path`, shared by everyone in this process; give it back with `release`."""
    path = os.path.realpath(path)
    with _stores_lock:
        store = _stores.get(path)
        if store is None:
            store = _stores[path] = Store(path)
        store.references += 1
        return store


def opened(path: str) -> Store | None:
    """The store of `path` (resolved) if this process writes it."""
    return _stores.get(path)


def release(store: Store) -> None:
    """Give back what `acquire` gave; the last one closes it, so that another process may write."""
    with _stores_lock:
        store.references -= 1
        if store.references == 0:
            _stores.pop(store.path, None)
            store.close()


class Follower(_Database):
    """A read-only view of a log that another process may be writing.

    It may show a record that the writer has written but not yet synced.
    """

    def __init__(self, path: str) -> None:
        if not os.path.exists(os.path.join(path, "CURRENT")):
            raise LockstepError(f"embedded log {path}: there is none; `lockstep run` makes it")
        _check_whole(path)
        self._directory = tempfile.TemporaryDirectory(prefix="lockstep-follow-")
        try:
            options = _options()
            options.create_if_missing(False)
            db = Rdict(
                path, options=options, access_type=AccessType.secondary(self._directory.name)
            )
        except Exception as error:
            self._directory.cleanup()
            raise _open_error(path, error) from error
        super().__init__(db)
        self._caught_up_at = 0.0

    def catch_up(self) -> None:
        now = time.monotonic()
        if now - self._caught_up_at >= CATCH_UP_S:
            self._db.try_catch_up_with_primary()
            self._caught_up_at = now

    def close(self) -> None:
        super().close()
        self._directory.cleanup()


def _check_whole(path: str) -> None:
    """Raises `LockstepError` when a file of the log is missing or short: a secondary instance would go back, without a
    word, to the last moment that the files left make up.
    """
    options = _options()
    options.create_if_missing(False)
    for left in reversed(range(WHOLE_TRIES)):
        try:
            Rdict(path, options=options, access_type=AccessType.read_only()).close()
            return
        except Exception as error:
            if not left:
                raise _open_error(path, error) from error
            time.sleep(WHOLE_PAUSE_S)
