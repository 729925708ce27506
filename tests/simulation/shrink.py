"""Shrinks a failing run: the shortest plan found that is still failed by the same rule.

Leaves out rounds, kinds of faults and kinds of acts, one half at a time and then one by one, and keeps
what still fails. The order and the number of tries are fixed, so the same failure shrinks to the same
plan. A run with less in it is another run of the same dice: what it shows is the same rule broken,
maybe in another way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

from tests.simulation.chaos import Chances
from tests.simulation.plan import Plan
from tests.simulation.simulation import Outcome, Simulation

#: Runs that shrinking may take.
TRIES_MAX = 120

Run = Callable[[Plan], Outcome]
Without = Callable[[Plan, Sequence[str]], Plan]


@dataclass
class Shrunk:
    """The run that is left, and how many were tried."""

    outcome: Outcome
    tries: int


def shrink(
    outcome: Outcome,
    run: Run = lambda plan: Simulation(plan).run(),
    tries_max: int = TRIES_MAX,
) -> Shrunk:
    """The smallest failing run found; `outcome` itself when everything in it is needed."""
    shrinker = _Shrinker(outcome, run, tries_max)
    while shrinker.pass_over():
        pass
    return Shrunk(shrinker.best, shrinker.tries)


class _Shrinker:
    def __init__(self, outcome: Outcome, run: Run, tries_max: int) -> None:
        assert outcome.failure is not None
        self.best = outcome
        self.tries = 0
        self._rule = outcome.failure.rule
        self._run = run
        self._tries_max = tries_max

    def pass_over(self) -> bool:
        """Tries everything that could be left out, once; whether something was."""
        before = self.best.plan
        self._cut_rounds()
        names = [field.name for field in fields(Chances)]
        self._leave_out(names, _without_faults)
        self._leave_out(self.best.acts, _without_acts)
        return self.best.plan != before

    def _cut_rounds(self) -> None:
        """First to where it failed, then by halves, quarters and eighths."""
        self._try(replace(self.best.plan, rounds=self.best.rounds))
        for parts in (2, 4, 8):
            before = 0
            while before != self.best.plan.rounds > 1:
                before = self.best.plan.rounds
                self._try(replace(self.best.plan, rounds=before - max(1, before // parts)))

    def _leave_out(self, names: Sequence[str], without: Without) -> None:
        """Halves first, so that most of what is not needed goes in few tries."""
        size = len(names)
        while size:
            for start in range(0, len(names), size):
                self._try(without(self.best.plan, names[start : start + size]))
            size //= 2

    def _try(self, plan: Plan) -> None:
        if plan == self.best.plan or self.tries >= self._tries_max:
            return
        self.tries += 1
        outcome = self._run(plan)
        if outcome.failure is not None and outcome.failure.rule == self._rule:
            self.best = outcome


def _without_faults(plan: Plan, names: Sequence[str]) -> Plan:
    more = [name for name in names if name not in plan.faults_off]
    return replace(plan, faults_off=(*plan.faults_off, *more))


def _without_acts(plan: Plan, names: Sequence[str]) -> Plan:
    more = [name for name in names if name not in plan.acts_off]
    return replace(plan, acts_off=(*plan.acts_off, *more))
