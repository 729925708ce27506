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
from tests.simulation.processes import ROLES, DeciderProcess, Process
from tests.simulation.replicas import check_replicas
from tests.simulation.story import story
from tests.simulation.violation import Violation
from tests.simulation.workload import Workload

ABSENT = (
    "elasticquotas.scheduling.x-k8s.io",
    "elasticquotas.scheduling.sigs.k8s.io",
    "podgroups.scheduling.x-k8s.io",
)
ROUNDS = 500
#: Chance in a round that a user, a node or another scheduler does something.
ACTS = 0.2
TWINS_MAX = 3
#: Rest: nothing was appended and nothing happened for so long; longer than any back-off.
QUIET_US = 25_000_000
REST_US_MAX = 900_000_000
POLICY: dict[str, Any] = {
    "backoff": {"initial": 1_000_000, "max": 4_000_000},
    "evictions": {"budgetDeadline": 8_000_000},
}
#: Placements of one cycle; with few of them work is left over for the next one.
PLACEMENTS_MAX = (1, 3, 500)


@dataclass
class Outcome:
    """What a run came to. `failure` is None when all held; `story` tells of its subject."""

    seed: int
    records: int = 0
    digest: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    failure: Violation | None = None
    story: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        if self.failure is None:
            counts = ", ".join(f"{count} {name}" for name, count in sorted(self.counts.items()))
            return f"seed {self.seed}: {self.records} records, {counts}"
        lines = [f"seed {self.seed}: {self.failure}", *self.story]
        return "\n  ".join([*lines, f"again: make simulate SEED={self.seed} RUNS=1"])


class Simulation:
    """The world of one seed; processes see it as their `World`."""

    def __init__(self, seed: int, rounds: int = ROUNDS) -> None:
        self.seed = seed
        self.url = f"memory://simulation-{seed}"
        self.clock = Clock()
        self.chaos = Chaos(seed)
        placements_max = self.chaos.dice.choice(PLACEMENTS_MAX)
        self.policy = {**POLICY, "cycle": {"placementsMax": placements_max}}
        self.outcome = Outcome(seed)
        self._rounds = rounds
        drop_memory_log(f"simulation-{seed}")
        absent = ABSENT if self.chaos.dice.random() < 0.8 else ABSENT[:2]
        self.server = ApiServer(self.clock, self.chaos, absent)
        self.chain = ChainAudit(open_reader(self.url))
        self.orders = OrdersAudit(self.chain)
        self.cluster = ClusterAudit(self.server, self.orders)
        self.server.on_call = self.cluster.on_call
        self.workload = Workload(self.server, open_writer(self.url))
        self._processes: list[Process] = []
        self._epochs = self._names = 0

    # What processes see

    def note_digest(self, replica: str, sequence: int, digest: str) -> None:
        """A replica derived this digest."""
        self.chain.note_digest(replica, sequence, digest)

    # The run

    def run(self) -> Outcome:
        """All of it. Never raises for what the auditor finds."""
        random.seed(self.seed)
        time = ProcessTime(self.clock)
        try:
            with (
                patch("producers.informer.secrets", SimpleNamespace(token_hex=self._next_epoch)),
                patch("streams.roles.time", time),
                patch("streams.sink.role.time", time),
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
        drop_memory_log(f"simulation-{self.seed}")
        return self.outcome

    def _run(self) -> None:
        self.workload.begin()
        for role in ROLES:
            self._start(role)
        for _ in range(self._rounds):
            if self.chaos.dice.random() < ACTS:
                self.workload.act()
            self._upset()
            self._take_turns()
            self.clock.advance(self._pause_us())
            self._audit()
        self._calm()
        self._rest()
        self._audit()
        RestAudit(self.server, self.orders, self.cluster).check()
        deciders = [each.decider for each in self._processes if isinstance(each, DeciderProcess)]
        check_replicas(self.url, [decider.state for decider in deciders])
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
                process.turn()

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
        self._processes.append(ROLES[role](self, f"{role}-{self._names}"))

    def _upset(self) -> None:
        """Processes die and are started anew, fall asleep, or get a twin."""
        chaos, dice = self.chaos, self.chaos.dice
        if chaos.happens("process_dies"):
            self._replace(dice.choice(self._processes))
        if chaos.happens("process_sleeps"):
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

    def _replace(self, process: Process) -> None:
        process.die()
        self._processes.remove(process)
        self._start(process.role)
        self.outcome.counts["deaths"] += 1

    def _calm(self) -> None:
        """Faults stop. One sequencer and one set of informers go on; sleepers may still wake."""
        self.chaos.calm()
        self.workload.mend()
        for role in ("sequencer", "informer"):
            twins = [each for each in self._processes if each.role == role]
            for process in twins[:-1]:
                if self.chaos.dice.random() < 0.7:
                    process.die()
                    self._processes.remove(process)
            twins[-1].asleep_until_us = 0

    def _rest(self) -> None:
        """Time passes until nothing happens any more."""
        begun_us = quiet_since_us = self.clock.now_us
        before: tuple[int, ...] = ()
        while self.clock.now_us - quiet_since_us < QUIET_US:
            self._take_turns()
            self.clock.advance(250_000)
            self._audit()
            now = len(self.chain.records), len(self.server.history), len(self.chain.decisions)
            waiting = self._is_waiting()
            if now != before or waiting:
                before, quiet_since_us = now, self.clock.now_us
            if self.clock.now_us - begun_us > REST_US_MAX:
                detail = f"still busy {REST_US_MAX // 1_000_000} s after the last fault"
                raise Violation("no-rest", len(self.chain.records), "", detail)

    def _is_waiting(self) -> bool:
        """Whether something will still happen by itself: a sleeper wakes, or a deadline comes."""
        asleep = any(each.asleep_until_us > self.clock.now_us for each in self._processes)
        return asleep or bool(self.chain.decisions and self.chain.decisions[-1]["next_deadline_us"])

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
        return f"epoch-{self._epochs}"

    def _stopped(self, error: BaseException) -> Violation:
        """A role stopped itself, or refused to start."""
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, Violation):
            return error
        detail = f"{type(error).__name__}: {error}"
        rule = "digest-differs" if isinstance(error, DecisionDiverged) else "role-stopped"
        violation = Violation(rule, len(self.chain.records), "", detail)
        violation.__cause__ = error
        return violation
