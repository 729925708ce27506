"""Faults planted in the product, one a kind: proof that the auditor would see them.

Each changes one rule of the product for the time of a `with` block. `CANARIES` says which rules of
the auditor may name it; `test_canary` runs seeds until one does. Where an occasion is rare, the canary
has the simulation take no other way to break the same thing. Never used outside tests.
"""

import random
import time
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

import schemas.observations
from schemas.envelope import CheckpointManifest, EvictPod
from schemas.topics import DECISIONS
from state import machine
from state.futility import Claim
from state.holds import Holds
from state.line import Line
from state.model.facts import forget_facts
from state.model.rows import Pod
from state.model.seen import CommandEndSeen, GoneSeen, PodGroupSeen
from state.model.state import State
from state.model.trial import Trial
from state.placement import Placement
from state.preemption import Preemption
from streams.chain import Chain, read_header
from streams.checkpoints import CheckpointStore
from streams.place import Places
from streams.sequencer import Sequencer
from streams.sink.lease import Lease
from streams.sink.outcomes import NotDone, judge, judge_pod
from streams.sink.sink import Sink
from streams.tables import Rows, TablesRole
from tests.simulation.checkpoint_faults import CheckpointFaults

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Canary:
    """A planted fault and the names that the auditor may give it."""

    plant: Plant
    caught_as: tuple[str, ...]


def double_release() -> AbstractContextManager[Any]:
    """The end of a bind that failed gives room back twice: its own, and that of another open one."""
    fold = machine._TRANSITIONS[CommandEndSeen]

    def planted(trial: Trial, seen: CommandEndSeen) -> None:
        command = trial.state.commands.get(seen.command_id)
        fold(trial, seen)
        if command is None or seen.outcome == "Applied":
            return
        for uid in sorted(trial.state.pods):
            pod = trial.state.pods[uid]
            if pod.assumed == command.node:
                trial.put("pods", uid, replace(pod, assumed="", allocations=()))
                trial.wake = True
                return

    return patch.dict(machine._TRANSITIONS, {CommandEndSeen: planted})


def lost_delete() -> AbstractContextManager[Any]:
    """A deletion is not folded."""
    return patch.dict(machine._TRANSITIONS, {GoneSeen: lambda _trial, _seen: None})


def half_gang() -> AbstractContextManager[Any]:
    """A gang's minimum that fits only in part is placed in part."""
    fit = Placement.fit

    def planted(self: Placement, pods: list[Any], needed: int) -> Any:
        found = fit(self, pods, needed)
        return replace(found, misfit=None) if needed > 1 else found

    return patch.object(Placement, "fit", planted)


def unordered_set() -> AbstractContextManager[Any]:
    """Units are tried in an order that differs from one replica to the next."""
    units, dice = Line.units, random.SystemRandom()

    def planted(self: Line, uids: Any) -> list[Any]:
        found = units(self, uids)
        dice.shuffle(found)
        return found

    return patch.object(Line, "units", planted)


def clock_read() -> AbstractContextManager[Any]:
    """The core takes the time from a clock."""
    begin = Trial.__init__

    def planted(self: Trial, state: State, sequence: int, timestamp_us: int) -> None:
        begin(self, state, sequence, timestamp_us + time.perf_counter_ns() % 1_000)

    return patch.object(Trial, "__init__", planted)


def by_sequence_alone() -> AbstractContextManager[Any]:
    """Readers accept a record by its sequence, whatever it follows."""
    accept = Chain.accept

    def planted(self: Chain, data: bytes) -> bool:
        header = read_header(data)
        if header is not None and header.sequence == self.sequence + 1:
            self.last_hash = header.prev
        return accept(self, data)

    return patch.object(Chain, "accept", planted)


def old_news_unbinds() -> AbstractContextManager[Any]:
    """Older news of a pod takes its node back."""
    return patch("state.transitions.pods.merge_facts", forget_facts)


def before_sync() -> AbstractContextManager[Any]:
    """The gate is always open."""
    return patch.object(State, "synced", lambda _self: True)


def reordered_group() -> AbstractContextManager[Any]:
    """A PodGroup that comes after its pods is not looked at."""
    fold = machine._TRANSITIONS[PodGroupSeen]

    def planted(trial: Trial, seen: PodGroupSeen) -> None:
        if not trial.state.members.get(f"{seen.namespace}/{seen.name}"):
            fold(trial, seen)

    return patch.dict(machine._TRANSITIONS, {PodGroupSeen: planted})


def shared_gpu() -> AbstractContextManager[Any]:
    """A GPU that somebody holds counts as free."""
    free = State.free_cards

    def planted(self: State, node_name: str, *leaving: Any) -> Any:
        with patch.dict(self.card_users, clear=True):
            return free(self, node_name, *leaving)

    return patch.object(State, "free_cards", planted)


def lost_message() -> AbstractContextManager[Any]:
    """The sequencer drops a message that others of its topic follow in the same record."""
    drain = Sequencer._drain

    def planted(self: Sequencer) -> list[Any]:
        found = drain(self)
        return found[1:] if len(found) > 2 and found[0][0] == found[1][0] else found

    return patch.object(Sequencer, "_drain", planted)


def taken_twice() -> AbstractContextManager[Any]:
    """A sequencer that lost a race forgets which messages the winner has taken."""
    rewind = Sequencer._rewind

    def planted(self: Sequencer) -> None:
        positions, self._positions = self._positions, {}
        rewind(self)
        self._positions = positions

    return patch.object(Sequencer, "_rewind", planted)


def acts_without_lease() -> AbstractContextManager[Any]:
    """A sink never notices that its Lease has run out."""
    return patch.object(Lease, "held", lambda _self: True)


def hopeful_sink() -> AbstractContextManager[Any]:
    """No answer counts as done."""

    def planted(command: Any, answer: Any) -> Any:
        if answer.status == 0:
            return schemas.observations.CommandEnded(command_id=command.id, outcome="Applied")
        return judge(command, answer)

    return patch("streams.sink.sink.judge", planted)


def repeating_sink() -> AbstractContextManager[Any]:
    """A sink does not see that a pod is leaving already, and evicts it once more."""

    def planted(command: Any, read: Any, why: Any) -> Any:
        verdict = judge_pod(command, read, why)
        leaves = isinstance(command, EvictPod) and getattr(verdict, "outcome", "") == "Applied"
        return NotDone(read.body) if leaves else verdict

    return patch("streams.sink.sink.judge_pod", planted)


def forgetful_sink() -> AbstractContextManager[Any]:
    """A sink that begins to act does not take over what is open."""
    activate = Sink.activate

    def planted(self: Sink) -> None:
        self._open.clear()
        self._ready.clear()
        activate(self)

    return patch.object(Sink, "activate", planted)


def torn_checkpoint() -> AbstractContextManager[Any]:
    """A checkpoint is used although its State does not hash to what the manifest says."""

    def planted(manifest: CheckpointManifest, chunks: list[bytes | None]) -> bytes | None:
        try:
            return zlib.decompress(b"".join([chunk for chunk in chunks if chunk is not None]))
        except zlib.error:
            return None

    stack = ExitStack()
    stack.enter_context(patch("streams.checkpoints.join_chunks", planted))
    stack.enter_context(patch.object(CheckpointFaults, "ways", (CheckpointFaults._change_digit,)))
    return stack


def foreign_checkpoint() -> AbstractContextManager[Any]:
    """A checkpoint is used although neither a decision nor a record of this log has its digest and hash."""

    def planted(self: CheckpointStore, manifest: CheckpointManifest) -> bytes | None:
        found = self._reader.read(DECISIONS, manifest.decisions_offset - 1, 1)
        return found[0].value if found else None

    def anywhere(self: CheckpointStore, manifest: CheckpointManifest) -> bool:
        return True

    stack = ExitStack()
    stack.enter_context(patch.multiple(CheckpointStore, _anchor=planted, _has_journal=anywhere))
    ways = (CheckpointFaults._swap_for_foreign,)
    stack.enter_context(patch.object(CheckpointFaults, "ways", ways))
    return stack


def blind_to_loss() -> AbstractContextManager[Any]:
    """Nobody looks whether the log still holds what was read of it."""
    return patch.object(Places, "check", lambda _self, _reader: None)


def skipped_rows() -> AbstractContextManager[Any]:
    """The projector writes all rows of a batch but the last."""
    write = TablesRole._write

    def planted(self: TablesRole, rows: Rows) -> None:
        write(self, dict(list(rows.items())[:-1]) if len(rows) > 1 else rows)

    return patch.object(TablesRole, "_write", planted)


def trusted_disk() -> AbstractContextManager[Any]:
    """A projector takes what is on its disk for right."""
    return patch.object(TablesRole, "mend_rows", lambda _self: 0)


def hidden_restore() -> AbstractContextManager[Any]:
    """What a list contradicts is not doubted, so that a bumped version hides a restored etcd."""
    planted = ExitStack()
    for module in ("model.lists", "transitions.sync", "transitions.results"):
        planted.enter_context(patch(f"state.{module}.contradict", lambda _trial, _resource: None))
    return planted


def split_group() -> AbstractContextManager[Any]:
    """Gangs do not see that they name each other."""
    return patch("state.model.gangs.with_self", lambda _groups, _key: ())


def endless_hold() -> AbstractContextManager[Any]:
    """Nobody looks whether the time of a hold, or of room that is kept, is over."""
    return patch.object(Holds, "check", lambda _self: None)


def evicts_equals() -> AbstractContextManager[Any]:
    """Pods of the same priority make room, too."""
    may_evict = Preemption._may_evict

    def planted(self: Preemption, claim: Claim, pod: Pod) -> bool:
        return may_evict(self, replace(claim, priority=claim.priority + 1), pod)

    planting = ExitStack()
    planting.enter_context(patch.object(Preemption, "_may_evict", planted))
    planting.enter_context(patch("state.evictions._is_claimed", lambda _state, _victim: True))
    return planting


def evicts_for_half() -> AbstractContextManager[Any]:
    """Room is made for half of what a gang needs."""
    choose = Preemption._choose

    def planted(self: Preemption, claim: Claim, wanted: list[Any]) -> Any:
        return choose(self, claim, [((count + 1) // 2, pods) for count, pods in wanted])

    return patch.object(Preemption, "_choose", planted)


CANARIES: dict[str, Canary] = {
    "double release": Canary(double_release, ("over-capacity",)),
    "lost delete": Canary(lost_delete, ("untrue", "bound-after-deletion", "gang-without-group")),
    "half a gang": Canary(half_gang, ("gang-partly-bound",)),
    "an unordered set": Canary(unordered_set, ("digest-differs", "refold-differs")),
    "a clock that is read": Canary(clock_read, ("digest-differs",)),
    "acceptance by sequence alone": Canary(
        by_sequence_alone, ("decision-of-a-stale-record", "stale-command")
    ),
    "old news unbinds": Canary(old_news_unbinds, ("unbound",)),
    "placing before sync": Canary(before_sync, ("placed-before-sync",)),
    "a fold that minds the order": Canary(reordered_group, ("not-placed",)),
    "a GPU given twice": Canary(shared_gpu, ("minor-held-twice",)),
    "a lost message": Canary(lost_message, ("intake-lost",)),
    "a message taken twice": Canary(taken_twice, ("intake-taken-twice", "positions-went-back")),
    "acting without the Lease": Canary(acts_without_lease, ("acted-without-lease",)),
    "no answer taken for done": Canary(hopeful_sink, ("false-result",)),
    "a resent eviction": Canary(repeating_sink, ("evicted-again",)),
    "a torn checkpoint": Canary(torn_checkpoint, ("digest-differs", "refold-differs")),
    "a foreign checkpoint": Canary(
        foreign_checkpoint,
        ("tables-differ", "digest-differs", "refold-differs", "placed-before-sync"),
    ),
    "a lost tail unnoticed": Canary(
        blind_to_loss, ("kept-a-lost-place", "decision-of-a-stale-record")
    ),
    "rows that are not written": Canary(skipped_rows, ("tables-differ",)),
    "a disk that is trusted": Canary(trusted_disk, ("tables-differ",)),
    "a forgotten open command": Canary(forgetful_sink, ("never-ended",)),
    "a restore that a bump hides": Canary(hidden_restore, ("untrue",)),
    "half a gang group": Canary(split_group, ("gang-partly-bound",)),
    "a hold that never ends": Canary(endless_hold, ("held-too-long",)),
    "an eviction of an equal": Canary(evicts_equals, ("evicted-in-vain",)),
    "half a gang's evictions": Canary(evicts_for_half, ("evicted-for-half-a-gang",)),
}
