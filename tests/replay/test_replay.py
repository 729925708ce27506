"""Determinism: the same journal gives the same bytes, in any process, from any starting point, whatever the hash seed.

`pytest tests/replay --rewrite` records the golden journal anew; a change of it is a change of past decisions.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas.codec import encode
from schemas.topics import DECISIONS, JOURNAL
from state import invariants, snapshot
from state.machine import apply
from state.model.state import State
from streams.history import LogHistory
from streams.log import open_reader, open_writer
from streams.log_memory import drop_memory_log
from streams.translate import to_decision
from streams.verify import Verification, verify
from tests.replay import journals
from tests.replay.journals import GOLDEN, GOLDEN_SEED, GOLDEN_STEPS, Journal, fold, load, resealed

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def walked() -> Journal:
    """A journal of a random walk under the code of today."""
    return journals.recorded(3, 120)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Journal:
    """The golden journal; with `--rewrite`, recorded anew."""
    if request.config.getoption("--rewrite"):
        journals.save(journals.recorded(GOLDEN_SEED, GOLDEN_STEPS), GOLDEN)
    return load(GOLDEN)


@pytest.fixture
def log_name() -> Iterator[str]:
    """A memory log that is forgotten afterwards."""
    yield "replay"
    drop_memory_log("replay")


def verified(journal: Journal, name: str) -> Verification:
    """What verification finds in a log that holds the journal."""
    url = f"memory://{name}"
    reader, writer = open_reader(url), open_writer(url)
    writer.append_many([(JOURNAL, None, data) for data in journal.records])
    writer.append_many([(DECISIONS, None, data) for data in journal.decisions])
    return verify(LogHistory(reader, reader))


def digest_of(journal: Journal) -> str:
    """The digest after the last decision."""
    return str(json.loads(journal.decisions[-1])["digest"])


def in_fresh_process(hash_seed: str, *arguments: str) -> str:
    """What Python prints when it runs a module with that hash seed."""
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_the_golden_journal_gives_the_bytes_of_then(golden: Journal) -> None:
    """Every decision of the recorded journal is derived again, byte for byte."""
    _, decisions = fold(golden.records)
    for position, (expected, actual) in enumerate(zip(golden.decisions, decisions, strict=True)):
        assert json.loads(expected) == json.loads(actual), f"sequence {position + 1}"
        assert expected == actual


def test_the_golden_journal_is_about_something(golden: Journal) -> None:
    """Binds, evictions, refusals, gangs and lists are in it."""
    commands = [item for data in golden.decisions for item in json.loads(data)["commands"]]
    kinds = {item["kind"] for item in commands}
    seen = {item["kind"] for data in golden.records for item in json.loads(data)["observations"]}
    assert {"BindPod", "EvictPod", "PatchStatus", "EmitEvent"} == kinds
    assert {"CommandEnded", "ObjectGone", "PodGroupObserved", "SyncFinished"} <= seen
    assert GOLDEN.stat().st_size < 200_000


@pytest.mark.parametrize("hash_seed", ["0", "1", "random"])
def test_a_fresh_process_with_any_hash_seed_ends_in_the_same_digest(
    walked: Journal, hash_seed: str, tmp_path: Path
) -> None:
    """Nothing depends on the order of sets or on anything that a process is born with."""
    journals.save(walked, tmp_path / "journal")
    digest = in_fresh_process(hash_seed, "-m", "tests.replay.journals", str(tmp_path / "journal"))
    assert digest_of(walked) == digest


def test_the_generator_gives_the_same_journal_in_a_fresh_process(walked: Journal) -> None:
    """A seed names one journal, whatever the hash seed."""
    source = (
        "import hashlib; from tests.replay.journals import recorded;"
        "print(hashlib.sha256(b''.join(recorded(3, 120).records)).hexdigest())"
    )
    expected = hashlib.sha256(b"".join(walked.records)).hexdigest()
    assert expected == in_fresh_process("random", "-c", source)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_start_from_a_snapshot_goes_on_as_a_cold_start(walked: Journal, share: float) -> None:
    """Every decision after it is the same, and so is State."""
    middle = int(len(walked.records) * share)
    cold, decisions = fold(walked.records)
    half, _ = fold(walked.records[:middle])
    warm, rest = fold(walked.records[middle:], snapshot.decode(snapshot.encode(half)))
    assert decisions[middle:] == rest
    assert snapshot.state_hash(cold) == snapshot.state_hash(warm)
    invariants.check(warm)


def test_a_follower_may_take_over_from_applying_to_deciding(walked: Journal) -> None:
    """A standby that only applied decisions decides the next records as the decider did."""
    middle = len(walked.records) // 2
    standby = State()
    for data in walked.decisions[:middle]:
        apply(standby, to_decision(data))
    _, rest = fold(walked.records[middle:], standby)
    assert walked.decisions[middle:] == rest


def test_verification_finds_nothing_in_a_good_journal(walked: Journal, log_name: str) -> None:
    """All decisions are compared."""
    found = verified(walked, log_name)
    assert (None, len(walked.records)) == (found.difference, found.compared)
    assert digest_of(walked) == found.digest


def test_a_journal_known_to_be_bad_is_reported(golden: Journal, log_name: str) -> None:
    """One bind names another node, in a chain that is whole: the sequence and the field are told."""
    position = next(
        index
        for index, data in enumerate(golden.decisions)
        if index > len(golden.decisions) // 2 and b'"BindPod"' in data
    )
    lie = json.loads(golden.decisions[position])
    bind = next(item for item in lie["commands"] if item["kind"] == "BindPod")
    bind["node"] = "somewhere-else"
    found = verified(resealed(golden, position, encode(lie)), log_name)
    assert found.difference is not None
    assert position + 1 == found.difference.sequence
    assert "somewhere-else" in found.difference.detail


def test_a_resealed_journal_is_good_without_a_lie(golden: Journal) -> None:
    """So that what is reported above is the lie, not the sealing."""
    assert golden == resealed(golden, 5, golden.decisions[5])
