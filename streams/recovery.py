"""Recovery: from a log to roles that can go on, without effects.

Start = the newest usable checkpoint, then the journal to its end, each decision compared with the
accepted one. Called by the composition at start and by tests. Must not write: what is missing on
`decisions` is left in `Decider.unpublished` for whoever leads.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from schemas.errors import Fatal, InvalidMessage, LockstepError, Unavailable
from schemas.topics import DECISIONS, INTAKE, JOURNAL
from streams.chain import read_decision_header
from streams.checkpoints import open_commands
from streams.decider import Decider
from streams.history import (
    READ_LIMIT,
    Bound,
    Entry,
    History,
    LogHistory,
    Progress,
    Start,
    read_entries,
)
from streams.log import LogReader
from streams.sequencer import Sequencer
from streams.translate import State, to_state


@dataclass(frozen=True, slots=True)
class Recovered:
    """Where the log stands. `started_at` is the sequence of the checkpoint used (0: the
    genesis).
    """

    decider: Decider
    started_at: int

    @property
    def positions(self) -> dict[str, int]:
        """Offset of the last message taken in, by intake topic."""
        return positions_of(self.decider.state)

    @property
    def open_commands(self) -> tuple[dict[str, Any], ...]:
        """Commands that have no end yet, in order of their ids."""
        return open_commands(self.decider.state)

    def sequencer(self, policy: dict[str, Any] | None = None, **settings: Any) -> Sequencer:
        """A sequencer that goes on from here. `policy` matters for an empty log only."""
        return Sequencer.resume(
            self.decider.chain,
            self.decider.decisions,
            self.positions,
            self.decider.state.timestamp_us,
            policy=policy,
            **settings,
        )


def recover(history: LogHistory, progress: Progress | None = None) -> Recovered:
    """Folds the log to its end. Raises `Fatal` that names the sequence when decisions do not follow
    from the journal.

    Memory is bounded: decisions are read side by side with the records that they belong to.
    """
    start, state = start_state(history, Bound())
    anchor = None
    if start.checkpoint is not None:
        anchor = read_decision_header(start.checkpoint.anchor)
    decider = Decider(
        state,
        journal_offset=start.journal_offset,
        decisions_offset=start.decisions_offset,
        anchor=anchor,
    )
    size = history.size(start)
    while True:
        before = decider.journal_offset
        decisions = _decisions(history, decider)
        journal = read_entries(history.journal_reader, JOURNAL, decider.journal_offset)
        for count, (offset, data) in enumerate(journal):
            decider.on_journal(offset, data)
            if count % READ_LIMIT == 0:
                _read_decisions(decider, decisions, decider.sequence)
                if progress is not None:
                    progress(min(offset - start.journal_offset, size), size)
        _read_decisions(decider, _decisions(history, decider), None)
        if decider.decisions.sequence <= decider.sequence:
            break
        if decider.journal_offset == before:
            raise Fatal(
                f"decisions: sequence {decider.decisions.sequence} is ahead of the journal, which ends"
                f" at {decider.sequence}: the journal has lost records; restore the topic, or"
                " `lockstep log export` what is left and import it into a new log",
                cause="decisions_ahead",
            )
    if progress is not None:
        progress(size, size)
    return Recovered(decider, start.sequence)


def start_state(history: History, bound: Bound) -> tuple[Start, State]:
    """The latest usable place within `bound`, and the State there. A checkpoint that cannot be read
    is passed over. Raises `LockstepError` that says what is missing.
    """
    passed_over = 0
    while True:
        try:
            start = history.start(bound)
        except Unavailable:
            raise
        except LockstepError as error:
            if not passed_over:
                raise
            raise LockstepError(
                f"the State of checkpoint {passed_over} is of another build, which this one does not read;"
                f" {error}"
            ) from error
        try:
            state = to_state(start.state_bytes)
        except InvalidMessage:
            state = to_state(None)
        if state.sequence == start.sequence:
            return start, state
        passed_over = passed_over or start.sequence
        bound = Bound(start.sequence - 1, bound.timestamp_us)


def positions_of(state: State) -> dict[str, int]:
    """Offset of the last message taken in, by intake topic."""
    return {topic: row.offset for topic, row in state.tables["positions"].items()}


def check_intake(reader: LogReader, positions: dict[str, int]) -> None:
    """Raises `Fatal` when an intake topic ends before what the journal has taken in from it.

    Then the topic was made anew or the history was imported: messages to come would be taken for
    old ones.
    """
    for topic in INTAKE:
        taken, end = positions.get(topic, -1), reader.end_offset(topic)
        if end <= taken:
            raise Fatal(
                f"intake topic {topic} ends at offset {end}, but the journal has taken in offset {taken}:"
                " it was made anew or did not come along; restore it, or begin a new log",
                cause="topic_deleted",
            )


def _decisions(history: LogHistory, decider: Decider) -> Iterator[Entry]:
    return read_entries(history.decisions_reader, DECISIONS, decider.decisions_offset)


def _read_decisions(decider: Decider, entries: Iterator[Entry], until: int | None) -> None:
    """Hands decisions to the decider, up to the one of sequence `until`, or all."""
    while until is None or decider.decisions.sequence < until:
        entry = next(entries, None)
        if entry is None:
            return
        decider.on_decision(*entry)
