"""One simulated installation, from one seed: the whole pipeline on one thread, in simulated time.

`Simulation.run` lets things happen and go wrong for a while, then stops all faults, lets time pass,
and asks the auditor. All control flow is here: who takes a turn, what dies, when time moves. The
auditor watches all the time; a role that stops itself is a violation too.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from schemas.errors import LockstepError
from streams.decider import DecisionDiverged
from streams.log import open_reader, open_writer
from streams.log_memory import drop_memory_log
from tests.simulation.api_server import ApiServer
from tests.simulation.audit_chain import ChainAudit
from tests.simulation.audit_cluster import ClusterAudit
from tests.simulation.audit_orders import OrdersAudit
from tests.simulation.audit_rest import RestAudit
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock, ProcessTime
from tests.simulation.log_faults import LogFaults, unwrapped
from tests.simulation.plan import Plan
from tests.simulation.processes import (
    DeciderProcess,
    InformerProcess,
    Process,
    SequencerProcess,
    SinkProcess,
)
from tests.simulation.projector_process import Disk, ProjectorProcess
from tests.simulation.replicas import check_replicas
from tests.simulation.story import story
from tests.simulation.violation import Violation
from tests.simulation.workload import Workload

ABSENT = (
    "elasticquotas.scheduling.x-k8s.io",
    "elasticquotas.scheduling.sigs.k8s.io",
    "podgroups.scheduling.x-k8s.io",
)
ROLES: dict[str, type[Process]] = {
    each.role: each
    for each in (SequencerProcess, DeciderProcess, SinkProcess, InformerProcess, ProjectorProcess)
}
#: A role that stopped is started again after so long.
RESTART_US = 4_000_000
#: Chance in a round that a user, a node or another scheduler does something.
ACTS = 0.2
TWINS_MAX = 3
#: Rest: nothing was appended and nothing happened for so long; longer than any back-off.
QUIET_US = 25_000_000
#: Deadlines are the log's, and a log whose sequencer was half an hour ahead waits until the clock has come there.
REST_US_MAX = 2_700_000_000
#: What is due later than this is not waited for: evictions that led nowhere are forgotten in an hour.
SOON_US = 300_000_000
POLICY: dict[str, Any] = {
    "backoff": {"initial": 1_000_000, "max": 4_000_000},
    "evictions": {"budgetDeadline": 8_000_000},
    # While somebody waits, the head of the queue is looked at again and again: the world would never rest.
    "queue": {"holdAfter": 0},
}
#: Placements of one cycle; with few of them work is left over for the next one.
PLACEMENTS_MAX = (1, 3, 500)


@dataclass
class Outcome:
    """What a run came to. `failure` is None when all held; `story` tells of its subject."""

    plan: Plan
    #: What users could have done, by name.
    acts: tuple[str, ...] = ()
    #: Rounds begun, of those in which anything happens.
    rounds: int = 0
    records: int = 0
    digest: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    failure: Violation | None = None
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.failure is None:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
            return f"seed {self.plan.seed}: {self.records} records, {counts}"
        lines = [f"seed {self.plan.seed}: {self.failure}", *self.story]
        return "\n  ".join([*lines, f"again: make simulate SEED={self.plan.seed} RUNS=1"])


class Simulation:
    """The world of one seed; processes see it as their `World`."""

    def __init__(self, plan: Plan | int) -> None:
        self.plan = plan = plan if isinstance(plan, Plan) else Plan(plan)
        seed = plan.seed
        self.url = f"memory://simulation-{seed}"
        self.clock = Clock()
        self.chaos = Chaos(seed, plan.faults_off)
        self.policy = self._draw_policy()
        self.outcome = Outcome(plan)
        drop_memory_log(f"simulation-{seed}")
        absent = ABSENT if self.chaos.dice.random() < 0.8 else ABSENT[:2]
        self.server = ApiServer(self.clock, self.chaos, absent)
        self.chain = ChainAudit(open_reader(self.url))
        self.orders = OrdersAudit(self.chain)
        self.cluster = ClusterAudit(self.server, self.orders)
        self.server.on_call = self.cluster.on_call
        self.server.on_restore = self._on_restore
        self.workload = Workload(self.server, open_writer(self.url), plan.acts_off)
        self.outcome.acts = self.workload.action_names
        self.log_faults = LogFaults(f"simulation-{seed}", self.clock, self.chaos, self.chain)
        self._processes: list[Process] = []
        self._stopped_roles: list[tuple[int, str]] = []
        self._refusal: BaseException | None = None
        self._disks: list[Disk] = []
        self._epochs = self._names = 0

    def _draw_policy(self) -> dict[str, Any]:
        dice = self.chaos.dice
        return {
            **POLICY,
            "cycle": {"placementsMax": dice.choice(PLACEMENTS_MAX)},
            "evictions": {**POLICY["evictions"], "perMinute": dice.choice((0, 0, 2))},
            "gangs": {"enablePreemption": dice.random() < 0.5},
            "preemption": {"nominatedFor": 20_000_000, "pods": dice.random() < 0.8},
        }

    # What processes see

    def note_digest(self, replica: str, sequence: int, digest: str) -> None:
        """A replica derived this digest."""
        self.chain.note_digest(replica, sequence, digest)

    def count_elections(self) -> int:
        """How often the log has lost its tail."""
        return self.log_faults.elections

    def take_disk(self) -> Disk:
        """A disk that a projector has left, or a new one."""
        return self._disks.pop() if self._disks else Disk()

    def leave_disk(self, disk: Disk) -> None:
        """A projector has died."""
        disk.suffer(self.chaos)
        self._disks.append(disk)

    # The run

    def run(self) -> Outcome:
        """All of it. Never raises for what the auditor finds."""
        random.seed(self.plan.seed)
        time = ProcessTime(self.clock)
        try:
            with (
                patch("producers.informer.secrets", SimpleNamespace(token_hex=self._next_epoch)),
                patch("streams.roles.time", time),
                patch("streams.sink.role.time", time),
                patch("streams.tables.time", time),
                patch("asyncio.to_thread", self._to_thread),
            ):
                self._run()
        except Violation as violation:
            self.outcome.failure = violation
        except (LockstepError, AssertionError, ExceptionGroup) as error:
            self.outcome.failure = self._stopped(error)
        finally:
            for process in self._processes:
                process.die()
            self.outcome.records = len(self.chain.records)
            self.outcome.digest = self.chain.digest
        if self.outcome.failure is not None:
            subject = self.outcome.failure.subject
            self.outcome.story = story(self.server, self.chain, subject)
        drop_memory_log(f"simulation-{self.plan.seed}")
        return self.outcome

    def _run(self) -> None:
        self.workload.begin()
        for role in ROLES:
            self._start(role)
        for _ in range(self.plan.rounds):
            self.outcome.rounds += 1
            if self.chaos.acts_dice.random() < ACTS:
                self.workload.act()
            self._upset()
            self._take_turns()
            self.clock.advance(self._pause_us())
            self._audit()
            self._tend()
        self._calm()
        self._rest()
        self._audit()
        RestAudit(self.server, self.orders, self.cluster).check()
        deciders = [each.decider for each in self._processes if isinstance(each, DeciderProcess)]
        self.log_faults.mend()
        refolded = check_replicas(self.url, [decider.state for decider in deciders])
        for process in self._processes:
            if isinstance(process, ProjectorProcess):
                process.check(refolded)
        self.outcome.counts.update(
            commands=len(self.orders.orders),
            applied=sum(1 for order in self.orders.orders.values() if order.outcome == "Applied"),
        )

    def _take_turns(self) -> None:
        dice = self.chaos.dice
        awake = [each for each in self._processes if each.asleep_until_us <= self.clock.now_us]
        dice.shuffle(awake)
        for process in awake:
            if not self.chaos.raging or dice.random() < 0.8:
                self._take_turn(process)

    def _take_turn(self, process: Process) -> None:
        """A role that stops as it should is started again in a while."""
        try:
            process.turn()
        except (LockstepError, ExceptionGroup) as error:
            if not self.log_faults.explains(error, process.name):
                raise
            self._end(process)
            self._stopped_roles.append((self.clock.now_us + RESTART_US, process.role))
            self.outcome.counts["stops"] += 1

    def _pause_us(self) -> int:
        dice = self.chaos.dice
        return round(dice.choice((500, 5_000, 20_000, 100_000, 400_000)) * dice.uniform(0.5, 1.5))

    def _audit(self) -> None:
        self.orders.read()
        self.cluster.read()
        self.cluster.check_ends()

    # Processes

    def _start(self, role: str) -> None:
        self._names += 1
        try:
            process = ROLES[role](self, f"{role}-{self._names}")
        except LockstepError as error:
            if not self.log_faults.explains(error):
                raise
            self._refusal = unwrapped(error)
            self._stopped_roles.append((self.clock.now_us + RESTART_US, role))
        else:
            self._processes.append(process)

    def _end(self, process: Process) -> None:
        process.die()
        self._processes.remove(process)

    def _tend(self) -> None:
        """Whoever stopped is started again; where the log wants it, the operator mends it first."""
        if self.log_faults.tend(self._processes, self._refusal):
            now_us = self.clock.now_us
            self._stopped_roles = [(now_us, role) for _, role in self._stopped_roles]
            for process in list(self._processes):
                self._end(process)
                self._stopped_roles.append((now_us, process.role))
            self.outcome.counts["restores"] += 1
        self._refusal = None
        due = [role for due_us, role in self._stopped_roles if due_us <= self.clock.now_us]
        later = [item for item in self._stopped_roles if item[0] > self.clock.now_us]
        self._stopped_roles = later
        for role in due:
            self._start(role)

    def _upset(self) -> None:
        """Processes die and are started anew, fall asleep, or get a twin."""
        chaos, dice = self.chaos, self.chaos.dice
        if chaos.happens("process_dies") and self._processes:
            self._replace(dice.choice(self._processes))
        if chaos.happens("process_sleeps") and self._processes:
            seconds = dice.choice(((0.1, 2.0), (2.0, 12.0), (8.0, 40.0)))
            asleep_us = chaos.between_us(*seconds)
            dice.choice(self._processes).asleep_until_us = self.clock.now_us + asleep_us
            self.outcome.counts["sleeps"] += 1
        if chaos.happens("process_twin"):
            role = dice.choice(list(ROLES))
            twins = [each for each in self._processes if each.role == role]
            if len(twins) < TWINS_MAX:
                self._start(role)
                self.outcome.counts["twins"] += 1
        fault, dying = self.log_faults.upset(self._processes)
        if fault:
            self.outcome.counts[fault] += 1
        for process in dying:
            self._replace(process)

    def _replace(self, process: Process) -> None:
        self._end(process)
        self._start(process.role)
        self.outcome.counts["deaths"] += 1

    def _on_restore(self, bumped: bool) -> None:
        """etcd was restored. Without a bump the administrator stops all informers until then."""
        self.outcome.counts["etcd_restores"] += 1
        self.cluster.on_restore()
        for process in [each for each in self._processes if each.role == "informer"]:
            if not bumped:
                self._replace(process)

    def _calm(self) -> None:
        """Faults stop. One sequencer and one set of informers go on; sleepers may still wake."""
        self.chaos.calm()
        self.workload.mend()
        for role in ("sequencer", "informer"):
            twins = [each for each in self._processes if each.role == role]
            for process in twins[:-1]:
                if self.chaos.dice.random() < 0.7:
                    self._end(process)
            if twins:
                twins[-1].asleep_until_us = 0

    def _rest(self) -> None:
        """Time passes until nothing happens any more."""
        begun_us = quiet_since_us = self.clock.now_us
        before: tuple[int, ...] = ()
        while self.clock.now_us - quiet_since_us < QUIET_US:
            self._take_turns()
            self.clock.advance(250_000)
            self._audit()
            self._tend()
            now = len(self.chain.records), len(self.server.history), len(self.chain.decisions)
            waiting = self._is_waiting()
            if now != before or waiting:
                before, quiet_since_us = now, self.clock.now_us
            if self.clock.now_us - begun_us > REST_US_MAX:
                detail = f"still busy {REST_US_MAX // 1_000_000} s after the last fault"
                raise Violation("no-rest", len(self.chain.records), "", detail)

    def _is_waiting(self) -> bool:
        """Whether something will still happen by itself: a sleeper wakes, or a deadline comes."""
        now_us = self.clock.now_us
        busy = any(each.asleep_until_us > now_us or each.awaits_log for each in self._processes)
        if busy or self._stopped_roles or self.log_faults.pending:
            return True
        if not self.chain.decisions:
            return False
        # By the log's time, which may be far ahead of the clock.
        last = self.chain.decisions[-1]
        return 0 < last["next_deadline_us"] <= last["timestamp_us"] + SOON_US

    async def _to_thread(self, function: Callable[..., Any], *given: Any) -> Any:
        """Instead of a thread: somewhat later, at one moment, and the caller hears of it later."""
        dice = self.chaos.dice
        await asyncio.sleep(dice.uniform(0.0, 0.02))
        try:
            return function(*given)
        finally:
            await asyncio.sleep(dice.uniform(0.0, 0.02))

    def _next_epoch(self, _bytes: int) -> str:
        self._epochs += 1
        epoch = f"epoch-{self._epochs}"
        self.cluster.on_list(epoch)
        return epoch

    def _stopped(self, error: BaseException) -> Violation:
        """A role stopped itself, or refused to start."""
        error = unwrapped(error)
        if isinstance(error, Violation):
            return error
        detail = f"{type(error).__name__}: {error}"
        rule = "digest-differs" if isinstance(error, DecisionDiverged) else "role-stopped"
        violation = Violation(rule, len(self.chain.records), "", detail)
        violation.__cause__ = error
        return violation
