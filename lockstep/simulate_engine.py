"""One Lockstep engine on one log, driven by hand: the real Sequencer and Decider, one record at a
time.

`publish` puts a message on an intake topic, `step` makes the next record and its decision. Reads no
clock: the caller says what time it is. Used by `lockstep simulate` (memory log) and `lockstep demo`
(embedded log).
"""

import json
from typing import Any, Final

from schemas.envelope import RECORD_OBSERVATIONS_MAX
from schemas.errors import Fatal, LockstepError
from schemas.topics import DEADLETTER, DECISIONS, JOURNAL
from state.model.decision import Decision
from state.model.state import State
from streams.decider import Decider
from streams.log import open_reader, open_writer
from streams.sequencer import Sequencer

_READ_LIMIT: Final = 1_000


class Engine:
    """Sequencer, decider and log of one domain. The log must be empty: history starts here."""

    def __init__(
        self,
        url: str,
        policy: dict[str, Any],
        observations_max: int = RECORD_OBSERVATIONS_MAX,
    ) -> None:
        self._writer = open_writer(url)
        self._reader = open_reader(url)
        if self._reader.end_offset(JOURNAL) or self._reader.end_offset(DECISIONS):
            raise LockstepError(f"{url}: this log has a history already; give a new path")
        self._policy = policy
        self._observations_max = observations_max
        self.sequencer = Sequencer(policy, observations_max=observations_max)
        self.decider = Decider(State())

    @property
    def state(self) -> State:
        """All that is known at the last decision."""
        return self.decider.state

    @property
    def digest(self) -> str:
        """Digest of the last decision."""
        return self.decider.decisions.digest

    @property
    def sequence(self) -> int:
        """Sequence of the last decision."""
        return self.decider.sequence

    def publish(self, topic: str, value: bytes) -> None:
        """Appends one intake message. Raises `LockstepError` when the sequencer refuses it."""
        offset = self._writer.append(topic, None, value)
        missing = self.sequencer.offer(topic, offset, value)
        assert missing is None, f"{topic}: offset {missing} was never offered"
        for letter in self.sequencer.take_dead_letters():
            self._writer.append(DEADLETTER, None, letter)
            told = json.loads(letter)
            raise LockstepError(
                f"a message to topic {topic} was refused: {told['reason']}: {told['detail']}"
            )

    def step(self, now_us: int) -> Decision | None:
        """Appends and decides the next record, if there is one to make now."""
        record = self.sequencer.build(now_us)
        if record is None:
            return None
        offset = self._writer.append(JOURNAL, None, record)
        accepted = self.sequencer.on_journal(record)
        decision = self.decider.on_journal(offset, record)
        assert accepted, "the only writer of a log cannot lose a race"
        assert decision is not None
        offset = self._writer.append(DECISIONS, None, decision.data)
        self.sequencer.on_decision(decision.data)
        self.decider.on_decision(offset, decision.data)
        return decision

    def restart(self) -> list[Decision]:
        """Forgets all local state and folds the log anew; returns every decision that was derived.

        Raises `DecisionDiverged` when one differs from what the log holds.
        """
        sequencer = Sequencer(self._policy, observations_max=self._observations_max)
        decider, decisions = self.refold()
        for _, value in self.entries(JOURNAL):
            sequencer.on_journal(value)
        for offset, value in self.entries(DECISIONS):
            sequencer.on_decision(value)
            decider.on_decision(offset, value)
        if decider.decisions.sequence != decider.sequence or decider.unpublished():
            raise Fatal(f"the log has no decision of record {decider.decisions.sequence + 1}")
        if decider.decisions.digest != self.digest:
            raise Fatal(
                f"digest {decider.decisions.digest} after the restart, {self.digest} before"
            )
        self.sequencer, self.decider = sequencer, decider
        return decisions

    def refold(self) -> tuple[Decider, list[Decision]]:
        """A fresh decider that has folded the journal from its start, and what it decided."""
        decider = Decider(State())
        decisions = [decider.on_journal(offset, value) for offset, value in self.entries(JOURNAL)]
        return decider, [decision for decision in decisions if decision is not None]

    def close(self) -> None:
        """Closes the log."""
        self._reader.close()
        self._writer.close()

    def entries(self, topic: str, first: int = 0) -> list[tuple[int, bytes]]:
        """Offset and value of every entry of a topic, from offset `first` on."""
        entries: list[tuple[int, bytes]] = []
        offset = max(first, self._reader.start_offset(topic))
        while offset < self._reader.end_offset(topic):
            for record in self._reader.read(topic, offset, _READ_LIMIT):
                entries.append((record.offset, record.value or b""))
                offset = record.offset + 1
        return entries
