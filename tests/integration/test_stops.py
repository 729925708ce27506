"""What stops `lockstep run` for good: it says so once, ends with exit code 1, and stops there again.

On the embedded log, in processes of their own; no service is needed.
"""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lockstep.admin import ask
from schemas.codec import encode, sha256_hex
from schemas.errors import LockstepError
from schemas.topics import ADMIN, DECISIONS, JOURNAL
from streams.embedded.store import acquire, release
from streams.history import LogHistory
from streams.log import open_reader, open_writer
from streams.verify import verify
from tests.alerts import fires, produces
from tests.integration.api import wait_for
from tests.integration.lockstep_process import lockstep
from tests.integration.metered_run import MeteredRun
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, pod, settle

NOW_US = 1_800_000_000_000_000
#: Every step of the core but those up to a sequence fails.
BROKEN_RULE = """
import streams.decider as decider
step = decider.step
def broken(state, record):
    if record.sequence > {last}:
        raise ZeroDivisionError("in a rule")
    return step(state, record)
decider.step = broken
"""
SMALL_DISK = """
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))
"""
BROKEN_ROLE = """
import streams.roles as roles
async def fail(self):
    raise RuntimeError("a bug")
roles.SequencerRole._append = fail
"""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The address of an embedded log that is not there yet."""
    return f"embedded://{tmp_path}/log"


@pytest.fixture
def last(url: str) -> int:
    """A log with a pod placed; the sequence of its last record, which is decided."""
    log = Log(url)
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    log.sync_all()
    log.publish("nodes", node("n1"))
    log.publish("pods", pod("a"))
    settle(log, sequencer, decider, NOW_US)
    log.close()
    return decider.decider.sequence


@pytest.fixture
def start(tmp_path: Path, url: str) -> Iterator[object]:
    """Starts `lockstep run` with a fault, without waiting; ended after the test."""
    runs: list[MeteredRun] = []

    def begin(fault: str = "") -> MeteredRun:
        directory = tmp_path / f"run{len(runs)}"
        directory.mkdir()
        runs.append(MeteredRun(directory, url, fault))
        runs[-1].service.spawn()
        return runs[-1]

    yield begin
    for run in runs:
        run.service.stop()


def values(url: str, topic: str) -> list[bytes]:
    reader = open_reader(url)
    found = [record.value or b"" for record in reader.read(topic, 0, 10_000)]
    reader.close()
    return found


def append(url: str, topic: str, *data: bytes) -> None:
    writer = open_writer(url)
    writer.append_many([(topic, None, each) for each in data])
    writer.close()


def evictions(count: int, reason: str = "a test") -> bytes:
    """An administrator's message; the pods are not there, so each is answered and forgotten."""
    names = [f"nobody-{index}" for index in range(count)]
    requests = [
        {"kind": "EvictRequested", "id": n, "namespace": "d", "name": n, "reason": reason}
        for n in names
    ]
    return encode({"producer": "test", "observations": requests})


@produces("LockstepRecordUndecidable")
def test_a_poison_record_stops_the_decider_at_its_sequence(
    url: str, last: int, start: object, tmp_path: Path
) -> None:
    """A record that is accepted and cannot be decided: named, nothing published for it, the same after a restart,
    and the piece of history around it can be exported and shows the fault offline.
    """
    assert callable(start)
    record = values(url, JOURNAL)[-1]
    header = json.loads(record)
    append(
        url,
        JOURNAL,
        encode(
            {
                "observations": [{"kind": "Comet"}],
                "positions": header["positions"],
                "prev": sha256_hex(record),
                "sequence": last + 1,
                "timestamp_us": header["timestamp_us"],
                "version": 1,
            }
        ),
    )
    for _ in range(2):
        said = start().stops_with("LockstepRecordUndecidable")
        assert f"record {last + 1} cannot be decided" in said.splitlines()[-1]
        assert last == len(values(url, DECISIONS))
    file = tmp_path / "slice.jsonl.gz"
    code, _ = lockstep("log", "export", str(file), "--log", url, "--until", str(last + 1))
    assert 0 == code
    code, found = lockstep("replay", "--log", str(file))
    assert (1, last + 1) == (code, found["first_difference"]["sequence"])


@produces("LockstepRecordUndecidable")
def test_an_exception_in_a_rule_stops_the_decider_and_a_mended_build_goes_on(
    url: str, last: int, start: object
) -> None:
    """While it runs: what comes after is not decided, a restart stops at the same record, and a build without the
    fault decides it.
    """
    assert callable(start)
    run = start(BROKEN_RULE.format(last=last))
    run.service.wait_ready()
    ask(run.datadir, evictions(1))
    said = run.stops_with("LockstepRecordUndecidable")
    told = f"lockstep: record {last + 1} cannot be decided: ZeroDivisionError: in a rule; nothing"
    assert said.splitlines()[-1].startswith(told)
    assert last == len(values(url, DECISIONS))
    again = start(BROKEN_RULE.format(last=last)).stops_with("LockstepRecordUndecidable")
    assert again.splitlines()[-1].startswith(told)
    mended = start()
    mended.service.wait_ready()
    wait_for("the record decided", lambda: mended.value("lockstep_decisions_sequence") == last + 1)


@produces("LockstepDecisionDiverged")
def test_a_decision_that_differs_stops_the_decider_at_its_sequence(
    url: str, last: int, start: object
) -> None:
    """Another build's decision stands on the topic: this one stops, and says how to look at it."""
    assert callable(start)
    log = Log(url)
    sequencer, decider = SequencerRole.recovered(log), DeciderRole.recovered(log)
    log.publish("pods", pod("b"))
    sequencer.read()
    sequencer.take_intake()
    assert sequencer.append(NOW_US)
    decider.read()
    ((_, data),) = decider.decider.unpublished()
    whole = json.loads(data)
    log.writer.append(DECISIONS, None, encode({**whole, "digest": "0" * 64}))
    log.close()
    for _ in range(2):
        said = start().stops_with("LockstepDecisionDiverged")
        assert f"decision {last + 1} differs" in said.splitlines()[-1]
        assert f"`lockstep replay --verify --until {last + 1}`" in said.splitlines()[-1]
    code, found = lockstep("replay", "--log", url, "--verify", "--until", str(last + 1))
    assert (1, last + 1) == (code, found["first_difference"]["sequence"])


@produces("LockstepDecisionsAhead")
def test_decisions_ahead_of_the_journal_stop_it(
    url: str, last: int, start: object, tmp_path: Path
) -> None:
    """The journal lost its tail: deciding other records in its place would be a second history."""
    assert callable(start)
    journal, decisions = values(url, JOURNAL), values(url, DECISIONS)
    (tmp_path / "log").rename(tmp_path / "whole")
    append(url, JOURNAL, *journal[:-1])
    append(url, DECISIONS, *decisions)
    for _ in range(2):
        said = start().stops_with("LockstepDecisionsAhead")
        told = f"sequence {last} is ahead of the journal, which ends at {last - 1}"
        assert told in said.splitlines()[-1]
    assert (last - 1, last) == (len(values(url, JOURNAL)), len(values(url, DECISIONS)))


@produces("LockstepLogWriteFailed")
def test_a_full_disk_stops_it_and_what_was_promised_is_there_when_there_is_room(
    url: str, start: object
) -> None:
    """Every offset that was given out is in the log; the write that failed was refused; a restart goes on."""
    assert callable(start)
    run = start(SMALL_DISK)
    run.service.wait_ready()
    message = evictions(100, "r" * 100)
    promised: list[int] = []

    def fill() -> bool:
        with suppress(LockstepError):  # the write that fails is refused, and all later ones
            offset = ask(run.datadir, message)
            if offset is not None:
                promised.append(offset)
        return fires("LockstepLogWriteFailed", run.scrape())

    wait_for("the disk to be full", fill)
    said = run.stops_with("LockstepLogWriteFailed")
    assert "a write failed (" in said.splitlines()[-1]
    assert "make room, then restart" in said.splitlines()[-1]
    assert promised == list(range(len(promised)))
    assert [message] * len(promised) == values(url, ADMIN)[: len(promised)]
    again = start()
    again.service.wait_ready()
    assert ask(again.datadir, message) in (len(promised), len(promised) + 1)
    wait_for("its decisions", lambda: again.value("lockstep_decision_lag_records") == 0)
    again.service.stop()
    reader = open_reader(url)
    found = verify(LogHistory(reader, reader))
    reader.close()
    assert (None, 0) == (found.difference, found.undecided)


@produces("LockstepHistoryLost")
def test_a_damaged_block_stops_it(url: str, last: int, start: object, tmp_path: Path) -> None:
    """A flipped byte in what is to be folded: named with its offset, and nothing after it is skipped in silence."""
    assert callable(start)
    filling = open_writer(url)
    for _ in range(20):
        filling.append_many([(JOURNAL, None, os.urandom(60)) for _ in range(500)])
    store = acquire(url.removeprefix("embedded://"))
    store._db.flush()
    release(store)
    filling.close()
    table = max((tmp_path / "log").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[len(data) // 2] ^= 0xFF
    table.write_bytes(data)
    said = start().stops_with("LockstepHistoryLost")
    assert "damaged after offset" in said.splitlines()[-1]


@produces("LockstepStopped")
def test_a_bug_in_a_role_stops_all_of_them(start: object) -> None:
    """Whatever it was, the process says so and ends; whoever starts it again recovers from the log."""
    assert callable(start)
    said = start(BROKEN_ROLE).stops_with("LockstepStopped")
    assert "RuntimeError: a bug" in said.splitlines()[-1]
