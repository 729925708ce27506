"""History: the accepted records and decisions of a domain, from a log or from an export file, from
any place on.

One port with two sources, used by recovery, verify, export and the command line: `start` says where
a reader can begin, `journal` and `decisions` give what follows, stale entries included. Must not:
decide, write, or join a consumer group.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from schemas.errors import LockstepError
from schemas.topics import DECISIONS, JOURNAL
from streams.chain import Chain, DecisionChain, RecordHeader, read_decision_header, read_header
from streams.checkpoints import GENESIS_SCAN, Checkpoint, CheckpointStore
from streams.log import LogReader

#: Journal records and decisions asked for at once: at most 256 KiB each.
READ_LIMIT: Final = 128
#: (offset, bytes) of one entry of a topic.
Entry = tuple[int, bytes]
#: Told from time to time how far a reader is: (entries done, entries in all).
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Bound:
    """How far to read: up to and including `sequence`, and records stamped at most `timestamp_us`.
    None: no bound.
    """

    sequence: int | None = None
    timestamp_us: int | None = None

    def passed(self, header: RecordHeader) -> bool:
        """The record of `header` lies beyond the bound."""
        return (self.sequence is not None and header.sequence > self.sequence) or (
            self.timestamp_us is not None and header.timestamp_us > self.timestamp_us
        )


class HistoryDamaged(LockstepError):
    """What was read is not what was written. `sequence` is the first one that cannot be trusted."""

    def __init__(self, place: str, sequence: int, detail: str) -> None:
        super().__init__(f"{place}: damaged at sequence {sequence}: {detail}")
        self.sequence = sequence
        self.detail = detail


@dataclass(frozen=True, slots=True)
class Start:
    """A place that a fold can begin at: right after `checkpoint`, or before record 1.

    The offsets are where the topics go on from there.
    """

    checkpoint: Checkpoint | None = None
    journal_offset: int = 0
    decisions_offset: int = 0

    @property
    def sequence(self) -> int:
        """Sequence of the last record that State holds there."""
        return 0 if self.checkpoint is None else self.checkpoint.manifest.sequence

    @property
    def state_bytes(self) -> bytes | None:
        """State there; None: the empty State."""
        return None if self.checkpoint is None else self.checkpoint.state_bytes

    def chain(self) -> Chain:
        """The journal's chain at this place."""
        if self.checkpoint is None:
            return Chain()
        return Chain(self.sequence, self.checkpoint.manifest.record_hash)

    def decision_chain(self) -> DecisionChain:
        """The chain of decisions at this place; its header is that of the decision there."""
        if self.checkpoint is None:
            return DecisionChain()
        chain = DecisionChain(self.sequence, self.checkpoint.manifest.digest)
        chain.header = read_decision_header(self.checkpoint.anchor)
        return chain


def start_after(checkpoint: Checkpoint) -> Start:
    """The place of a checkpoint in the log that holds it."""
    manifest = checkpoint.manifest
    return Start(checkpoint, manifest.journal_offset, manifest.decisions_offset)


class History(Protocol):
    """Where records and decisions come from."""

    def start(self, bound: Bound) -> Start:
        """The latest place that a fold to `bound` can begin at. Raises `LockstepError` that says
        what is missing.
        """

    def first(self) -> Start:
        """The earliest place that a fold can begin at."""

    def journal(self, start: Start) -> Iterator[Entry]:
        """What follows `start` on the journal, to its end at the time of the call."""

    def decisions(self, start: Start) -> Iterator[Entry]:
        """What follows `start` on the decisions, to their end at the time of the call."""

    def size(self, start: Start) -> int:
        """Journal entries that follow `start`, for a progress bar."""

    def close(self) -> None:
        """Gives back readers and files."""


class LogHistory:
    """History in a log. `journal_reader` and `decisions_reader` may be one, but two read faster
    from Kafka.
    """

    def __init__(self, journal_reader: LogReader, decisions_reader: LogReader) -> None:
        self.journal_reader = journal_reader
        self.decisions_reader = decisions_reader
        self.checkpoints = CheckpointStore(journal_reader)

    def start(self, bound: Bound) -> Start:
        """The newest usable checkpoint within `bound`, else the genesis."""
        for manifest in self.checkpoints.manifests:
            within = (bound.sequence is None or manifest.sequence <= bound.sequence) and (
                bound.timestamp_us is None or manifest.timestamp_us <= bound.timestamp_us
            )
            if within and (checkpoint := self.checkpoints.load(manifest)) is not None:
                return start_after(checkpoint)
        if self._has_genesis():
            return Start()
        oldest = self.checkpoints.oldest()
        held = (
            f"history from sequence {oldest.manifest.sequence}"
            if oldest
            else "no usable checkpoint"
        )
        raise LockstepError(
            f"journal: what lies before offset {self.journal_reader.start_offset(JOURNAL)} has been removed"
            f" and there is {held}; import an older export, or ask for a later moment"
        )

    def first(self) -> Start:
        """The genesis, else the oldest usable checkpoint."""
        if self._has_genesis():
            return Start()
        oldest = self.checkpoints.oldest()
        return self.start(Bound()) if oldest is None else start_after(oldest)

    def journal(self, start: Start) -> Iterator[Entry]:
        return read_entries(self.journal_reader, JOURNAL, start.journal_offset)

    def decisions(self, start: Start) -> Iterator[Entry]:
        return read_entries(self.decisions_reader, DECISIONS, start.decisions_offset)

    def size(self, start: Start) -> int:
        return max(0, self.journal_reader.end_offset(JOURNAL) - start.journal_offset)

    def close(self) -> None:
        self.journal_reader.close()
        self.decisions_reader.close()

    def _has_genesis(self) -> bool:
        if self.journal_reader.start_offset(JOURNAL) > 0:
            return False
        end = self.journal_reader.end_offset(JOURNAL)
        headers = (
            read_header(data)
            for _, data in read_entries(self.journal_reader, JOURNAL, 0, min(end, GENESIS_SCAN))
        )
        return end == 0 or any(header is not None and header.sequence == 1 for header in headers)


def read_entries(
    reader: LogReader, topic: str, offset: int, end: int | None = None
) -> Iterator[Entry]:
    """Entries of `topic` from `offset` to `end` (default: the end when reading begins). No value
    counts as no bytes.

    Raises `LockstepError` when the log no longer holds `offset`.
    """
    end = reader.end_offset(topic) if end is None else end
    while offset < end:
        found = reader.read(topic, offset, min(READ_LIMIT, end - offset))
        if not found:
            return
        if found[0].offset > offset:
            raise LockstepError(
                f"{topic}: offsets {offset} to {found[0].offset - 1} are no longer in the log"
            )
        for record in found:
            if record.offset >= end:
                return
            yield record.offset, record.value or b""
        offset = found[-1].offset + 1


def accepted_records(history: History, start: Start) -> Iterator[tuple[Chain, bytes]]:
    """Every accepted record after `start`, with the chain that has just accepted it."""
    chain = start.chain()
    for _, data in history.journal(start):
        if chain.accept(data):
            yield chain, data


def accepted_decisions(history: History, start: Start) -> Iterator[tuple[DecisionChain, bytes]]:
    """Every accepted decision after `start`, with the chain that has just accepted it."""
    chain = start.decision_chain()
    for _, data in history.decisions(start):
        if chain.accept(data):
            yield chain, data


def log_id(history: History) -> str:
    """What tells this log from any other: the SHA-256 of its first record, or empty while it has
    none. A checkpoint of the log remembers it when the record itself has been removed.
    """
    first = history.first()
    if first.checkpoint is not None and first.checkpoint.manifest.log_id:
        return first.checkpoint.manifest.log_id
    for chain, _ in accepted_records(history, first):
        return chain.last_hash
    return ""
