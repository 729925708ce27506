"""Plays the documents of `lockstep simulate`: objects, policies and steps, against one engine and
one cluster.

All control flow of a simulation is here: what a settle is, how time moves, when a report is due.
Must not read a clock or print. Called by `lockstep.simulate` and by the scenario runner.
"""

from collections.abc import Callable
from typing import Any, Final

from lockstep.manifests import Document
from lockstep.options import format_time
from lockstep.simulate_engine import Engine
from lockstep.simulate_sink import SimulatedSink
from lockstep.simulate_steps import Step, read_step
from producers.observe.fields import sequence
from producers.publisher import pack
from producers.simulated.cluster import Cluster
from producers.simulated.informers import OBSERVED_KINDS, SimulatedInformers
from producers.simulated.kinds import kinds_named
from schemas.errors import Fatal, InvalidMessage, LockstepError
from schemas.observations import CommandEnded, EvictRequested, Observed, PolicyChanged
from schemas.policy import policy_change
from schemas.topics import ADMIN, RESULTS
from state.model.decision import Command, Decision
from state.report import report

#: 2026-01-01T00:00:00Z in microseconds since 1970.
START_US: Final = 1_767_225_600_000_000
#: 10000-01-01T00:00:00Z: a report could not say a later time.
END_US: Final = 253_402_300_800_000_000
#: Records of one settle, and moments of one advance, after which something is wrong with the loop.
RECORDS_MAX: Final = 20_000
MOMENTS_MAX: Final = 100_000
#: Whose pods are Lockstep's: where nothing else schedules, also those of the schedulers it
#: replaces.
SCHEDULER_NAMES: Final = (
    "lockstep",
    "koord-scheduler",
    "scheduler-plugins-scheduler",
    "default-scheduler",
    "",
)

Report = dict[str, Any]


class Play:
    """One simulation from its start. `reports` grows by one at each settle point."""

    def __init__(
        self,
        url: str,
        policy: dict[str, Any] | None = None,
        on_settled: Callable[[Engine], None] = lambda _engine: None,
    ) -> None:
        self.cluster = Cluster(START_US)
        self.informers = SimulatedInformers(self.cluster)
        self.sink = SimulatedSink(self.cluster)
        self.engine = Engine(url, {"schedulerNames": SCHEDULER_NAMES, **(policy or {})})
        self.reports: list[Report] = []
        self._commands: list[Command] = []
        self._admin: list[Observed] = []
        self._on_settled = on_settled
        self._step = 0
        self._times = 1
        self._reported = False
        for kind in OBSERVED_KINDS:
            self.informers.relist(kind, cold=True)
        self.settle()

    # Documents

    def play(self, document: Document) -> None:
        """Plays one document. Raises `LockstepError` that names file, document and field."""
        self._step, self._reported = document.number, False
        try:
            raw = document.raw
            if raw.get("apiVersion") != "lockstep.dev/v1":
                for item in _items(raw):
                    self.cluster.apply(item)
            elif raw.get("kind") == "Step":
                self._play_step(read_step(raw))
            elif raw.get("kind") == "Policy":
                self._change_policy(raw.get("spec"))
            else:
                raise InvalidMessage("UnknownKind", "lockstep.dev/v1 has kinds Step and Policy")
            self.informers.see()
        except InvalidMessage as error:
            raise LockstepError(f"{document.where}: {error.detail}") from error

    def finish(self) -> None:
        """The implied settle: a report of its own if documents follow the last settle point."""
        if not self._reported:
            self._settle_point()

    def _play_step(self, step: Step) -> None:
        faults = self.cluster.faults
        match step.verb:
            case "settle":
                self._settle_point()
            case "advance":
                self.advance(step.duration_us)
                self._report()
            case "delete":
                self.cluster.delete(step.kind, step.namespace, step.name)
            case "setPhase":
                self.cluster.set_phase(step.namespace, step.name, step.text)
            case "setHealth":
                self.cluster.set_health(step.name, step.text, step.number, step.flag)
            case "refuseBind":
                planned = faults.refused.setdefault((step.namespace, step.name), [])
                planned.extend([step.number] * step.times)
            case "delayBind":
                faults.delayed[step.namespace, step.name] = True
            case "slowEvict":
                faults.slow_us[step.namespace, step.name] = step.duration_us
            case "evict":
                self._ask_eviction(step)
            case "gap":
                for kind in kinds_named(step.kind):
                    self.informers.gap(kind)
            case "relist":
                for kind in kinds_named(step.kind):
                    self.informers.relist(kind)
            case "duplicate":
                self._times = step.times
            case _:
                assert step.verb == "restart", step.verb
                self.restart()

    def _change_policy(self, spec: Any) -> None:
        if not isinstance(spec, dict):
            raise InvalidMessage("InvalidField", "spec: a map of policy fields is wanted")
        change = PolicyChanged(id=f"document-{self._step}", spec=policy_change(spec))
        self._admin.append(change)

    def _ask_eviction(self, step: Step) -> None:
        self._admin.append(
            EvictRequested(
                id=f"document-{self._step}",
                namespace=step.namespace,
                name=step.name,
                reason=step.text,
                requester="simulate",
            )
        )

    # Time

    def settle(self) -> None:
        """Delivers what was applied as one batch, then goes on until nothing changes at this
        moment.
        """
        self.informers.duplicate(self._times)
        self._publish(ADMIN, self._admin * self._times)
        self._admin, self._times = [], 1
        self._deliver([])
        for _ in range(RECORDS_MAX):
            decision = self.engine.step(self.cluster.now_us)
            if decision is not None:
                self._commands.extend(decision.commands)
                self.sink.take(decision)
                self._resync(decision)
            ends = self.sink.act()
            self._deliver(ends)
            if decision is None and not ends and not self.engine.sequencer.backlog:
                self._on_settled(self.engine)
                return
        raise Fatal(
            f"no rest after {RECORDS_MAX} records at one moment; the last one is"
            f" {self.engine.sequence}: this is a bug, please report it with the input"
        )

    def advance(self, duration_us: int) -> None:
        """Settles, lets delayed binds go, and moves time on, settling at each thing that is due.

        Raises `InvalidMessage` beyond `END_US`.
        """
        target_us = self.cluster.now_us + duration_us
        if target_us >= END_US:
            raise InvalidMessage("InvalidField", "advance: time would leave the year 9999")
        self.settle()
        self.cluster.faults.delayed.clear()
        self.settle()
        for _ in range(MOMENTS_MAX):
            next_us = self._next_moment_us()
            if next_us is None or next_us > target_us:
                break
            self.cluster.advance_to(next_us)
            self.settle()
        else:
            raise Fatal(f"more than {MOMENTS_MAX} moments in one advance: this is a bug")
        self.cluster.advance_to(target_us)
        self.settle()

    def restart(self) -> None:
        """Forgets all local state and folds the journal again. Raises `Fatal` when it differs."""
        decisions = self.engine.restart()
        self._commands = [command for decision in decisions for command in decision.commands]
        self.sink.recover(decisions)

    def _next_moment_us(self) -> int | None:
        moments = (
            self.engine.sequencer.due_us(),
            self.cluster.next_event_us,
            self.sink.next_event_us,
        )
        later = [moment for moment in moments if moment is not None]
        return max(min(later), self.cluster.now_us) if later else None

    # Messages

    def _deliver(self, ends: list[CommandEnded]) -> None:
        self._publish(RESULTS, [*ends])
        for topic, message in self.informers.take():
            self.engine.publish(topic, message)

    def _publish(self, topic: str, observations: list[Observed]) -> None:
        for message in pack("simulate", observations):
            self.engine.publish(topic, message)

    def _resync(self, decision: Decision) -> None:
        """Lists a kind anew when the core asks, but not one whose watch a `gap` holds back."""
        asked = [each.resource for each in decision.requests if each.kind == "ResyncRequested"]
        for kind in OBSERVED_KINDS:
            if kind.resource in asked and not self.informers.is_lost(kind):
                self.informers.relist(kind, full=True)

    # Reports

    def _settle_point(self) -> None:
        self.settle()
        self._report()

    def _report(self) -> None:
        self._reported = True
        self.reports.append(self.report())

    def report(self) -> Report:
        """The report of this moment, as design section 8 lists it."""
        rows = report(self.engine.state)
        for quota in rows["quotas"]:
            del quota["namespace"]  # a quota's name is its identity
        head = {
            "step": self._step,
            "sequence": self.engine.sequence,
            "digest": self.engine.digest,
            "time": format_time(self.cluster.now_us),
        }
        commands = [_row(command) for command in sorted(self._commands, key=_order)]
        return {**head, **rows, "commands": commands}


def _items(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """The objects of a document: one, or those of a List."""
    if raw.get("apiVersion") == "v1" and raw.get("kind") == "List":
        return sequence(raw.get("items"), "items")
    return [raw]


def _order(command: Command) -> tuple[int, int]:
    sequence, _, index = command.id.partition(".")
    return int(sequence), int(index)


def _row(command: Command) -> dict[str, Any]:
    row = {
        "id": command.id,
        "kind": command.kind,
        "namespace": command.namespace,
        "name": command.name,
        "uid": command.uid,
    }
    if command.node:
        row["node"] = command.node
    if command.reason:
        row["reason"] = command.reason
    return row
