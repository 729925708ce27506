"""What every log must do, run on the memory log, the embedded log and a real Kafka broker."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from schemas.errors import LockstepError
from streams.log import (
    LogReader,
    LogSettings,
    LogWriter,
    check_topics,
    create_topics,
    open_reader,
    open_writer,
)
from streams.log_memory import drop_memory_log

SETTINGS = LogSettings(timeout_s=20.0)


class Place:
    """One log under test: its address, and every end that the test opened."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[LogReader | LogWriter] = []

    def reader(self, domain: int = 0) -> LogReader:
        reader = open_reader(self.url, domain, SETTINGS)
        self._opened.append(reader)
        return reader

    def writer(self, domain: int = 0) -> LogWriter:
        writer = open_writer(self.url, domain, SETTINGS)
        self._opened.append(writer)
        return writer

    def close(self) -> None:
        for end in self._opened:
            end.close()
        self._opened.clear()


@pytest.fixture(
    params=["memory", "embedded", pytest.param("kafka", marks=pytest.mark.kafka)], name="place"
)
def a_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """An empty log with two domains."""
    name = uuid4().hex[:8]
    if request.param == "memory":
        url = f"memory://{name}"
    elif request.param == "embedded":
        url = f"embedded://{tmp_path}/log"
    else:
        url = f"{request.getfixturevalue('kafka').url}?prefix=t{name}."
        create_topics(url, domains=2, settings=SETTINGS)
    place = Place(url)
    yield place
    place.close()
    drop_memory_log(name)


def values(reader: LogReader, topic: str, offset: int = 0, limit: int = 1000) -> list[bytes | None]:
    """The values of one read that need not wait."""
    return [record.value for record in reader.read(topic, offset, limit)]


def test_appended_is_read_back(place: Place) -> None:
    """A record comes back whole: topic, offset, key, value, and a time of now."""
    writer, before_ms = place.writer(), time.time() * 1000
    offset = writer.append("journal", b"k", b"v")
    (record,) = place.reader().read("journal", 0, 10)
    assert (0, "journal", 0, b"k", b"v") == (
        offset,
        record.topic,
        record.offset,
        record.key,
        record.value,
    )
    assert abs(record.timestamp_ms - before_ms) < 60_000


def test_missing_key_and_value_stay_missing(place: Place) -> None:
    """None and empty are told apart, for keys and for values."""
    place.writer().append_many([("journal", None, b""), ("journal", b"", b"x")])
    found = [(r.key, r.value) for r in place.reader().read("journal", 0, 10)]
    assert [(None, b""), (b"", b"x")] == found


def test_offsets_are_dense_and_in_order(place: Place) -> None:
    """Offsets count each topic alone, in the order of the entries, across calls."""
    writer = place.writer()
    first = writer.append_many([("pods", b"a", b"0"), ("nodes", b"n", b"0"), ("pods", b"b", b"1")])
    second = writer.append_many([("pods", b"c", b"2"), ("nodes", b"m", b"1")])
    assert ([0, 0, 1], [2, 1]) == (first, second)
    assert [b"0", b"1", b"2"] == values(place.reader(), "pods")


def test_read_respects_offset_and_limit(place: Place) -> None:
    """A read starts at its offset and ends at its limit, wherever the last read ended."""
    place.writer().append_many([("journal", None, str(i).encode()) for i in range(10)])
    reader = place.reader()
    assert [b"3", b"4"] == values(reader, "journal", 3, 2)
    assert [b"5", b"6"] == values(reader, "journal", 5, 2)
    assert [b"0"] == values(reader, "journal", 0, 1)
    assert [b"8", b"9"] == values(reader, "journal", 8, 50)
    assert [] == values(reader, "journal", 10)
    assert [] == values(reader, "journal", 11)
    assert [] == values(reader, "journal", 0, 0)


def test_ends_of_empty_and_filled_topics(place: Place) -> None:
    """Start and end are 0 on an empty topic; the end is the next offset."""
    reader_of_empty = place.writer()
    reader = place.reader()
    assert (0, 0) == (reader.start_offset("journal"), reader.end_offset("journal"))
    reader_of_empty.append_many([("journal", None, b"x")] * 3)
    assert (0, 3) == (reader.start_offset("journal"), reader.end_offset("journal"))


def test_interleaved_topics_each_from_their_place(place: Place) -> None:
    """One reader may read several topics in turn without losing its place in any."""
    writer, reader = place.writer(), place.reader()
    writer.append_many([(t, None, f"{t}{i}".encode()) for i in range(4) for t in ("pods", "nodes")])
    found = []
    for offset in range(4):
        found += values(reader, "pods", offset, 1) + values(reader, "nodes", offset, 1)
    assert [f"{t}{i}".encode() for i in range(4) for t in ("pods", "nodes")] == found


def test_domains_are_apart(place: Place) -> None:
    """A partition is a domain: what one appends the other never sees."""
    place.writer(0).append("journal", None, b"zero")
    place.writer(1).append_many([("journal", None, b"one"), ("journal", None, b"two")])
    assert [b"zero"] == values(place.reader(0), "journal")
    assert [b"one", b"two"] == values(place.reader(1), "journal")


def test_closed_and_opened_again_goes_on(place: Place) -> None:
    """History stays when every end is closed, and offsets go on where they ended."""
    place.writer().append_many([("journal", None, b"0"), ("journal", None, b"1")])
    place.close()
    assert 2 == place.writer().append("journal", None, b"2")
    assert [b"0", b"1", b"2"] == values(place.reader(), "journal")


def test_checkpoints_keep_the_newest_of_each_key(place: Place) -> None:
    """Readers of a compacted topic who take the last of each key see the newest, deletions
    included.
    """
    writer = place.writer()
    writer.append_many([("checkpoints", b"a", b"1"), ("checkpoints", b"b", b"1")])
    writer.append_many([("checkpoints", b"a", b"2"), ("checkpoints", b"b", None)])
    records = place.reader().read("checkpoints", 0, 100)
    assert {b"a": b"2", b"b": None} == {record.key: record.value for record in records}
    assert sorted(r.offset for r in records) == [r.offset for r in records]
    assert 4 == place.reader().end_offset("checkpoints")


def test_large_messages_pass(place: Place) -> None:
    """A message of 5 MiB goes through (it is dead-lettered by its size later, not lost here)."""
    body = bytes(5 * 1024 * 1024)
    place.writer().append("pods", b"big", body)
    assert [body] == values(place.reader(), "pods")


def test_bulk_reading_is_complete(place: Place) -> None:
    """Many records read in chunks of any size are all there, once, in order."""
    count = 12_000
    writer = place.writer()
    for first in range(0, count, 3000):
        writer.append_many([("pods", None, str(i).encode()) for i in range(first, first + 3000)])
    reader, found = place.reader(), []
    while chunk := reader.read("pods", len(found), 777):
        found += [record.value for record in chunk]
    assert [str(i).encode() for i in range(count)] == found


def test_waiting_read_ends_with_the_append(place: Place) -> None:
    """A read that waits returns soon after the append, and one that is given up returns empty."""
    writer, reader = place.writer(), place.reader()
    started = time.monotonic()
    assert [] == reader.read("journal", 0, 10, timeout_s=0.2)
    assert time.monotonic() - started >= 0.15
    timer = threading.Timer(0.2, lambda: writer.append("journal", None, b"x"))
    timer.start()
    found = reader.read("journal", 0, 10, timeout_s=15)
    timer.join()
    assert [b"x"] == [record.value for record in found]


def test_threads_append_without_loss(place: Place) -> None:
    """Appends from several threads all get their own offset, and each thread's stay in order."""
    writer, offsets = place.writer(), dict[int, list[int]]()

    def append(number: int) -> None:
        offsets[number] = [writer.append("pods", None, f"{number}:{i}".encode()) for i in range(25)]

    threads = [threading.Thread(target=append, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(100)) == sorted(offset for each in offsets.values() for offset in each)
    read = values(place.reader(), "pods")
    for number, mine in offsets.items():
        assert sorted(mine) == mine
        assert [f"{number}:{i}".encode() for i in range(25)] == [read[offset] for offset in mine]


def test_two_writers_share_one_order(place: Place) -> None:
    """Two writers of one log interleave into one order of offsets."""
    one, two = place.writer(), place.writer()
    offsets = [w.append("journal", None, str(i).encode()) for i in range(5) for w in (one, two)]
    assert list(range(10)) == offsets


def test_unknown_topic_is_named(place: Place) -> None:
    """A topic that is not ours is an error that names it."""
    with pytest.raises(LockstepError, match="nosuch"):
        place.writer().append("nosuch", None, b"x")
    with pytest.raises(LockstepError, match="nosuch"):
        place.reader().end_offset("nosuch")


def test_topics_are_right_after_create(place: Place) -> None:
    """`create_topics` leaves nothing to make and nothing that differs."""
    assert [] == create_topics(place.url, domains=2, settings=SETTINGS)
    assert [] == check_topics(place.url, domains=2, settings=SETTINGS)


def test_listeners_hear_appends_of_this_process(place: Place) -> None:
    """A listener hears appends until it is ended; never on Kafka, whose log lives elsewhere."""
    writer, reader = place.writer(), place.reader()
    heard: list[int] = []
    end: Callable[[], None] = reader.listen(lambda: heard.append(reader.end_offset("journal")))
    writer.append("journal", None, b"x")
    end()
    writer.append("journal", None, b"y")
    assert ([] if place.url.startswith("kafka") else [1]) == heard
