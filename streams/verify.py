"""Verification: every decision derived again from its record, and compared byte for byte with the
one in the log.

Called by `lockstep replay`, `demo`, tests and runbooks, on a live log or an export. Must not write,
and must not stop at what is only stale: entries of a writer that lost are counted, not differences.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from state.invariants import check
from state.machine import step
from streams.chain import DecisionChain, RecordHeader, read_decision_header, read_header
from streams.history import Bound, Entry, History, HistoryDamaged, Progress, Start
from streams.translate import State, to_record, to_state

#: Stale entries that are remembered.
_SKIPPED_KEPT = 10_000
_PROGRESS_EVERY: Final = 64


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where the log and what is derived from it disagree."""

    sequence: int
    detail: str


@dataclass(slots=True)
class Verification:
    """What was read, and the first difference, if any. `digest` and `state` are those after the
    last record folded.
    """

    first: int = 0
    last: int = 0
    records: int = 0
    observations: int = 0
    compared: int = 0
    undecided: int = 0
    stale: int = 0
    digest: str = ""
    difference: Difference | None = None
    state: State | None = field(default=None, repr=False)


def verify(
    history: History,
    *,
    start: Start | None = None,
    bound: Bound | None = None,
    compare_from: int = 1,
    compare: bool = True,
    progress: Progress | None = None,
) -> Verification:
    """Folds `history` from `start` (default: its earliest place) to `bound`; compares from sequence
    `compare_from`.

    `compare` False only derives. Never raises for what it finds: a record that cannot be decided is
    a difference. Raises `LockstepError` when the history cannot be read from there, `Unavailable`
    when the log does not answer.
    """
    start = start or history.first()
    return _Verifier(history, start, bound or Bound(), compare_from if compare else None).run(
        progress
    )


class _Verifier:
    """One run of `verify`."""

    def __init__(
        self, history: History, start: Start, bound: Bound, compare_from: int | None
    ) -> None:
        self._history = history
        self._start = start
        self._bound = bound
        self._compare_from = compare_from
        self._chain = start.chain()
        self._decisions = _DecisionsInOrder(history.decisions(start), start.decision_chain())
        self._orphan: RecordHeader | None = None
        #: Hashes of stale entries, the newest last; a stale writer may build on them much later.
        self._skipped_hashes: dict[str, None] = {}
        self._state = to_state(start.state_bytes)
        self._found = Verification(
            first=start.sequence + 1,
            last=start.sequence,
            digest=start.decision_chain().digest,
            state=self._state,
        )

    def run(self, progress: Progress | None) -> Verification:
        try:
            self._read(progress)
            if self._found.difference is None:
                self._found.difference = self._holds_together()
        except HistoryDamaged as damage:
            self._found.difference = Difference(damage.sequence, damage.detail)
        return self._found

    def _read(self, progress: Progress | None) -> None:
        found = self._found
        size = self._history.size(self._start)
        for count, (_, data) in enumerate(self._history.journal(self._start)):
            if progress is not None and count % _PROGRESS_EVERY == 0:
                progress(count, size)
            header = read_header(data)
            if header is not None and self._bound.passed(header) and self._extends(header):
                break
            if not self._chain.accept(data):
                self._skip(header, data)
                continue
            self._orphan = None
            found.difference = self._fold(data)
            if found.difference is not None:
                return
        else:
            found.difference = self._ends_clean()
        if progress is not None:
            progress(size, size)

    def _holds_together(self) -> Difference | None:
        """At the end, what State derives from its rows must be what the rows say."""
        try:
            check(self._state)
        except AssertionError as broken:
            return Difference(self._chain.sequence, f"State does not hold together: {broken}")
        return None

    def _extends(self, header: RecordHeader) -> bool:
        chain = self._chain
        return header.sequence == chain.sequence + 1 and header.prev == chain.last_hash

    def _fold(self, data: bytes) -> Difference | None:
        found, sequence = self._found, self._chain.sequence
        try:
            record = to_record(data)
            decision = step(self._state, record)
        except Exception as error:  # noqa: BLE001  (whatever leaves the core is the finding)
            return Difference(sequence, f"cannot be decided: {type(error).__name__}: {error}")
        found.records += 1
        found.observations += len(record.observations)
        found.last, found.digest = sequence, decision.digest
        if self._compare_from is None or sequence < self._compare_from:
            return None
        given = self._decisions.get(sequence)
        if given is None:
            if self._decisions.broken_at == sequence:
                return Difference(
                    sequence, "its decision is damaged or missing, though later ones follow"
                )
            found.undecided += 1
            return None
        found.compared += 1
        if given != decision.data:
            return Difference(sequence, describe(given, decision.data))
        return None

    def _skip(self, header: RecordHeader | None, data: bytes) -> None:
        """Counts a stale entry, and remembers one that claims to follow a record that nobody has
        seen.
        """
        self._found.stale += 1
        later = header is not None and header.sequence > self._chain.sequence
        if later and header is not None and not self._is_known(header.prev):
            self._orphan = self._orphan or header
        self._skipped_hashes[sha256(data).hexdigest()] = None
        if len(self._skipped_hashes) > _SKIPPED_KEPT:
            del self._skipped_hashes[next(iter(self._skipped_hashes))]

    def _is_known(self, record_hash: str) -> bool:
        return record_hash == self._chain.last_hash or record_hash in self._skipped_hashes

    def _ends_clean(self) -> Difference | None:
        """At the end of the journal: nothing accepted may be missing, and no decision may be
        ahead.
        """
        sequence = self._chain.sequence
        if self._orphan is not None:
            return Difference(
                sequence,
                f"chain broken at sequence {sequence}: records up to {self._orphan.sequence} or later"
                " follow, but none follows this one",
            )
        if self._compare_from is None:
            return None
        if self._decisions.get(sequence + 1) is None and self._decisions.broken_at is None:
            return None
        ahead = sequence + 1
        return Difference(ahead, f"a decision {ahead} exists, but the journal has no such record")


class _DecisionsInOrder:
    """Accepted decisions by ascending sequence, read only as far as asked."""

    def __init__(self, entries: Iterator[Entry], chain: DecisionChain) -> None:
        self._entries = entries
        self._chain = chain
        self._last: bytes | None = None
        #: Set when the topic was read to its end: entries claim to come after the last accepted
        #: decision, and do not.
        self.broken_at: int | None = None
        self._unaccepted = False

    def get(self, sequence: int) -> bytes | None:
        """The decision of `sequence`, or None when the topic has none."""
        while self._chain.sequence < sequence and self._advance():
            pass
        return self._last if self._chain.sequence == sequence else None

    def _advance(self) -> bool:
        for _, data in self._entries:
            if self._chain.accept(data):
                self._last = data
                self._unaccepted = False
                return True
            header = read_decision_header(data)
            if header is None or header.sequence > self._chain.sequence:
                self._unaccepted = True
        self.broken_at = self._chain.sequence + 1 if self._unaccepted else None
        return False


def describe(given: bytes, derived: bytes) -> str:
    """Which field of a decision differs, for people: what the log has, and what is derived."""
    try:
        left, right = json.loads(given), json.loads(derived)
    except ValueError:
        return "the decision in the log is not JSON"
    if left.get("record_hash") != right.get("record_hash"):
        return "the record is not the one that was decided (record_hash differs)"
    path = _first_difference({**left, "digest": ""}, {**right, "digest": ""}, "")
    if path is None:
        return "digest differs" if left != right else "the bytes are not canonical"
    where, one, other = path
    return f"{where}: the log has {_short(one)}, derived is {_short(other)}"


def _first_difference(left: Any, right: Any, path: str) -> tuple[str, Any, Any] | None:
    if isinstance(left, dict) and isinstance(right, dict):
        for key in sorted(left.keys() | right.keys()):
            found = _first_difference(left.get(key), right.get(key), f"{path}.{key}".strip("."))
            if found is not None:
                return found
        return None
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (one, other) in enumerate(zip(left, right, strict=True)):
            found = _first_difference(one, other, f"{path}[{index}]")
            if found is not None:
                return found
        return None
    return None if left == right else (path, left, right)


def _short(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:200]}…"
