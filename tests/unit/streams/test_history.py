"""Checkpoints, recovery from them, exports and imports, and what verification finds."""

import hashlib
import json
import random
from pathlib import Path

import pytest

from schemas.codec import sha256_hex
from schemas.errors import Fatal, LockstepError
from schemas.topics import CHECKPOINTS, DECISIONS, JOURNAL
from state.snapshot import encode, state_hash
from streams.checkpoints import (
    CHUNK_BYTES,
    Checkpointer,
    CheckpointStore,
    encode_key,
    join_chunks,
    split_chunks,
)
from streams.export import ExportHistory, export_history, import_history
from streams.history import Bound, HistoryDamaged, Start, log_id
from streams.log_memory import drop_memory_log, trim_memory_log
from streams.recovery import check_intake, recover, start_state
from streams.verify import verify
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, pod, settle


def fresh(name: str) -> Log:
    drop_memory_log(name)
    return Log(name)


def lived(name: str, moments: int = 6) -> tuple[Log, DeciderRole, Checkpointer]:
    """A log with some history: two records a moment, a node, and pods of which some wait; a
    checkpoint each moment.
    """
    log = fresh(name)
    log.sync_all()
    log.publish("nodes", node("n1", cpu=300))
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    settle(log, sequencer, decider, 1_000_000)
    writer = Checkpointer(CheckpointStore(log.reader), log.writer, records=1)
    for moment in range(moments):
        log.publish("pods", pod(f"p{moment}"))
        settle(log, sequencer, decider, (moment + 2) * 1_000_000)
        checkpoint(writer, decider)
    return log, decider, writer


def checkpoint(writer: Checkpointer, role: DeciderRole) -> None:
    writer.on_decided(role.decider.state, role.decider.journal_offset)
    taken = writer.claim(role.decider.decisions.sequence)
    assert taken is not None
    writer.write(taken, role.decider.accepted_offset)


def test_recovery_from_a_checkpoint_equals_recovery_from_the_genesis() -> None:
    """The newest checkpoint is used, and State, chains and open commands are those of a fold from
    record 1.
    """
    log, decider, _ = lived("equal")
    warm = recover(log.history())
    for record in log.reader.read(CHECKPOINTS, 0, 1_000):
        log.writer.append(CHECKPOINTS, record.key, None)
    cold = recover(log.history())
    assert (True, 0) == (warm.started_at > 1, cold.started_at)
    assert state_hash(cold.decider.state) == state_hash(warm.decider.state)
    assert state_hash(decider.decider.state) == state_hash(warm.decider.state)
    assert cold.open_commands == warm.open_commands
    assert 3 == len(warm.open_commands)
    assert (cold.decider.chain.last_hash, cold.decider.decisions.digest) == (
        warm.decider.chain.last_hash,
        warm.decider.decisions.digest,
    )
    assert cold.positions == warm.positions == {**cold.positions, "pods": 6}


def test_the_two_newest_checkpoints_are_kept() -> None:
    """Older ones get tombstones, chunks included, while the log still begins at record 1."""
    log, _, _ = lived("kept")
    store = CheckpointStore(log.reader)
    sequences = [manifest.sequence for manifest in store.manifests]
    assert 2 == len(sequences)
    keys = {record.key for record in log.reader.read(CHECKPOINTS, 0, 999) if record.value}
    assert {encode_key(sequence, chunk) for sequence in sequences for chunk in (0, 1)} == keys


def test_large_states_are_cut_into_chunks() -> None:
    """Bytes that compression cannot shrink take several chunks, and come back whole."""
    log, _, _ = lived("chunks", 1)
    (manifest,) = CheckpointStore(log.reader).manifests
    data = random.Random(1).randbytes(3 * CHUNK_BYTES)
    chunks = split_chunks(data)
    wanted = manifest.model_copy(
        update={"state_bytes": len(data), "state_hash": sha256_hex(data), "chunks": len(chunks)}
    )
    assert 4 == len(chunks)
    assert max(len(chunk) for chunk in chunks) == CHUNK_BYTES
    assert data == join_chunks(wanted, list(chunks))
    assert None is join_chunks(wanted, [*chunks[:-1], None])
    assert None is join_chunks(wanted, [chunks[0], chunks[0], *chunks[2:]])


@pytest.mark.parametrize("damage", ["digest", "chunk", "manifest", "missing chunk", "garbage key"])
def test_a_checkpoint_that_does_not_hold_is_passed_over(damage: str) -> None:
    """A wrong digest, damaged or missing bytes: the next older one is used, and the result is the
    same.
    """
    log, decider, _ = lived(f"damage-{damage}")
    newest, older = CheckpointStore(log.reader).manifests
    expected = older.sequence
    match damage:
        case "digest":
            bad = newest.model_copy(update={"digest": "0" * 64}).model_dump_json().encode()
            log.writer.append(CHECKPOINTS, encode_key(newest.sequence, 0), bad)
        case "chunk":
            log.writer.append(CHECKPOINTS, encode_key(newest.sequence, 1), b"zzz")
        case "manifest":
            log.writer.append(CHECKPOINTS, encode_key(newest.sequence, 0), b"{}")
        case "missing chunk":
            log.writer.append(CHECKPOINTS, encode_key(newest.sequence, 1), None)
        case _:
            log.writer.append(CHECKPOINTS, b"what", b"ever")
            expected = newest.sequence
    found = recover(log.history())
    assert (expected, decider.decider.state.digest) == (
        found.started_at,
        found.decider.state.digest,
    )


def test_a_pending_checkpoint_waits_for_its_own_decision() -> None:
    """It is claimed when the decision of its sequence is read back, not at another one, and once."""
    log = fresh("pending")
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    settle(log, sequencer, decider, 1)
    writer = Checkpointer(CheckpointStore(log.reader), log.writer)
    writer.on_decided(decider.decider.state, 1)
    assert writer.claim(1) is None
    writer.on_decided(decider.decider.state, 1, force=True)
    assert [False, True, False] == [writer.claim(sequence) is not None for sequence in (2, 1, 1)]


def test_history_at_a_moment() -> None:
    """State at a sequence, or at a time, is what had been folded by then."""
    log, _, _ = lived("moment")
    for bound, last_us in ((Bound(sequence=3), None), (Bound(timestamp_us=4_999_999), 4_000_000)):
        start, _ = start_state(log.history(), bound)
        found = verify(log.history(), start=start, bound=bound, compare=False)
        assert found.state is not None
        if bound.sequence is not None:
            assert 3 == found.state.sequence
        else:
            assert last_us == found.state.timestamp_us


def test_decisions_ahead_of_the_journal_stop_recovery() -> None:
    """A journal that lost its last record is named with the sequence, not repaired in silence."""
    log, _, _ = lived("whole", 2)
    short = fresh("short")
    for data in log.values(JOURNAL)[:-1]:
        short.writer.append(JOURNAL, None, data)
    for data in log.values(DECISIONS):
        short.writer.append(DECISIONS, None, data)
    last = json.loads(log.values(DECISIONS)[-1])["sequence"]
    with pytest.raises(Fatal, match=f"sequence {last} is ahead of the journal"):
        recover(short.history())
    found = verify(short.history()).difference
    assert found is not None
    assert (last, f"a decision {last} exists, but the journal has no such record") == (
        found.sequence,
        found.detail,
    )


def test_an_intake_topic_that_was_made_anew_stops_the_sequencer() -> None:
    """Its first messages would be taken for old ones."""
    log, _, _ = lived("intake", 2)
    check_intake(log.reader, recover(log.history()).positions)
    empty = fresh("intake-empty")
    with pytest.raises(Fatal, match="ends at offset 0"):
        check_intake(empty.reader, recover(log.history()).positions)


def test_a_record_that_breaks_the_chain_is_a_difference_and_a_stale_one_is_not() -> None:
    """A loser's leftovers are counted; an altered record is named even when no decision tells of
    it.
    """
    log, _, _ = lived("chain", 3)
    late = SequencerRole.recovered(log)
    other = SequencerRole.recovered(log)
    log.publish("pods", pod("late"))
    late.take_intake()
    other.take_intake()
    assert other.append(90_000_001)
    assert late.append(90_000_002)
    late.sequencer.offer("nodes", late.sequencer.wanted("nodes"), None)
    assert late.append(90_000_003)
    assert (None, 2) == (verify(log.history()).difference, verify(log.history()).stale)
    altered = fresh("altered")
    values = log.values(JOURNAL)
    for number, data in enumerate(values):
        damaged = number == len(values) - 4
        altered.writer.append(JOURNAL, None, data.replace(b"1", b"2", 1) if damaged else data)
    found = verify(altered.history()).difference
    assert found is not None
    assert f"chain broken at sequence {found.sequence}" in found.detail


@pytest.mark.parametrize("name", ["piece.log", "piece.log.gz"])
def test_an_export_replays_and_imports_to_the_same_history(name: str, tmp_path: Path) -> None:
    """From the genesis: verified as a file, imported into an empty log, verified there, equal
    bytes.
    """
    log, decider, _ = lived(f"export-{name}")
    header = export_history(log.history(), tmp_path / name, log_id="id")
    history = ExportHistory(tmp_path / name)
    assert (1, decider.decider.sequence, decider.decider.state.digest) == (
        header.first,
        header.until,
        header.digest,
    )
    found = verify(history)
    assert (None, header.digest, header.until) == (found.difference, found.digest, found.compared)
    copy = fresh(f"import-{name}")
    import_history(tmp_path / name, copy.reader, copy.writer)
    assert log.values(JOURNAL) == copy.values(JOURNAL)
    assert log.values(DECISIONS) == copy.values(DECISIONS)
    with pytest.raises(LockstepError, match="not empty"):
        import_history(tmp_path / name, copy.reader, copy.writer)


def test_equal_histories_give_equal_files(tmp_path: Path) -> None:
    """No clock and no file name enters an export."""
    log, _, _ = lived("same", 2)
    for name in ("a.gz", "b.gz"):
        export_history(log.history(), tmp_path / name, log_id="id")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_piece_from_the_middle_carries_its_checkpoint(tmp_path: Path) -> None:
    """It begins after the latest checkpoint before the asked sequence, and can be recovered from
    after an import.
    """
    log, decider, _ = lived("middle")
    last = decider.decider.sequence
    path = tmp_path / "piece"
    header = export_history(log.history(), path, log_id="id", first=last)
    assert (last, last) == (header.first, header.until)
    found = verify(ExportHistory(path))
    assert (None, 1, header.digest) == (found.difference, found.compared, found.digest)
    copy = fresh("middle-import")
    import_history(path, copy.reader, copy.writer)
    again = recover(copy.history())
    assert (last - 1, header.digest) == (again.started_at, again.decider.state.digest)
    assert encode(again.decider.state) == encode(decider.decider.state)
    assert 1 == verify(copy.history()).compared
    with pytest.raises(LockstepError, match="begins at sequence"):
        ExportHistory(path).start(Bound(sequence=1))
    with pytest.raises(LockstepError, match="begins at sequence"):
        ExportHistory(path).start(Bound(timestamp_us=0))


def test_every_flipped_byte_of_an_export_is_found(tmp_path: Path) -> None:
    """Each byte of the file in turn, header and end line included: never silent, and no later
    sequence than its own.
    """
    log, _, _ = lived("flip", 1)
    path = tmp_path / "piece"
    export_history(log.history(), path, log_id="id")
    data = path.read_bytes()
    for position in range(0, len(data), 7):
        flipped = bytearray(data)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        line = data[:position].count(b"\n")
        own = int(data.split(b"\n")[line].split(b" ")[1])
        with pytest.raises(HistoryDamaged) as damage:
            ExportHistory(path).check()
        assert own == damage.value.sequence


def flip(data: bytes, line_tag: bytes, what: bytes, becomes: bytes) -> bytes:
    """The last line of `line_tag` with one byte changed."""
    lines = data.split(b"\n")
    number = max(i for i, line in enumerate(lines) if line.startswith(line_tag))
    assert what in lines[number]
    lines[number] = lines[number].replace(what, becomes, 1)
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("what", "becomes"),
    [(b'"timestamp_us":2', b'"timestamp_us":3'), (b'"name":"p0"', b'"name":"q0"'),
     (b'"sequence":', b'"sequence":1'), (b':1}', b':1]')],
)  # fmt: skip
def test_damage_is_named_by_verification(what: bytes, becomes: bytes, tmp_path: Path) -> None:
    """A timestamp, a label, a sequence, a brace: the difference names the record's sequence."""
    log, decider, _ = lived("named", 1)
    path = tmp_path / "piece"
    export_history(log.history(), path, log_id="id")
    path.write_bytes(flip(path.read_bytes(), b"record", what, becomes))
    found = verify(ExportHistory(path)).difference
    assert found is not None
    assert decider.decider.sequence == found.sequence


def test_a_dropped_last_record_is_found(tmp_path: Path) -> None:
    """With its decision or without, with the end line or without."""
    log, decider, _ = lived("dropped", 2)
    path = tmp_path / "piece"
    export_history(log.history(), path, log_id="id")
    lines = path.read_bytes().splitlines(keepends=True)
    for kept in (lines[:-3] + lines[-1:], lines[:-3] + lines[-2:], lines[:-3]):
        path.write_bytes(b"".join(kept))
        found = verify(ExportHistory(path)).difference
        assert found is not None
        assert decider.decider.sequence == found.sequence
    path.write_bytes(b"".join(lines) + lines[-1])
    assert verify(ExportHistory(path)).difference is not None


def test_a_cut_gzip_file_is_found(tmp_path: Path) -> None:
    """A packed file that ends early names the first sequence that could not be read."""
    log, _, _ = lived("cut", 2)
    path = tmp_path / "piece.gz"
    export_history(log.history(), path, log_id="id")
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(HistoryDamaged):
        ExportHistory(path).check()


def test_a_damaged_file_is_not_imported(tmp_path: Path) -> None:
    """Nothing is appended from a file that does not hold."""
    log, _, _ = lived("refuse", 2)
    path = tmp_path / "piece"
    export_history(log.history(), path, log_id="id")
    path.write_bytes(flip(path.read_bytes(), b"decision", b"p1", b"p2"))
    copy = fresh("refuse-import")
    with pytest.raises(HistoryDamaged):
        import_history(path, copy.reader, copy.writer)
    assert ([], []) == (copy.values(JOURNAL), copy.values(DECISIONS))


@pytest.mark.parametrize("content", [b"", b"hello\n", b"header 1 0000000000000000 {}\n"])
def test_what_is_no_export_is_said_to_be_none(content: bytes, tmp_path: Path) -> None:
    """An empty or foreign file is an error with one line, not a crash."""
    path = tmp_path / "piece"
    path.write_bytes(content)
    with pytest.raises(LockstepError, match="piece"):
        ExportHistory(path)


def sealed(tag: bytes, sequence: bytes, payload: bytes) -> bytes:
    """A line whose check fits, whatever it says."""
    check = hashlib.sha256(b"%b %b %b" % (tag, sequence, payload)).hexdigest()[:16].encode()
    return b"%b %b %b %b\n" % (tag, sequence, check, payload)


@pytest.mark.parametrize(
    "span",
    [
        b'"from":"1","until":2,"decided":2',
        b'"from":1,"until":2.0,"decided":2',
        b'"from":1,"until":true,"decided":1',
        b'"from":0,"until":2,"decided":2',
        b'"from":3,"until":2,"decided":2',
        b'"from":1,"until":2,"decided":3',
        b'"from":1,"until":2,"decided":' + b"[" * 100_000,
    ],
)
def test_a_header_that_spans_nothing_is_none(span: bytes, tmp_path: Path) -> None:
    """Even when it was sealed: sequences are whole numbers, and stand in order."""
    path = tmp_path / "piece"
    payload = b'{"format":"lockstep-export/1","log":"id","digest":"",%b}' % span
    path.write_bytes(sealed(b"header", b"1", payload))
    with pytest.raises(LockstepError, match="no header line"):
        ExportHistory(path)


@pytest.mark.parametrize(
    ("tag", "number"), [(b"record", b"9" * 5_000), (b"rec\x1cord\x85", b"1"), (b"x" * 999, b"1")]
)
def test_a_line_in_a_wrong_place_is_one_short_line(
    tag: bytes, number: bytes, tmp_path: Path
) -> None:
    """The message quotes nothing of the file that could break it."""
    path = tmp_path / "piece"
    header = b'{"format":"lockstep-export/1","log":"id","digest":"","from":1,"until":1,"decided":1}'
    path.write_bytes(sealed(b"header", b"1", header) + sealed(tag, number, b"{}"))
    with pytest.raises(HistoryDamaged) as damage:
        ExportHistory(path).check()
    message = str(damage.value).removeprefix(str(path))
    assert (1, True) == (len(message.splitlines()), len(message) < 100)


def test_start_of_an_empty_log_is_the_genesis() -> None:
    """Nothing has happened, and nothing differs."""
    log = fresh("empty")
    assert Start() == log.history().first()
    assert (None, 0) == (verify(log.history()).difference, verify(log.history()).records)


def test_a_log_keeps_its_id_when_retention_removes_its_beginning() -> None:
    """Else the Lease would name another log, and nobody would act any more."""
    log, decider, _ = lived("eaten")
    named = log_id(log.history())
    _, older = CheckpointStore(log.reader).manifests
    trim_memory_log("eaten", JOURNAL, older.journal_offset)
    trim_memory_log("eaten", DECISIONS, older.decisions_offset - 1)
    assert 0 < log.reader.start_offset(JOURNAL)
    assert named == log_id(log.history()) != ""
    checkpoint_after = Checkpointer(CheckpointStore(log.reader), log.writer, records=1)
    assert named == CheckpointStore(log.reader).log_id()
    assert checkpoint_after.newest is not None
    assert named == checkpoint_after.newest.log_id
    found = recover(log.history())
    assert state_hash(decider.decider.state) == state_hash(found.decider.state)


def test_without_its_beginning_and_without_a_checkpoint_a_log_says_what_is_missing() -> None:
    """One clear error, not a State made of half a history."""
    log, _, _ = lived("headless")
    trim_memory_log("headless", JOURNAL, 2)
    for record in log.reader.read(CHECKPOINTS, 0, 1_000):
        log.writer.append(CHECKPOINTS, record.key, None)
    with pytest.raises(
        LockstepError, match=r"before offset 2 has been removed.*no usable checkpoint"
    ):
        recover(log.history())


@pytest.mark.parametrize(
    ("written", "read"), [(b'"version":1}', b'"version":2}'), (b'"tables":{', b'"tables":{"x":[],')]
)
def test_a_state_that_another_build_wrote_is_passed_over(written: bytes, read: bytes) -> None:
    """Another version, or a table unknown here: half a State would be taken for the whole one."""
    log, decider, _ = lived("another-build")
    newest, older = CheckpointStore(log.reader).manifests
    whole = CheckpointStore(log.reader).load(newest)
    assert whole is not None
    data = whole.state_bytes.replace(written, read)
    assert data != whole.state_bytes
    manifest = newest.model_copy(
        update={"state_bytes": len(data), "state_hash": sha256_hex(data), "chunks": 1}
    )
    CheckpointStore(log.reader).write(log.writer, manifest, split_chunks(data))
    found = recover(log.history())
    assert (older.sequence, decider.decider.state.digest) == (
        found.started_at,
        found.decider.state.digest,
    )
    trim_memory_log("another-build", JOURNAL, newest.journal_offset)
    trim_memory_log("another-build", DECISIONS, newest.decisions_offset - 1)
    with pytest.raises(LockstepError, match=rf"checkpoint {newest.sequence} is of another build"):
        recover(log.history())
