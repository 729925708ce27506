"""Checkpoints: State bytes with the place in the log that they belong to, on the compacted topic
`checkpoints`.

Chunks first, then the manifest (chunk 0), so a checkpoint without a manifest does not exist. Keys
are `SEQUENCE/CHUNK`. Written by the decider's runner; read by recovery, verify, export and the
command line. Must not decide anything: a checkpoint is only ever a shortcut to what folding the
journal gives, and is checked against `decisions` before use.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from schemas.codec import encode, sha256_hex
from schemas.envelope import CheckpointManifest
from schemas.topics import CHECKPOINTS, DECISIONS, JOURNAL
from state.report import open_command_row
from state.snapshot import Frozen, freeze
from state.snapshot import encode as encode_state
from streams.chain import Chain, read_decision_header
from streams.log import LogReader, LogWriter
from streams.translate import State

#: Compressed bytes of one chunk.
CHUNK_BYTES: Final = 512 * 1024
#: Newest checkpoints kept; one more is kept for the oldest history that the log still holds.
NEWEST_KEPT: Final = 2
#: A checkpoint is taken after so many records, or so much log time with at least one record.
RECORDS_BETWEEN: Final = 10_000
TIME_US_BETWEEN: Final = 60_000_000
#: Stale entries that may stand before record 1.
GENESIS_SCAN: Final = 1_000
#: Stale entries that may stand between the last accepted record and a checkpoint's place.
STALE_SCAN: Final = 256
#: Speed over size: State bytes shrink to a tenth at any level.
_COMPRESSION: Final = 1
_READ_LIMIT: Final = 16


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint, whole. `anchor` is the decision (its bytes) that it belongs to."""

    manifest: CheckpointManifest
    state_bytes: bytes
    anchor: bytes


class CheckpointStore:
    """The topic `checkpoints` of one domain, as it stood when `refresh` was last called (the
    constructor calls it).
    """

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._next_offset = 0
        self._offsets: dict[tuple[int, int], int] = {}
        self._manifests: dict[int, CheckpointManifest] = {}
        self._log_id = ""
        self.refresh()

    @property
    def manifests(self) -> list[CheckpointManifest]:
        """Newest first. None of them has been checked yet."""
        return [self._manifests[sequence] for sequence in sorted(self._manifests, reverse=True)]

    def standing(self) -> list[CheckpointManifest]:
        """Those whose decision stands in the log, newest first: another log's, or one of an end that was lost, are none
        of its checkpoints. Their State has not been looked at.
        """
        return [manifest for manifest in self.manifests if self._anchor(manifest) is not None]

    def refresh(self) -> None:
        """Reads what was written since."""
        for offset, key, value in self._entries():
            place = _parse_key(key)
            if place is None:
                continue
            if value is None:
                self._offsets.pop(place, None)
                if place[1] == 0:
                    self._manifests.pop(place[0], None)
                continue
            self._offsets[place] = offset
            if place[1] == 0 and (manifest := parse_manifest(value)) is not None:
                self._manifests[place[0]] = manifest

    def newest(self, until: int | None = None) -> Checkpoint | None:
        """The newest usable checkpoint with a sequence of at most `until`; those that cannot be
        used are passed over.
        """
        for manifest in self.manifests:
            if until is None or manifest.sequence <= until:
                checkpoint = self.load(manifest)
                if checkpoint is not None:
                    return checkpoint
        return None

    def oldest(self) -> Checkpoint | None:
        """The usable checkpoint nearest to the start of the log."""
        for manifest in reversed(self.manifests):
            checkpoint = self.load(manifest)
            if checkpoint is not None:
                return checkpoint
        return None

    def load(self, manifest: CheckpointManifest) -> Checkpoint | None:
        """The checkpoint of `manifest`, or None when it is not usable.

        Usable: all chunks are there and hash to `state_hash`, the decision of that sequence stands
        in the log with the same digest, and the journal is still there, up to its place and after.
        """
        if not self._has_journal(manifest):
            return None
        anchor = self._anchor(manifest)
        if anchor is None:
            return None
        chunks = [self._chunk(manifest.sequence, chunk) for chunk in range(1, manifest.chunks + 1)]
        state_bytes = join_chunks(manifest, chunks)
        return None if state_bytes is None else Checkpoint(manifest, state_bytes, anchor)

    def log_id(self) -> str:
        """What tells this log from any other: the SHA-256 of its first record, kept in checkpoints
        for when retention has removed it. Empty while nobody can tell.
        """
        if not self._log_id:
            self._log_id = self._first_hash() or self._remembered_id()
        return self._log_id

    def write(self, writer: LogWriter, manifest: CheckpointManifest, chunks: list[bytes]) -> None:
        """Appends a checkpoint, its State as `split_chunks` made it, then removes those that are not
        kept. Raises what `LogWriter.append` raises.
        """
        manifest = manifest.model_copy(update={"chunks": len(chunks)})
        for number, chunk in enumerate(chunks, start=1):
            writer.append(CHECKPOINTS, encode_key(manifest.sequence, number), chunk)
        writer.append(CHECKPOINTS, encode_key(manifest.sequence, 0), encode(manifest))
        self.refresh()
        self._prune(writer)

    def _prune(self, writer: LogWriter) -> None:
        standing = self.standing()
        kept = {manifest.sequence for manifest in standing[:NEWEST_KEPT]}
        journal_start = self._reader.start_offset(JOURNAL)
        decisions_start = self._reader.start_offset(DECISIONS)
        for manifest in reversed(standing):
            covered = (
                manifest.journal_offset >= journal_start
                and manifest.decisions_offset > decisions_start
            )
            if covered and journal_start > 0:
                kept.add(manifest.sequence)
                break
        # The manifest goes first: what is half removed is no checkpoint.
        for sequence, chunk in sorted(self._offsets):
            if sequence not in kept and sequence < max(kept, default=0):
                writer.append(CHECKPOINTS, encode_key(sequence, chunk), None)
        self.refresh()

    def _has_journal(self, manifest: CheckpointManifest) -> bool:
        """Whether the journal goes on at the checkpoint's place: it has lost neither what follows nor, by an
        unclean election, what stood before.

        The checkpoint's record is the last entry before its place, but for stale ones, which a stop may have read.
        """
        end, start = manifest.journal_offset, self._reader.start_offset(JOURNAL)
        if end <= start:
            return end == start
        oldest = max(start, end - STALE_SCAN)
        passed: dict[str, None] = {}
        for offset in range(end - 1, oldest - 1, -1):
            found = self._reader.read(JOURNAL, offset, 1)
            if not found or found[0].offset != offset:
                return False
            data = found[0].value or b""
            record_hash = sha256_hex(data)
            if record_hash == manifest.record_hash:
                return True
            if Chain(manifest.sequence, manifest.record_hash).accept(data):
                return False  # what follows the record stands before its place
            passed[record_hash] = None
        if oldest > start or start == 0:
            return False
        # Retention has removed it, unless something older is still there.
        return not any(each in passed for each in self._decided_before(manifest))

    def _decided_before(self, manifest: CheckpointManifest) -> Iterator[str]:
        """Hashes of the last records that were decided before the checkpoint's."""
        end = manifest.decisions_offset - 1
        first = max(self._reader.start_offset(DECISIONS), end - STALE_SCAN)
        for offset in range(end - 1, first - 1, -1):
            for record in self._reader.read(DECISIONS, offset, 1):
                header = read_decision_header(record.value or b"")
                if header is not None and header.sequence < manifest.sequence:
                    yield header.record_hash

    def _first_hash(self) -> str:
        if self._reader.start_offset(JOURNAL) > 0:
            return ""
        chain, offset = Chain(), 0
        while offset < GENESIS_SCAN:
            found = self._reader.read(JOURNAL, offset, _READ_LIMIT)
            if not found:
                break
            for record in found:
                if chain.accept(record.value or b""):
                    return chain.last_hash
            offset = found[-1].offset + 1
        return ""

    def _remembered_id(self) -> str:
        ids = (item.log_id for item in self.manifests if self._anchor(item) is not None)
        return next((log_id for log_id in ids if log_id), "")

    def _anchor(self, manifest: CheckpointManifest) -> bytes | None:
        if manifest.decisions_offset == 0:
            return None
        found = self._reader.read(DECISIONS, manifest.decisions_offset - 1, 1)
        data = (found[0].value or b"") if found else b""
        header = read_decision_header(data)
        if (
            header is None
            or found[0].offset != manifest.decisions_offset - 1
            or header.sequence != manifest.sequence
            or header.digest != manifest.digest
            or header.record_hash != manifest.record_hash
        ):
            return None
        return data

    def _chunk(self, sequence: int, chunk: int) -> bytes | None:
        offset = self._offsets.get((sequence, chunk))
        found = [] if offset is None else self._reader.read(CHECKPOINTS, offset, 1)
        return found[0].value if found and found[0].offset == offset else None

    def _entries(self) -> Iterator[tuple[int, bytes | None, bytes | None]]:
        while self._next_offset < self._reader.end_offset(CHECKPOINTS):
            found = self._reader.read(CHECKPOINTS, self._next_offset, _READ_LIMIT)
            if not found:
                return
            for record in found:
                self._next_offset = record.offset + 1
                yield record.offset, record.key, record.value


@dataclass(frozen=True, slots=True)
class Taken:
    """State as it was at a checkpoint's sequence, and where the journal goes on."""

    frozen: Frozen
    journal_offset: int


class Checkpointer:
    """When to write a checkpoint: after so many records or so much log time, once its decision has
    been read back.

    A runner tells it of every decision made (`on_decided`), and claims and writes what was taken
    when that decision is in the log. Only `on_decided` holds decisions up, for the time of a copy
    of the tables.
    """

    def __init__(
        self,
        store: CheckpointStore,
        writer: LogWriter,
        *,
        records: int = RECORDS_BETWEEN,
        time_us: int = TIME_US_BETWEEN,
    ) -> None:
        self._store = store
        self._writer = writer
        self._records = records
        self._time_us = time_us
        newest = self._newest = next(iter(store.standing()), None)
        self._last_sequence = newest.sequence if newest else 0
        self._last_us = newest.timestamp_us if newest else None
        self._taken: Taken | None = None

    @property
    def newest(self) -> CheckpointManifest | None:
        """The log's newest checkpoint, as far as this process knows."""
        return self._newest

    def look(self) -> None:
        """Learns which checkpoints others have written since. May run in a thread."""
        self._store.refresh()
        self._newest = next(iter(self._store.standing()), None)

    def on_decided(self, state: State, journal_offset: int, *, force: bool = False) -> None:
        """After a decision: takes State when it is time, or `force`. `journal_offset`: where the
        journal goes on.
        """
        if self._last_us is None:
            self._last_us = state.timestamp_us
        due = (
            state.sequence - self._last_sequence >= self._records
            or state.timestamp_us - self._last_us >= self._time_us
        )
        if state.sequence > self._last_sequence and (due or force):
            self._last_sequence, self._last_us = state.sequence, state.timestamp_us
            self._taken = Taken(freeze(state), journal_offset)

    def claim(self, sequence: int) -> Taken | None:
        """After the decision `sequence` was read back: what was taken then, once; else None."""
        taken = self._taken
        if taken is None or taken.frozen.sequence != sequence:
            return None
        self._taken = None
        return taken

    def write(self, taken: Taken, decision_offset: int) -> None:
        """Writes what was claimed; its decision stands at `decision_offset`. May run in a thread."""
        state_bytes = encode_state(taken.frozen)
        chunks = split_chunks(state_bytes)
        fields = _manifest_fields(taken)
        fields["decisions_offset"] = decision_offset + 1
        fields["state_hash"] = sha256_hex(state_bytes)
        fields["state_bytes"] = len(state_bytes)
        fields["chunks"] = len(chunks)
        fields["log_id"] = self._store.log_id()
        manifest = CheckpointManifest.model_validate_json(encode(fields))
        self._store.write(self._writer, manifest, chunks)
        self._newest = manifest


def open_commands(state: State | Frozen) -> tuple[dict[str, Any], ...]:
    """The commands of `state` that have no end yet, as on the wire, in order of their ids."""
    commands = [open_command_row(key, row) for key, row in state.tables["commands"].items()]
    return tuple(sorted(commands, key=lambda command: _command_order(command["id"])))


def _command_order(command_id: str) -> tuple[int, int]:
    sequence, _, index = command_id.partition(".")
    return int(sequence), int(index)


def _manifest_fields(taken: Taken) -> dict[str, Any]:
    state = taken.frozen
    return {
        "sequence": state.sequence,
        "record_hash": state.record_hash,
        "digest": state.digest,
        "timestamp_us": state.timestamp_us,
        "journal_offset": taken.journal_offset,
        "positions": {topic: row.offset for topic, row in state.tables["positions"].items()},
        "open_commands": open_commands(state),
    }


def split_chunks(state_bytes: bytes) -> list[bytes]:
    """State bytes as compressed chunks, at least one."""
    packed = zlib.compress(state_bytes, _COMPRESSION)
    return [packed[start : start + CHUNK_BYTES] for start in range(0, len(packed), CHUNK_BYTES)]


def join_chunks(manifest: CheckpointManifest, chunks: list[bytes | None]) -> bytes | None:
    """The State bytes of `manifest`, or None when a chunk is missing or anything differs from the
    manifest.
    """
    packed = b"".join([chunk for chunk in chunks if chunk is not None])
    if any(chunk is None for chunk in chunks):
        return None
    try:
        state_bytes = zlib.decompress(packed)
    except zlib.error:
        return None
    whole = len(state_bytes) == manifest.state_bytes
    return state_bytes if whole and sha256_hex(state_bytes) == manifest.state_hash else None


def parse_manifest(value: bytes) -> CheckpointManifest | None:
    """The manifest in `value`, or None when it is none that this build can read."""
    try:
        return CheckpointManifest.model_validate_json(value)
    except ValueError:
        return None


def encode_key(sequence: int, chunk: int) -> bytes:
    """Key of a chunk on the topic; sorts as the numbers do."""
    return b"%020d/%06d" % (sequence, chunk)


def _parse_key(key: bytes | None) -> tuple[int, int] | None:
    sequence, _, chunk = (key or b"").partition(b"/")
    if not (sequence.isdigit() and chunk.isdigit()):
        return None
    return int(sequence), int(chunk)
