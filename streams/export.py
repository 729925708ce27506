"""Export files: a piece of history as text, to copy, attach to a report, or keep; `.gz` by name.

One entry a line: TAG SEQUENCE CHECK PAYLOAD, where CHECK is the start of a SHA-256 over the rest of
the line, so that a damaged byte names its place without knowing what it meant. Lines, in this
order:

    header      from, until, decided, last digest, id of the log
    checkpoint  manifest, then chunk lines, then the decision that it belongs to (`anchor`); only
    when from > 1 record      canonical bytes of a journal record, followed by
    decision    canonical bytes of its decision (missing at the end of a log that was not decided
    yet) end         counts, and a SHA-256 over all lines before

Called by `lockstep log export|import` and, as a `History`, by every command that reads a log. Must
not decide.
"""

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

from schemas.codec import encode
from schemas.errors import LockstepError
from schemas.topics import CHECKPOINTS, DECISIONS, JOURNAL
from streams.chain import Chain, DecisionChain
from streams.checkpoints import (
    Checkpoint,
    CheckpointStore,
    join_chunks,
    parse_manifest,
    split_chunks,
)
from streams.history import (
    Bound,
    Entry,
    History,
    HistoryDamaged,
    Progress,
    Start,
    accepted_decisions,
    accepted_records,
)
from streams.log import Entry as LogEntry
from streams.log import LogReader, LogWriter

FORMAT: Final = "lockstep-export/1"
_TAGS: Final = (b"header", b"manifest", b"chunk", b"anchor", b"record", b"decision", b"end")
_PROGRESS_EVERY: Final = 256
_APPEND_AT_ONCE: Final = 64
#: A sequence has 63 bits.
_DIGITS_MAX: Final = 19


@dataclass(frozen=True, slots=True)
class ExportHeader:
    """What an export file holds: records `first` to `until`, decisions up to `decided`."""

    log_id: str
    first: int
    until: int
    decided: int
    digest: str

    def payload(self) -> bytes:
        """Canonical bytes of the header line."""
        return encode(
            {
                "decided": self.decided,
                "digest": self.digest,
                "format": FORMAT,
                "from": self.first,
                "log": self.log_id,
                "until": self.until,
            }
        )


# --- writing --------------------------------------------------------------------------------------


def export_history(
    history: History,
    path: Path,
    *,
    log_id: str,
    first: int | None = None,
    bound: Bound | None = None,
    progress: Progress | None = None,
) -> ExportHeader:
    """Writes the records from the latest start at or before `first` (default: the earliest) to
    `bound`, and decisions.

    A piece that does not begin at record 1 begins right after a checkpoint, so it may hold more
    than asked. The file appears whole or not at all. Raises `LockstepError` when there is nothing
    to export.
    """
    start = history.first() if first is None else history.start(Bound(sequence=first - 1))
    header = _measure(history, start, bound or Bound(), log_id)
    if first is not None and header.until < first:
        raise LockstepError(
            f"log export: nothing from sequence {first} on; what was asked for ends at {header.until}"
        )
    partial = path.with_name(path.name + ".partial")
    try:
        with _opened(partial, "wb", zipped=path.suffix == ".gz") as file:
            _Writer(file).write(history, start, header, progress)
        partial.replace(path)
    except OSError as error:
        raise LockstepError(f"{path}: cannot write: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return header


def _measure(history: History, start: Start, bound: Bound, log_id: str) -> ExportHeader:
    until = start.sequence
    for chain, _ in accepted_records(history, start):
        assert chain.header is not None
        if bound.passed(chain.header):
            break
        until = chain.sequence
    if until == start.sequence:
        raise LockstepError(
            f"log export: no records from sequence {start.sequence + 1} to the given bound"
        )
    decided, digest = start.sequence, start.decision_chain().digest
    for decisions, _ in accepted_decisions(history, start):
        if decisions.sequence > until:
            break
        decided, digest = decisions.sequence, decisions.digest
    return ExportHeader(log_id, start.sequence + 1, until, decided, digest)


class _Writer:
    """Writes lines and the running hash of them."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def write(
        self, history: History, start: Start, header: ExportHeader, progress: Progress | None
    ) -> None:
        self._line(b"header", header.first, header.payload())
        if start.sequence > 0:
            self._checkpoint(start)
        decisions = accepted_decisions(history, start)
        records = decided = 0
        for chain, data in accepted_records(history, start):
            if chain.sequence > header.until:
                break
            self._line(b"record", chain.sequence, data)
            records += 1
            if chain.sequence <= header.decided:
                _, decision = next(decisions)
                self._line(b"decision", chain.sequence, decision)
                decided += 1
            if progress is not None and records % _PROGRESS_EVERY == 0:
                progress(records, header.until - header.first + 1)
        end = {"records": records, "decisions": decided, "sha256": self._hash.hexdigest()}
        self._line(b"end", header.until, encode(end))

    def _checkpoint(self, start: Start) -> None:
        checkpoint = start.checkpoint
        assert checkpoint is not None
        chunks = split_chunks(checkpoint.state_bytes)
        manifest = checkpoint.manifest.model_copy(update={"chunks": len(chunks)})
        self._line(b"manifest", start.sequence, encode(manifest))
        for chunk in chunks:
            self._line(b"chunk", start.sequence, base64.b64encode(chunk))
        self._line(b"anchor", start.sequence, checkpoint.anchor)

    def _line(self, tag: bytes, sequence: int, payload: bytes) -> None:
        line = b"%b %d %b %b\n" % (tag, sequence, _check(tag, sequence, payload), payload)
        self._hash.update(line)
        self._file.write(line)


def _check(tag: bytes, sequence: int, payload: bytes) -> bytes:
    return hashlib.sha256(b"%b %d %b" % (tag, sequence, payload)).hexdigest()[:16].encode()


# --- reading --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Line:
    tag: bytes
    sequence: int
    payload: bytes


class ExportHistory:
    """The history in an export file. Reading checks every line; `HistoryDamaged` names the first
    bad sequence.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = self._lines()
        self.header = _parse_header(path, next(lines).payload)
        self._start = self._read_start(lines)

    def start(self, bound: Bound) -> Start:
        """The file's one start. Raises `LockstepError` when the bound lies before it."""
        start, checkpoint = self._start, self._start.checkpoint
        begins_us = 0 if checkpoint is None else checkpoint.manifest.timestamp_us
        if (bound.sequence is not None and bound.sequence < start.sequence) or (
            bound.timestamp_us is not None and bound.timestamp_us < begins_us
        ):
            raise LockstepError(
                f"{self._path}: begins at sequence {self.header.first}; ask for a later one"
            )
        return start

    def first(self) -> Start:
        """The file's one start."""
        return self._start

    def journal(self, start: Start) -> Iterator[Entry]:
        """Every record of the file; the offset is its number in the file."""
        return self._payloads(b"record", start)

    def decisions(self, start: Start) -> Iterator[Entry]:
        """Every decision of the file after the checkpoint's."""
        return self._payloads(b"decision", start)

    def size(self, start: Start) -> int:
        """Records in the file after `start`, as the header says."""
        return self.header.until - start.sequence

    def close(self) -> None:
        """Files are open only while they are read."""

    def check(self) -> None:
        """Reads the whole file once. Raises `HistoryDamaged`."""
        for _ in self._lines():
            pass

    def entries(self) -> Iterator[tuple[str, bytes]]:
        """(topic, bytes) of all records and decisions, in file order."""
        topics = {b"record": JOURNAL, b"decision": DECISIONS}
        for line in self._lines():
            if line.tag in topics:
                yield topics[line.tag], line.payload

    def _payloads(self, tag: bytes, start: Start) -> Iterator[Entry]:
        assert start.sequence == self._start.sequence, "a file has one start"
        number = 0
        for line in self._lines():
            if line.tag == tag:
                yield number, line.payload
                number += 1

    def _read_start(self, lines: Iterator[_Line]) -> Start:
        if self.header.first == 1:
            return Start()
        manifest = parse_manifest(next(lines).payload)
        assert manifest is not None
        chunks: list[bytes | None] = []
        for line in lines:
            if line.tag == b"anchor":
                break
            chunks.append(_chunk(line.payload))
        state_bytes = join_chunks(manifest, chunks)
        if state_bytes is None:
            raise HistoryDamaged(str(self._path), manifest.sequence, "the checkpoint is not whole")
        return Start(Checkpoint(manifest, state_bytes, line.payload))

    def _lines(self) -> Iterator[_Line]:
        """Every line in its place, checked; the generator ends after the end line."""
        try:
            with _opened(self._path, "rb") as file:
                yield from _LineReader(self._path, file).lines()
        except OSError as error:
            raise LockstepError(f"{self._path}: cannot read: {error.strerror or error}") from error


class _LineReader:
    """Reads lines in the one order that they may have, and names the sequence of the first that is
    not right.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self._path = path
        self._file = file
        self._hash = hashlib.sha256()

    def lines(self) -> Iterator[_Line]:
        """All lines, header and end included."""
        first_line = self._next(b"header", None)
        header = _parse_header(self._path, first_line.payload)
        yield first_line
        before = header.first - 1
        chain, decisions = Chain(), DecisionChain()
        if before:
            line = self._next(b"manifest", before)
            manifest = parse_manifest(line.payload)
            if manifest is None or manifest.sequence != before:
                raise self._damage(before, "the checkpoint's manifest cannot be read")
            yield line
            for _ in range(manifest.chunks):
                yield self._next(b"chunk", before)
            yield self._next(b"anchor", before)
            chain = Chain(before, manifest.record_hash)
            decisions = DecisionChain(before, manifest.digest)
        for sequence in range(header.first, header.until + 1):
            line = self._next(b"record", sequence)
            if not chain.accept(line.payload):
                raise self._damage(sequence, "the record does not follow the one before")
            yield line
            if sequence <= header.decided:
                line = self._next(b"decision", sequence)
                if not decisions.accept(line.payload):
                    raise self._damage(sequence, "the decision does not follow the one before")
                yield line
        if decisions.digest != header.digest:
            raise self._damage(header.decided, "the last digest is not the header's")
        yield self._end(header)

    def _end(self, header: ExportHeader) -> _Line:
        hashed = self._hash.hexdigest()
        line = self._next(b"end", header.until)
        counts = {
            "records": header.until - header.first + 1,
            "decisions": header.decided - header.first + 1,
            "sha256": hashed,
        }
        if line.payload != encode(counts):
            raise self._damage(header.until, "the end line does not match what stands before it")
        if self._read():
            raise self._damage(header.until, "something follows the end line")
        return line

    def _next(self, tag: bytes, sequence: int | None) -> _Line:
        """The next line, which must be this one. Sequence None: the header's own."""
        expected = 1 if sequence is None else sequence
        raw = self._read(expected)
        parts = raw[:-1].split(b" ", 3)
        whole = len(parts) == 4 and raw.endswith(b"\n") and _is_sequence(parts[1])
        if not whole or parts[2] != _check(parts[0], int(parts[1]), parts[3]):
            missing = (
                "the file ends here" if not raw else f"the {tag.decode()} line is not as written"
            )
            raise self._damage(expected, missing)
        if parts[0] != tag or (sequence is not None and int(parts[1]) != sequence):
            found = f"{parts[0].decode() if parts[0] in _TAGS else 'a line'} {int(parts[1])}"
            raise self._damage(
                expected, f"{tag.decode()} {expected} is missing, {found} stands there"
            )
        self._hash.update(raw)
        return _Line(tag, int(parts[1]), parts[3])

    def _read(self, sequence: int = 0) -> bytes:
        try:
            return self._file.readline()
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise self._damage(sequence, f"not a whole gzip file: {error}") from error

    def _damage(self, sequence: int, detail: str) -> HistoryDamaged:
        return HistoryDamaged(str(self._path), sequence, detail)


def _is_sequence(digits: bytes) -> bool:
    return digits.isdigit() and len(digits) <= _DIGITS_MAX


def _chunk(payload: bytes) -> bytes | None:
    """A piece of the checkpoint; None for one that is none."""
    try:
        return base64.b64decode(payload, validate=True)
    except ValueError:
        return None


def _parse_header(path: Path, payload: bytes) -> ExportHeader:
    """The header of the file. Raises `LockstepError` for another format or version."""
    try:
        plain = json.loads(payload)
        header = ExportHeader(
            plain["log"], plain["from"], plain["until"], plain["decided"], plain["digest"]
        )
        first, decided, until = span = (header.first, header.decided, header.until)
        if {*map(type, span)} != {int} or not (
            0 < first <= until and first - 1 <= decided <= until
        ):
            raise ValueError(span)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise LockstepError(f"{path}: not an export of Lockstep: no header line") from error
    if plain.get("format") != FORMAT:
        raise LockstepError(f"{path}: format {plain.get('format')!r}, this build reads {FORMAT}")
    return header


@contextmanager
def _opened(path: Path, mode: str, *, zipped: bool | None = None) -> Iterator[IO[bytes]]:
    zipped = path.suffix == ".gz" if zipped is None else zipped
    if not zipped:
        with open(path, mode) as plain:
            yield plain
        return
    # No name and no time in the file: equal histories give equal files.
    with open(path, mode) as raw, gzip.GzipFile("", mode, 6, raw, mtime=0) as packed:
        yield cast(IO[bytes], packed)


# --- importing ------------------------------------------------------------------------------------


def import_history(
    path: Path, reader: LogReader, writer: LogWriter, progress: Progress | None = None
) -> ExportHeader:
    """Appends the history in `path` to an empty log. Raises `HistoryDamaged` before anything is
    appended.

    Raises `LockstepError` when the log holds something already. Intake topics stay empty: the
    history can be read and replayed; to go on from it, the producers' topics must come along.
    """
    for topic in (JOURNAL, DECISIONS, CHECKPOINTS):
        if reader.end_offset(topic) > 0:
            raise LockstepError(f"log import: topic {topic} is not empty; import into a new log")
    history = ExportHistory(path)
    history.check()
    checkpoint = history.first().checkpoint
    if checkpoint is not None:
        writer.append(DECISIONS, None, checkpoint.anchor)
        manifest = checkpoint.manifest.model_copy(
            update={"journal_offset": 0, "decisions_offset": 1}
        )
        CheckpointStore(reader).write(writer, manifest, split_chunks(checkpoint.state_bytes))
    entries: list[LogEntry] = []
    for count, line in enumerate(history.entries()):
        entries.append((line[0], None, line[1]))
        if len(entries) >= _APPEND_AT_ONCE:
            writer.append_many(entries)
            entries.clear()
        if progress is not None and count % _PROGRESS_EVERY == 0:
            progress(count // 2, history.size(history.first()))
    writer.append_many(entries)
    return history.header
