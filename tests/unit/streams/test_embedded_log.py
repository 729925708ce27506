"""The embedded log by itself: one writing process, followers, crashes, damage, memory bounds."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from schemas.errors import Fatal, LockstepError, Unavailable
from streams.embedded import store as embedded
from streams.embedded.store import Store, acquire, release
from streams.log import open_reader, open_writer

#: Appends numbers in bursts to two topics until it is killed; prints what is durable.
WRITER = """
import sys
from streams.log import open_writer
writer = open_writer(sys.argv[1])
number = int(sys.argv[2])
while True:
    writer.append_many([("pods", b"k", b"%d" % n) for n in range(number, number + 7)]
                       + [("checkpoints", b"c%d" % (number % 3), b"%d" % number)])
    number += 7
    print(number, flush=True)
"""


@pytest.fixture(name="url")
def an_embedded_log(tmp_path: Path) -> str:
    """The address of an embedded log that is not there yet."""
    return f"embedded://{tmp_path}/log"


def start_writer(url: str, number: int) -> "subprocess.Popen[str]":
    """Another process that appends from `number` on."""
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, url, str(number)], stdout=subprocess.PIPE, text=True
    )


def numbers(url: str) -> list[int]:
    """Every value of `pods`."""
    reader = open_reader(url)
    found: list[int] = []
    while chunk := reader.read("pods", len(found), 1000):
        assert list(range(len(found), len(found) + len(chunk))) == [r.offset for r in chunk]
        found += [int(record.value or b"-1") for record in chunk]
    reader.close()
    return found


def test_killed_writer_loses_nothing_and_tears_nothing(url: str) -> None:
    """After each SIGKILL everything reported durable is there, whole bursts only, no hole."""
    number = 0
    for lines in (40, 3, 25, 1):
        with start_writer(url, number) as process:
            assert process.stdout is not None
            for _ in range(lines):
                durable = int(process.stdout.readline())
            process.send_signal(signal.SIGKILL)
            process.wait()
        found = numbers(url)
        assert list(range(len(found))) == found
        assert len(found) >= durable
        assert 0 == len(found) % 7
        number = len(found)
    reader = open_reader(url)
    kept = reader.read("checkpoints", 0, 1000)
    reader.close()
    assert 3 == len({record.key for record in kept}) == len(kept)


def test_second_writing_process_gets_one_clear_error(url: str) -> None:
    """While a process writes, another cannot, and is told what to do; reading is possible."""
    with start_writer(url, 0) as process:
        assert process.stdout is not None
        durable = int(process.stdout.readline())
        with pytest.raises(LockstepError, match="another process writes it; stop that one first"):
            open_writer(url)
        assert numbers(url)[:durable] == list(range(durable))
        process.kill()
    open_writer(url).close()


def test_damage_is_not_taken_for_another_writer(tmp_path: Path) -> None:
    """A log that cannot be opened says why, whatever its directory is called."""
    url = f"embedded://{tmp_path}/lockstep"
    open_writer(url).close()
    for manifest in tmp_path.glob("lockstep/MANIFEST-*"):
        manifest.write_bytes(b"no manifest")
    with pytest.raises(LockstepError, match="cannot open: Corruption"):
        open_writer(url)


def test_follower_sees_what_another_process_appends(url: str) -> None:
    """A reader in another process follows while the writer goes on."""
    with start_writer(url, 0) as process:
        assert process.stdout is not None
        process.stdout.readline()
        reader = open_reader(url)
        found: list[int] = []
        while len(found) < 500:
            chunk = reader.read("pods", len(found), 100, timeout_s=5)
            assert chunk, "nothing came within five seconds"
            found += [int(record.value or b"-1") for record in chunk]
        process.kill()
        reader.close()
    assert list(range(len(found))) == found


def test_reader_opened_first_sees_the_writer_of_its_process(url: str) -> None:
    """A reader that began as a follower reads from memory once its own process writes."""
    first = open_writer(url)
    first.append("pods", None, b"0")
    first.close()
    reader = open_reader(url)
    writer = open_writer(url)
    writer.append("pods", None, b"1")
    assert [b"0", b"1"] == [record.value for record in reader.read("pods", 0, 10)]
    writer.close()
    assert [b"1"] == [record.value for record in reader.read("pods", 1, 10)]
    reader.close()


def test_no_log_is_said(url: str) -> None:
    """Reading where nothing was ever written names the path and how it is made."""
    with pytest.raises(LockstepError, match="there is none; `lockstep run` makes it"):
        open_reader(url)


def last_wal(path: Path) -> Path:
    """The newest write-ahead file."""
    return max(path.glob("*.log"), key=lambda file: int(file.stem))


def test_torn_tail_is_cut_off(url: str, tmp_path: Path) -> None:
    """A write that a power cut left half done is not there; everything before it is."""
    with start_writer(url, 0) as process:
        assert process.stdout is not None
        for _ in range(20):
            process.stdout.readline()
        process.kill()
    before = numbers(url)
    wal = last_wal(tmp_path / "log")
    os.truncate(wal, wal.stat().st_size - 5)
    writer = open_writer(url)
    assert list(range(len(before) - 7)) == numbers(url)
    assert len(before) - 7 == writer.append("pods", None, b"%d" % (len(before) - 7))
    writer.close()


def test_damage_before_the_tail_is_an_error(url: str, tmp_path: Path) -> None:
    """A damaged record with good ones behind it stops the open: nothing is skipped in silence."""
    with start_writer(url, 0) as process:
        assert process.stdout is not None
        for _ in range(50):
            process.stdout.readline()
        process.kill()
    wal = last_wal(tmp_path / "log")
    data = bytearray(wal.read_bytes())
    data[len(data) // 3] ^= 0xFF
    wal.write_bytes(data)
    with pytest.raises(LockstepError, match="cannot open"):
        open_writer(url)


def test_damaged_block_is_an_error(url: str, tmp_path: Path) -> None:
    """A flipped byte in a table file is found by whoever reads over it, writer or follower."""
    filling = open_writer(url)
    for _ in range(20):
        filling.append_many([("pods", None, os.urandom(60)) for _ in range(500)])
    store = acquire(url.removeprefix("embedded://"))
    store._db.flush()
    release(store)
    filling.close()
    table = max((tmp_path / "log").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    for writing in (False, True):
        writer = open_writer(url) if writing else None
        reader = open_reader(url)
        with pytest.raises(Fatal, match="damaged after offset"):
            reader.read("pods", 0, 20_000)
        reader.close()
        if writer is not None:
            writer.close()


@pytest.mark.parametrize("left", [None, 0.5], ids=["gone", "short"])
def test_missing_file_is_an_error(url: str, tmp_path: Path, left: float | None) -> None:
    """A log without one of its files is no shorter history, neither for a writer nor for a follower."""
    filling = open_writer(url)
    filling.append("pods", None, b"1" * 1000)
    acquired = acquire(str(tmp_path / "log"))
    acquired._db.flush()
    release(acquired)
    filling.close()
    table = max((tmp_path / "log").glob("*.sst"), key=lambda file: file.stat().st_size)
    if left is None:
        table.unlink()
    else:
        os.truncate(table, int(table.stat().st_size * left))
    for open_it in (open_reader, open_writer):
        with pytest.raises(LockstepError, match=table.name):
            open_it(url)


def test_memory_tail_is_bounded_and_seamless(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reads across the edge between database and memory see every record once."""
    monkeypatch.setattr(embedded, "TAIL_RECORDS", 10)
    writer, reader = open_writer(url), open_reader(url)
    for first in range(0, 95, 5):
        writer.append_many([("pods", None, b"%d" % n) for n in range(first, first + 5)])
    for limit in (1, 3, 10, 200):
        found: list[bytes | None] = []
        while chunk := reader.read("pods", len(found), limit):
            found += [record.value for record in chunk]
        assert [b"%d" % n for n in range(95)] == found
    store = acquire(url.removeprefix("embedded://"))
    partition = store.partition("lockstep.pods", 0)
    assert partition is not None
    assert 10 <= len(partition.tail) <= 20
    monkeypatch.setattr(embedded, "TAIL_BYTES", 1000)
    writer.append_many([("pods", None, bytes(600))] * 5)
    assert 1 == len(partition.tail)
    assert 600 == partition.tail_bytes
    release(store)
    reader.close()
    writer.close()


def test_waiting_appends_share_one_commit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that append while a commit is under way are committed together by the next one."""
    writer = open_writer(url)
    writer.append("pods", None, b"first")
    first_in, go_on = threading.Event(), threading.Event()
    groups: list[int] = []
    whole = Store._write

    def slow(self: Store, commits: list[embedded._Commit]) -> object:
        groups.append(len(commits))
        first_in.set()
        assert go_on.wait(5)
        return whole(self, commits)

    monkeypatch.setattr(Store, "_write", slow)
    threads = [threading.Thread(target=writer.append, args=("pods", None, b"x")) for _ in range(6)]
    threads[0].start()
    assert first_in.wait(5)
    for thread in threads[1:]:
        thread.start()
    store = acquire(url.removeprefix("embedded://"))
    while len(store._waiting) < 5:
        threading.Event().wait(0.01)
    go_on.set()
    for thread in threads:
        thread.join()
    assert [1, 5] == groups
    assert 7 == store.end("lockstep.pods", 0)
    release(store)
    writer.close()


def test_failed_write_closes_the_log_for_appends(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a write of unknown outcome the writer admits it, and appends nothing more."""
    writer, reader = open_writer(url), open_reader(url)
    writer.append("pods", None, b"0")
    store = acquire(url.removeprefix("embedded://"))

    class FullDisk:
        def __init__(self, db: object) -> None:
            self._whole = db

        def write(self, *_: object) -> None:
            raise OSError("no space left on device")

        def __getattr__(self, name: str) -> object:
            return getattr(self._whole, name)

    whole = store._db
    monkeypatch.setattr(store, "_db", FullDisk(whole))
    with pytest.raises(Unavailable, match="no space left"):
        writer.append("pods", None, b"1")
    monkeypatch.setattr(store, "_db", whole)
    with pytest.raises(Fatal, match="restart to reopen it"):
        writer.append("pods", None, b"2")
    assert [b"0"] == [record.value for record in reader.read("pods", 0, 10)]
    release(store)
    reader.close()
    writer.close()
