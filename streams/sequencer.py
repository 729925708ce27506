"""The sequencer: drains the intake topics in micro-batches and gives them one order and one time,
as journal records.

Sans-I/O: a runner hands in intake messages, what it reads back from `journal` and `decisions`, and
the time; it appends the bytes that `build` returns, in that order, and publishes the dead letters.
Must not: read a clock or a log, look into an observation's meaning, or think that an append is
history before it has been read back.

Losing is normal: whatever was built on a record that was not accepted is built again from the
accepted positions.
"""

from collections import Counter, deque
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

from schemas.codec import encode
from schemas.envelope import GENESIS_HASH, RECORD_BYTES_MAX, RECORD_OBSERVATIONS_MAX
from schemas.policy import full_policy
from schemas.topics import INTAKE
from streams.chain import Chain, DecisionChain
from streams.intake import IntakeRejected, IntakeTaken, admit_message, reject_message

OBSERVATIONS_DEFAULT: Final = 100
#: Own records that may be appended without having been read back.
PIPELINE_MAX: Final = 8
#: Hashes of own records kept, to tell them from another writer's.
OWN_HASHES_MAX: Final = 256
#: Intake observations held in memory before the runner is asked to pause (`full`).
BACKLOG_OBSERVATIONS_MAX: Final = 20_000
#: Bytes of a record besides its observations: fixed fields and one position a topic.
_ENVELOPE_BYTES: Final = 2_048

#: Canonical form of a record: sorted keys, no spaces. The parts are canonical already.
_RECORD: Final = (
    b'{"observations":[%b],"positions":%b,"prev":"%b","sequence":%d,"timestamp_us":%d,"version":1}'
)


@dataclass(slots=True)
class _Appended:
    """An own record that was handed out and has not been read back: what it was, and what it
    took.
    """

    record_hash: str
    messages: list[tuple[str, IntakeTaken]] = field(default_factory=list)


class Sequencer:
    """One sequencer of one domain. Feed it the journal from its start (or from `resume`) before the
    first `build`.

    `policy` is what a new log starts with (record 1). Counted since the start: `rejected` dead
    letters by reason, `lost_races` the times a foreign record took the place of an own one,
    `appended` records and the `observations` in them, losing ones included.
    """

    def __init__(
        self,
        policy: dict[str, Any] | None = None,
        *,
        observations_max: int = OBSERVATIONS_DEFAULT,
        pipeline_max: int = PIPELINE_MAX,
    ) -> None:
        assert 1 <= observations_max <= RECORD_OBSERVATIONS_MAX
        self._policy = full_policy(policy)
        self._observations_max = observations_max
        self._pipeline_max = pipeline_max
        self.chain = Chain()
        self.decisions = DecisionChain()
        self._positions: dict[str, int] = {}
        self._accepted_us = 0
        self._tail: deque[_Appended] = deque()
        self._pending: dict[str, deque[IntakeTaken]] = {topic: deque() for topic in INTAKE}
        self._backlog = 0
        self._turn = 0
        self._dead_letters: list[bytes] = []
        self._own: deque[str] = deque(maxlen=OWN_HASHES_MAX)
        self._next_sequence = 1
        self._next_prev = GENESIS_HASH
        self._next_positions: dict[str, int] = {}
        self._last_us = 0
        self._wanted: dict[str, int] = dict.fromkeys(INTAKE, 0)
        self.rejected: Counter[str] = Counter()
        self.lost_races = 0
        self.appended = 0
        self.observations = 0

    @classmethod
    def resume(
        cls,
        chain: Chain,
        decisions: DecisionChain,
        positions: dict[str, int],
        timestamp_us: int,
        **settings: Any,
    ) -> "Sequencer":
        """A sequencer that goes on after the accepted record at `chain`; copies what it is
        given.
        """
        sequencer = cls(**settings)
        sequencer.chain = chain.copy()
        sequencer.decisions = DecisionChain(decisions.sequence, decisions.digest)
        sequencer.decisions.header = decisions.header
        sequencer._positions = dict(positions)
        sequencer._accepted_us = timestamp_us
        sequencer._restart()
        return sequencer

    # --- what the runner asks ---------------------------------------------------------------------

    @property
    def sequence(self) -> int:
        """Sequence of the last accepted record."""
        return self.chain.sequence

    @property
    def appended_sequence(self) -> int:
        """Sequence of the last record, appended ones that were not read back included."""
        return self._next_sequence - 1

    @property
    def decided(self) -> int:
        """Sequence of the last accepted decision."""
        return self.decisions.sequence

    @property
    def positions(self) -> dict[str, int]:
        """Accepted intake offsets: the last message taken in, by topic."""
        return dict(self._positions)

    @property
    def timestamp_us(self) -> int:
        """Timestamp of the last record, appended ones included: time never goes below it."""
        return self._last_us

    @property
    def backlog(self) -> int:
        """Observations offered and not yet in an appended record."""
        return self._backlog

    @property
    def full(self) -> bool:
        """True while the runner should not offer more."""
        return self._backlog >= BACKLOG_OBSERVATIONS_MAX

    @property
    def in_flight(self) -> int:
        """Own records appended and not yet read back."""
        return len(self._tail)

    def wanted(self, topic: str) -> int:
        """The offset of `topic` that must be offered next."""
        return self._wanted[topic]

    def due_us(self) -> int | None:
        """When the next tick is due (0: at once), or None when nothing waits for one."""
        header = self.decisions.header
        if header is None or self._tail or header.sequence != self.chain.sequence:
            return None
        if header.work_left:
            return 0
        return header.next_deadline_us or None

    def is_own(self, data: bytes) -> bool:
        """The journal entry was built by this sequencer, not too long ago."""
        return sha256(data).hexdigest() in self._own

    # --- what the runner hands in -----------------------------------------------------------------

    def offer(self, topic: str, offset: int, value: bytes | None) -> int | None:
        """Takes the intake message at (`topic`, `offset`). An offset taken before is dropped.

        Returns None, or the offset that must come first: then nothing was taken and the runner
        fills the gap.
        """
        wanted = self._wanted[topic]
        if offset < wanted:
            return None
        if offset > wanted:
            return wanted
        self._take(topic, admit_message(topic, offset, value))
        return None

    def lost(self, topic: str, first_offset: int) -> None:
        """The messages of `topic` below `first_offset` are gone from the log: says so in their
        place.

        One rejection (`Lost`) stands for all of them, so that a resync is asked for and nothing is
        skipped in silence.
        """
        wanted = self._wanted[topic]
        if first_offset > wanted:
            detail = f"offsets {wanted} to {first_offset - 1} are no longer in the log"
            self._take(topic, reject_message(topic, first_offset - 1, None, "Lost", detail))

    def on_journal(self, data: bytes) -> bool:
        """Takes the next entry of `journal`, own or foreign. True if it was accepted."""
        if not self.chain.accept(data):
            return False
        header = self.chain.header
        assert header is not None
        self._positions = dict(header.positions)
        self._accepted_us = header.timestamp_us
        if self._tail and self._tail[0].record_hash == self.chain.last_hash:
            self._tail.popleft()
        else:
            self.lost_races += bool(self._tail)
            self._rewind()
        return True

    def on_decision(self, data: bytes) -> bool:
        """Takes the next entry of `decisions`. True if it was accepted."""
        return self.decisions.accept(data)

    def append_failed(self) -> None:
        """An append was refused or its outcome is unknown: all that was not read back is built
        again.

        If it did arrive after all, it is accepted on read-back and the new one loses: nothing is
        taken twice.
        """
        self._rewind()

    # --- what the runner takes --------------------------------------------------------------------

    def build(self, now_us: int) -> bytes | None:
        """The next record to append, or None. It must be appended before the next one that this
        returns.

        `now_us` is the time to stamp (`Timekeeper`); a smaller one than the last record's counts as
        that.
        """
        if len(self._tail) >= self._pipeline_max:
            return None
        if self._next_sequence == 1:
            genesis = {"kind": "PolicyChanged", "id": "genesis", "spec": self._policy}
            return self._append(encode(genesis), [], now_us)
        messages = self._drain()
        if messages:
            return self._append(b",".join([item.body for _, item in messages]), messages, now_us)
        due_us = self.due_us()
        if due_us is None or max(now_us, self._last_us) < due_us:
            return None
        return self._append(b"", [], now_us)

    def take_dead_letters(self) -> list[bytes]:
        """What must be appended to the topic `deadletter`, each once."""
        letters, self._dead_letters = self._dead_letters, []
        return letters

    # --- inside -----------------------------------------------------------------------------------

    def _take(self, topic: str, outcome: IntakeTaken | IntakeRejected) -> None:
        if isinstance(outcome, IntakeRejected):
            self.rejected[outcome.reason] += 1
            self._dead_letters.append(outcome.dead_letter)
            outcome = outcome.taken
        self._wanted[topic] = outcome.offset + 1
        self._pending[topic].append(outcome)
        self._backlog += outcome.count

    def _drain(self) -> list[tuple[str, IntakeTaken]]:
        """Whole messages up to the limits, topic by topic from the one whose turn it is.

        A topic that fills a record gives the next record's first turn to its successor, so none can
        starve.
        """
        messages: list[tuple[str, IntakeTaken]] = []
        count, size, full = 0, _ENVELOPE_BYTES, False
        first, self._turn = self._turn, 0
        for step in range(len(INTAKE)):
            index = (first + step) % len(INTAKE)
            pending = self._pending[INTAKE[index]]
            while pending and not full:
                item = pending[0]
                full = bool(messages) and (
                    count + item.count > self._observations_max
                    or size + len(item.body) + 1 > RECORD_BYTES_MAX
                )
                if not full:
                    messages.append((INTAKE[index], pending.popleft()))
                    count, size = count + item.count, size + len(item.body) + 1
            if full:
                self._turn = (index + 1) % len(INTAKE)
                break
        self._backlog -= count
        return messages

    def _append(self, body: bytes, messages: list[tuple[str, IntakeTaken]], now_us: int) -> bytes:
        for topic, item in messages:
            self._next_positions[topic] = item.offset
            self.observations += item.count
        self.appended += 1
        self._last_us = max(now_us, self._last_us)
        record = _RECORD % (
            body,
            encode(self._next_positions),
            self._next_prev.encode(),
            self._next_sequence,
            self._last_us,
        )
        assert len(record) <= RECORD_BYTES_MAX
        self._next_prev = sha256(record).hexdigest()
        self._next_sequence += 1
        self._tail.append(_Appended(self._next_prev, messages))
        self._own.append(self._next_prev)
        return record

    def _rewind(self) -> None:
        """Puts back what the lost tail took, except what the accepted positions cover."""
        for appended in reversed(self._tail):
            for topic, item in reversed(appended.messages):
                self._pending[topic].appendleft(item)
        self._tail.clear()
        for topic, pending in self._pending.items():
            while pending and pending[0].offset <= self._positions.get(topic, -1):
                pending.popleft()
        self._backlog = sum(item.count for items in self._pending.values() for item in items)
        self._restart()

    def _restart(self) -> None:
        """The next record follows the accepted one, and intake goes on after what is held."""
        self._next_sequence = self.chain.sequence + 1
        self._next_prev = self.chain.last_hash
        self._next_positions = dict(self._positions)
        self._last_us = self._accepted_us
        self._wanted = {
            topic: self._pending[topic][-1].offset + 1
            if self._pending[topic]
            else self._positions.get(topic, -1) + 1
            for topic in INTAKE
        }
