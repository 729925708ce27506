"""The decider: folds accepted journal records through the core, and says what must stand on the
topic `decisions`.

Sans-I/O: a runner hands in what it reads from `journal` and `decisions`, and appends `unpublished`
when it leads. Must not: publish or act itself, skip an accepted record, or go on after a
difference. Called by runners, recovery, verify and `simulate`.
"""

from collections import OrderedDict
from hashlib import sha256
from typing import Final, NamedTuple

from schemas.errors import Fatal
from state.machine import step
from streams.chain import Chain, DecisionChain, DecisionHeader
from streams.translate import Decision, State, to_record

#: Hashes of own decisions kept to compare with what the topic says, and hashes of the topic's kept
#: until ours are made.
WINDOW_MAX: Final = 100_000


class DecisionDiverged(Fatal):
    """The decision at `sequence` on the topic is not the one that this core derives from the same
    record.
    """

    def __init__(self, sequence: int, detail: str) -> None:
        super().__init__(
            f"decision {sequence} differs: {detail}; stop this decider and run"
            f" `lockstep replay --verify --until {sequence}`",
            cause="decision_diverged",
        )
        self.sequence = sequence


class _Derived(NamedTuple):
    """A decision in short: hash of the record that it was made of, hash of its bytes."""

    record_hash: str
    digest: bytes


class Decider:
    """One decider of one domain: it goes on after what `state` has folded.

    The offsets are where reading of the two topics begins. `decisions` is the end of the accepted
    decisions known so far; it starts with the decision that `state` belongs to (`anchor`: its
    header, for timers).
    """

    def __init__(
        self,
        state: State,
        *,
        journal_offset: int = 0,
        decisions_offset: int = 0,
        anchor: DecisionHeader | None = None,
    ) -> None:
        self.state = state
        self.chain = Chain(state.sequence, state.record_hash)
        self.decisions = DecisionChain(state.sequence, state.digest)
        self.decisions.header = anchor
        self.journal_offset = journal_offset
        self.decisions_offset = decisions_offset
        #: Offset of the last accepted decision; -1 while none was handed in.
        self.accepted_offset = decisions_offset - 1
        self._unpublished: OrderedDict[int, bytes] = OrderedDict()
        self._own: OrderedDict[int, _Derived] = OrderedDict()
        self._foreign: OrderedDict[int, _Derived] = OrderedDict()

    @property
    def sequence(self) -> int:
        """Sequence of the last record decided."""
        return self.chain.sequence

    @property
    def uncompared(self) -> int:
        """Decisions, ours and the topic's, whose counterpart has not come yet."""
        return len(self._own) + len(self._foreign)

    def on_journal(self, offset: int, data: bytes) -> Decision | None:
        """Decides the journal entry at `offset` if it is accepted; None if it is not, or was handed
        in before.

        Raises `Fatal` that names the sequence when the core cannot decide it, `DecisionDiverged`
        when the topic already holds another decision of that sequence.
        """
        if offset < self.journal_offset:
            return None
        self.journal_offset = offset + 1
        if not self.chain.accept(data):
            return None
        decision = self._decide(data)
        self._remember(self.chain.sequence, decision.data)
        return decision

    def on_decision(self, offset: int, data: bytes) -> bool:
        """Compares the entry of `decisions` at `offset` with our own. True if it was accepted.

        Raises `DecisionDiverged` when the bytes differ. Ours may come later: then it is compared
        when it does.
        """
        if offset < self.decisions_offset:
            return False
        self.decisions_offset = offset + 1
        if not self.decisions.accept(data):
            return False
        self.accepted_offset = offset
        sequence = self.decisions.sequence
        self._unpublished.pop(sequence, None)
        assert self.decisions.header is not None
        given = _Derived(self.decisions.header.record_hash, sha256(data).digest())
        own = self._own.pop(sequence, None)
        if own is not None:
            _compare(sequence, own, given)
        elif sequence > self.chain.sequence:
            _keep(self._foreign, sequence, given)
        return True

    def unpublished(self) -> list[tuple[int, bytes]]:
        """Decisions, by sequence, that the topic is not known to hold. Complete once `decisions` is
        read to its end.

        Whoever leads appends them in this order; a decision leaves the list when it has been read
        back.
        """
        return list(self._unpublished.items())

    def _decide(self, data: bytes) -> Decision:
        try:
            return step(self.state, to_record(data))
        except Exception as error:
            sequence = self.chain.sequence
            raise Fatal(
                f"record {sequence} cannot be decided: {type(error).__name__}: {error}; nothing"
                f" after it is decided; keep it with `lockstep log export FILE --until {sequence}`",
                cause="record_undecidable",
            ) from error

    def _remember(self, sequence: int, data: bytes) -> None:
        own = _Derived(self.chain.last_hash, sha256(data).digest())
        given = self._foreign.pop(sequence, None)
        if given is not None:
            _compare(sequence, own, given)
        elif sequence > self.decisions.sequence:
            self._unpublished[sequence] = data
            _keep(self._own, sequence, own)


def _compare(sequence: int, own: _Derived, given: _Derived) -> None:
    """Of one record both must be the same bytes; of two records the journal is at fault, not the core."""
    if own.record_hash != given.record_hash:
        raise Fatal(
            f"decisions: the decision {sequence} on the topic was made of another record than the journal holds: the"
            " journal has lost records; restore the topic, or `lockstep log export` what is left and import it into a"
            " new log",
            cause="decisions_ahead",
        )
    if own.digest != given.digest:
        raise DecisionDiverged(sequence, "the bytes on the topic are not the ones derived here")


def _keep(window: OrderedDict[int, _Derived], sequence: int, derived: _Derived) -> None:
    window[sequence] = derived
    if len(window) > WINDOW_MAX:
        window.popitem(last=False)
