"""Checkpoints that are none of the log's, or of an end that it has lost: they are not used, and hide nothing."""

import json

import pytest

from schemas.codec import sha256_hex
from schemas.errors import Fatal, LockstepError
from schemas.topics import CHECKPOINTS, DECISIONS, JOURNAL
from streams.checkpoints import Checkpointer, CheckpointStore, encode_key
from streams.log_memory import cut_memory_log, trim_memory_log
from streams.recovery import recover
from tests.unit.streams.pipeline import DeciderRole, SequencerRole, pod, settle
from tests.unit.streams.test_history import checkpoint, fresh, lived


def test_a_foreign_checkpoint_of_a_later_sequence_stops_no_others() -> None:
    """Of another log, or of an end that was lost: the next one is due in time all the same, and the two newest stay."""
    log, role, _ = lived("later")
    newest, _ = CheckpointStore(log.reader).manifests
    later = newest.model_copy(
        update={"sequence": 10**9, "timestamp_us": 10**12, "digest": "f" * 64}
    )
    for number, value in ((1, b"zzz"), (0, later.model_dump_json().encode())):
        log.writer.append(CHECKPOINTS, encode_key(later.sequence, number), value)
    writer = Checkpointer(CheckpointStore(log.reader), log.writer, records=1)
    assert newest == writer.newest
    log.publish("pods", pod("late"))
    settle(log, SequencerRole(log), role, 20_000_000)
    checkpoint(writer, role)
    found = [manifest.sequence for manifest in CheckpointStore(log.reader).standing()]
    assert [role.decider.sequence, newest.sequence] == found


@pytest.mark.parametrize("written_over", [0, 1, 3])
def test_a_checkpoint_beyond_the_journals_end_hides_no_loss(written_over: int) -> None:
    """Its State holds records that are gone: whoever began there would go on as if they were not."""
    name = f"beyond-{written_over}"
    log, decider, _ = lived(name)
    newest, _ = CheckpointStore(log.reader).manifests
    cut_memory_log(name, JOURNAL, newest.journal_offset - 2)
    prev = decider.decider.chain.last_hash
    for sequence in range(newest.sequence + 1, newest.sequence + 1 + written_over):
        data = _record(sequence, prev)
        log.writer.append(JOURNAL, None, data)
        prev = sha256_hex(data)
    with pytest.raises(Fatal, match=f"sequence {newest.sequence} is ahead of the journal"):
        recover(log.history())


@pytest.mark.parametrize("stale", [b"", b"{}"])
def test_nor_does_one_whose_log_has_lost_its_beginning_too(stale: bytes) -> None:
    """Older records stand before its place: retention, which eats from the head, has not removed its own."""
    name = f"beyond-headless-{len(stale)}"
    log, decider, _ = lived(name)
    newest, older = CheckpointStore(log.reader).manifests
    trim_memory_log(name, JOURNAL, older.journal_offset - 1)
    trim_memory_log(name, DECISIONS, older.decisions_offset - 1)
    cut_memory_log(name, JOURNAL, newest.journal_offset - 1)
    follows = _record(newest.sequence + 1, decider.decider.chain.last_hash)
    log.writer.append(JOURNAL, None, stale or follows)
    with pytest.raises(Fatal, match=f"sequence {newest.sequence} is ahead of the journal"):
        recover(log.history())


def test_what_follows_a_checkpoint_before_its_place_hides_no_loss() -> None:
    """A twin wrote it again where the tail had been, and nothing older is left to tell."""
    name = "beyond-followed"
    log, decider, _ = lived(name)
    newest, _ = CheckpointStore(log.reader).manifests
    left = newest.journal_offset - 2
    cut_memory_log(name, JOURNAL, left)
    for _ in range(2):
        follows = _record(newest.sequence + 1, decider.decider.chain.last_hash)
        log.writer.append(JOURNAL, None, follows)
    trim_memory_log(name, JOURNAL, left)
    trim_memory_log(name, DECISIONS, newest.decisions_offset - 1)
    with pytest.raises(LockstepError, match=r"has been removed.*no usable checkpoint"):
        recover(log.history())


def _record(sequence: int, prev: str) -> bytes:
    record = {"observations": [], "positions": {}, "prev": prev, "sequence": sequence}
    return json.dumps({**record, "timestamp_us": 9, "version": 1}).encode()


def test_stale_entries_before_its_place_leave_a_checkpoint_usable() -> None:
    """A stop writes a checkpoint after it has read what a loser left."""
    log = fresh("stale-before")
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    settle(log, sequencer, decider, 1)
    log.writer.append(JOURNAL, None, b"{}")
    settle(log, sequencer, decider, 2)
    checkpoint(Checkpointer(CheckpointStore(log.reader), log.writer, records=1), decider)
    (manifest,) = CheckpointStore(log.reader).manifests
    assert log.reader.end_offset(JOURNAL) == manifest.journal_offset > manifest.sequence
    assert manifest.sequence == recover(log.history()).started_at
