"""What befalls the log itself: retention eats its head, an unclean election loses its tail.

And what follows by the contract (design section 5): a role that has read beyond a lost tail stops with
a clear message; what had not been decided is made again; decisions ahead of the journal keep every
role from starting until the operator restores the topic. The operator is played here.
"""

from collections.abc import Iterable
from typing import Protocol

from schemas.errors import Fatal, LockstepError
from schemas.topics import DECISIONS, JOURNAL
from streams.checkpoints import CheckpointStore
from streams.history import Bound, LogHistory, accepted_records
from streams.log import LogReader, LogRecord, open_reader, open_writer
from streams.log_memory import cut_memory_log, trim_memory_log
from streams.recovery import start_state
from tests.simulation.audit_chain import ChainAudit
from tests.simulation.chaos import Chaos
from tests.simulation.checkpoint_faults import CheckpointFaults
from tests.simulation.clock import Clock
from tests.simulation.violation import Violation

#: A reader that has read beyond the end must have stopped by then, if it was awake.
NOTICED_US = 45_000_000
#: Entries that an election loses at most.
LOST_MAX = 8


class Follower(Protocol):
    """A process, as far as the log's faults mind it."""

    name: str
    role: str
    asleep_until_us: int
    #: Topic -> offset of the next record that it reads; empty: it has not begun.
    next: dict[str, int]
    #: Sequence of the last record that it has folded, if it folds any.
    folded: int


class LogFaults:
    """The faults of the log `memory://NAME`."""

    def __init__(self, name: str, clock: Clock, chaos: Chaos, chain: ChainAudit) -> None:
        self._name = name
        self._clock = clock
        self._chaos = chaos
        self._chain = chain
        self._reader = open_reader(f"memory://{name}")
        self._writer = open_writer(f"memory://{name}")
        self.checkpoints = CheckpointFaults(self._reader, self._writer, chaos)
        self._trimmed = False
        self._cut: _Cut | None = None
        #: Processes that ran when the log lost its tail.
        self._witnesses: dict[str, None] = {}
        #: Appends under way when it last lost its tail never land.
        self.elections = 0

    @property
    def pending(self) -> bool:
        """A tail was lost and what follows is not over."""
        return self._cut is not None

    # What happens

    def upset(self, processes: Iterable[Follower]) -> tuple[str, list[Follower]]:
        """Maybe one of the faults; its name, and the processes that die with it."""
        chaos = self._chaos
        if chaos.happens("checkpoint_spoilt") and self._may_spoil() and self.checkpoints.spoil():
            return "spoilt_checkpoints", []
        if chaos.happens("head_eaten") and not self.pending and self._eat_head():
            return "eaten_heads", []
        if chaos.happens("tail_lost") and not self.elections:
            return self._lose_tail(list(processes))
        return "", []

    def explains(self, error: BaseException, name: str = "") -> bool:
        """Whether the process `name` may stop with this now, or (no name) one may refuse to start: the
        contract says so, and the message is clear.
        """
        error = unwrapped(error)
        if not isinstance(error, Fatal):
            headless = type(error) is LockstepError and "has been removed" in str(error)
            return headless and self._trimmed
        if error.cause == "chain_stalled" and self.elections:
            return True  # what was lost leaves a hole, and who slept over it took it for half a minute of nothing
        if error.cause in ("decisions_ahead", "chain_stalled"):
            ahead = self._cut is not None and self._cut.restores
            return ahead or name in self._witnesses
        return error.cause == "history_lost" and self._trimmed

    def tend(self, processes: Iterable[Follower], refusal: BaseException | None) -> bool:
        """The operator looks; true when all roles must be started anew after that.

        `refusal`: what keeps a role from starting.
        """
        if type(refusal) is LockstepError:
            self.checkpoints.restore()
            return True
        cut = self._cut
        if cut is None or not cut.is_over(processes, self._reader, self._clock.now_us):
            return False
        self._cut = None
        if cut.restores:
            self._restore(cut)
        return cut.restores

    def mend(self) -> None:
        """At the end: a log that nobody could start from gets its checkpoints back."""
        try:
            start_state(LogHistory(self._reader, self._reader), Bound())
        except LockstepError:
            self.checkpoints.restore()

    # Inside

    def _may_spoil(self) -> bool:
        """Without a head only the operator can help once nothing is usable: not while he mends another."""
        return not (self._trimmed and self.pending)

    def _eat_head(self) -> bool:
        store = CheckpointStore(self._reader)
        usable = [item for item in store.manifests if store.load(item) is not None]
        if not usable:
            return False
        manifest = self._chaos.dice.choice(usable)
        trim_memory_log(self._name, JOURNAL, manifest.journal_offset)
        trim_memory_log(self._name, DECISIONS, manifest.decisions_offset - 1)
        self._trimmed = True
        return True

    def _lose_tail(self, processes: list[Follower]) -> tuple[str, list[Follower]]:
        topic = self._chaos.dice.choice((JOURNAL, JOURNAL, DECISIONS))
        start, end = self._reader.start_offset(topic), self._reader.end_offset(topic)
        left = max(end - self._chaos.dice.randint(1, LOST_MAX), start + 1, self._needed(topic))
        if left >= end:
            return "", []
        lost = cut_memory_log(self._name, topic, left)
        self.elections += 1
        history = LogHistory(self._reader, self._reader)
        until = 0
        for accepted, _ in accepted_records(history, history.first()):
            until = accepted.sequence
        decided, was_accepted = len(self._chain.decisions), len(self._chain.records)
        cut = _Cut(topic, left, lost, restores=decided > until)
        dying: list[Follower] = []
        if topic == DECISIONS:
            self._chain.reread(DECISIONS, left)
        elif cut.restores:
            self._chain.reread(JOURNAL, left)
            # Who lags dies with the broker's machine: it would go on from the shorter journal.
            dying = [
                each
                for each in processes
                if each.role in ("sequencer", "decider") and each.next.get(JOURNAL, 0) <= left
            ]
        else:
            self._chain.forget_after(until)
            # What was decided and not published dies with the machine that lost its record, and so does who
            # has read that record and is about to decide it.
            dying = [
                each
                for each in processes
                if each.folded > until
                or (each.role == "decider" and was_accepted > until and each.next[JOURNAL] > left)
            ]
        after_us = self._chaos.between_us(2.0, 120.0) if cut.restores else 0
        cut.begin(processes, self._clock.now_us, after_us)
        self._witnesses = {each.name: None for each in processes}
        self._cut = cut
        return f"lost_{topic}_tails", dying

    def _needed(self, topic: str) -> int:
        """Offset that a checkpoint of a log without its head needs: else nothing is left to start from."""
        if not self._trimmed:
            return 0
        store = CheckpointStore(self._reader)
        needed = [
            item.journal_offset + 1 if topic == JOURNAL else item.decisions_offset
            for item in store.manifests
            if store.load(item) is not None
        ]
        return max(needed, default=self._reader.end_offset(topic))

    def _restore(self, cut: "_Cut") -> None:
        """The replica that had the tail comes back; what came in between stands behind it."""
        between = cut_memory_log(self._name, cut.topic, cut.left)
        for record in [*cut.lost, *between]:
            self._writer.append(cut.topic, record.key, record.value)
        self._chain.reread(cut.topic, cut.left)


class _Cut:
    """A tail that was lost: `lost` stood from offset `left` on. `restores`: decisions are ahead."""

    def __init__(self, topic: str, left: int, lost: list[LogRecord], *, restores: bool) -> None:
        self.topic = topic
        self.left = left
        self.lost = lost
        self.restores = restores
        self._ends_us = 0
        self._awake_us: dict[str, int] = {}
        self._read: dict[str, LogRecord] = {}
        self._last_us = 0

    def begin(self, processes: list[Follower], now_us: int, after_us: int) -> None:
        """Notes who has read what is gone."""
        self._ends_us, self._last_us = now_us + after_us, now_us
        for process in processes:
            read = process.next.get(self.topic, 0)
            if read > self.left:
                self._awake_us[process.name] = 0
                self._read[process.name] = self.lost[min(read - self.left, len(self.lost)) - 1]

    def is_over(self, processes: Iterable[Follower], reader: LogReader, now_us: int) -> bool:
        """Whether the operator has come, or everybody who had to has noticed.

        Raises `Violation` when a process goes on for too long as if nothing had been lost.
        """
        passed_us, self._last_us = now_us - self._last_us, now_us
        there = [each for each in processes if self._is_misplaced(each, reader)]
        for process in there:
            if process.asleep_until_us <= now_us:
                self._awake_us[process.name] += passed_us
            if self._awake_us[process.name] > NOTICED_US:
                detail = f"{process.name} has read beyond the end of {self.topic} and goes on"
                raise Violation("kept-a-lost-place", 0, "", detail)
        return now_us >= self._ends_us and (self.restores or not there)

    def _is_misplaced(self, process: Follower, reader: LogReader) -> bool:
        """Whether what it has read last is not where it was: decisions made again may be, and whoever
        has read on since is judged by what becomes of it.
        """
        read = self._read.get(process.name)
        if read is None or process.next.get(self.topic, 0) != read.offset + 1:
            return False
        found = reader.read(self.topic, read.offset, 1)
        if found and (found[0].offset, found[0].value) == (read.offset, read.value):
            del self._read[process.name]
            return False
        return True


def unwrapped(error: BaseException) -> BaseException:
    """The error of a role, without the groups around it."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return error
