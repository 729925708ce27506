"""Acceptance of journal records and decisions: which entry of a topic is history, and which is a
stale writer's.

Every reader of `journal` or `decisions` applies this rule and no other, so all of them read the
same history without transactions or epochs. Called by sequencer, decider, projector, sink,
recovery, verify and every subscriber. Must not: look at anything but the entry's own header, or
know where entries come from.
"""

import hashlib
from typing import Final

import msgspec

from schemas.envelope import GENESIS_HASH
from schemas.errors import Fatal

#: Records that follow without one being accepted for so long stop a reader.
STALL_SECONDS: Final = 30.0


class RecordHeader(msgspec.Struct, frozen=True):
    """The fields of a journal record that acceptance and intake need; the observations are not
    decoded.
    """

    sequence: int
    prev: str
    timestamp_us: int
    positions: dict[str, int] = {}


class DecisionHeader(msgspec.Struct, frozen=True):
    """The fields of a decision that acceptance and timers need."""

    sequence: int
    record_hash: str
    previous_digest: str
    digest: str
    timestamp_us: int = 0
    next_deadline_us: int = 0
    work_left: bool = False


_RECORD = msgspec.json.Decoder(RecordHeader)
_DECISION = msgspec.json.Decoder(DecisionHeader)


class Chain:
    """The accepted part of a journal: a record extends it only with the next sequence and the last
    record's hash.

    `sequence` is that of the last accepted record (0: none), `last_hash` the SHA-256 (hex) of its
    bytes, `header` its header (None until this chain has accepted one itself). `skipped` counts the
    entries that were not accepted.
    """

    __slots__ = ("ahead", "header", "last_hash", "sequence", "skipped")

    def __init__(self, sequence: int = 0, last_hash: str = GENESIS_HASH) -> None:
        self.sequence = sequence
        self.last_hash = last_hash
        self.header: RecordHeader | None = None
        self.skipped = 0
        #: The last entry was skipped although it claims a place that is still to come.
        self.ahead = False

    def accept(self, data: bytes) -> bool:
        """True if `data` is the next record; then it is the last accepted one. Else nothing changes
        but `skipped`.
        """
        header = read_header(data)
        if header is None or header.sequence != self.sequence + 1 or header.prev != self.last_hash:
            self.skipped += 1
            self.ahead = header is not None and header.sequence > self.sequence
            return False
        self.ahead = False
        self.sequence = header.sequence
        self.last_hash = hashlib.sha256(data).hexdigest()
        self.header = header
        return True

    def copy(self) -> "Chain":
        """A chain of its own at the same place, with nothing skipped yet."""
        twin = Chain(self.sequence, self.last_hash)
        twin.header = self.header
        return twin


class DecisionChain:
    """The accepted part of `decisions`: the next sequence, and `previous_digest` is the digest of
    the last one.
    """

    __slots__ = ("ahead", "digest", "header", "sequence", "skipped")

    def __init__(self, sequence: int = 0, digest: str = GENESIS_HASH) -> None:
        self.sequence = sequence
        self.digest = digest
        self.header: DecisionHeader | None = None
        self.skipped = 0
        #: The last entry was skipped although it claims a place that is still to come.
        self.ahead = False

    def accept(self, data: bytes) -> bool:
        """True if `data` is the next decision; then it is the last accepted one. Else only
        `skipped` changes.
        """
        header = read_decision_header(data)
        if (
            header is None
            or header.sequence != self.sequence + 1
            or header.previous_digest != self.digest
        ):
            self.skipped += 1
            self.ahead = header is not None and header.sequence > self.sequence
            return False
        self.ahead = False
        self.sequence = header.sequence
        self.digest = header.digest
        self.header = header
        return True


class StallWatch:
    """Alarm of a reader: entries follow, but none has been accepted for `limit_s` seconds.

    Then either the reader has lost its place or a writer without a claim floods the topic; going on
    would leave the reader silently behind. Idle topics never alarm.
    """

    def __init__(self, topic: str, limit_s: float = STALL_SECONDS) -> None:
        self._topic = topic
        self._limit_s = limit_s
        self._skipping_since_s: float | None = None
        self._sequence = -1

    def note(self, chain: Chain | DecisionChain, now_s: float) -> None:
        """After each `chain.accept`, at `now_s` (monotonic seconds). Raises `Fatal` that names the last sequence.

        Only entries that claim to come later count: a second decider's copies, or a loser's leftovers, do not.
        """
        if chain.sequence != self._sequence:
            self._sequence = chain.sequence
            self._skipping_since_s = None
        if not chain.ahead:
            return
        if self._skipping_since_s is None:
            self._skipping_since_s = now_s
        elif now_s - self._skipping_since_s >= self._limit_s:
            raise Fatal(
                f"{self._topic}: entries arrive, but none follows sequence {chain.sequence} since"
                f" {now_s - self._skipping_since_s:.0f} s;"
                " stop other writers of this topic and restart",
                cause="chain_stalled",
            )


def read_header(data: bytes) -> RecordHeader | None:
    """The header of a journal record, or None when `data` is no record."""
    try:
        return _RECORD.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None


def read_decision_header(data: bytes) -> DecisionHeader | None:
    """The header of a decision, or None when `data` is none."""
    try:
        return _DECISION.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return None
