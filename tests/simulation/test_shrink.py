"""A failing seed shrinks, always to the same plan, and what is kept of it shows the fault again."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.simulation.canary import CANARIES
from tests.simulation.kept import keep, kept, read
from tests.simulation.plan import Plan
from tests.simulation.shrink import shrink
from tests.simulation.simulation import Outcome, Simulation
from tests.simulation.violation import Violation

TRIES = 40


def test_a_planted_fault_shrinks_to_a_file_that_shows_it(tmp_path: Path) -> None:
    """Most faults and acts are left out; the file fails with the fault planted, and holds without."""
    canary = CANARIES["rows that are not written"]
    with canary.plant():
        found = Simulation(1).run()
        assert found.failure is not None
        shrunk = shrink(found, tries_max=TRIES)
        path = keep(shrunk.outcome, tmp_path)
        again = Simulation(read(path).plan).run()
    plan = read(path).plan
    assert (shrunk.outcome.plan, "tables-differ") == (plan, read(path).rule)
    assert again.failure is not None
    assert ("tables-differ", str(shrunk.outcome.failure)) == (
        again.failure.rule,
        str(again.failure),
    )
    assert plan.rounds < 250
    assert len(plan.faults_off) > 20
    assert len(plan.acts_off) > 5
    assert None is Simulation(plan).run().failure
    assert [path] == list(kept(tmp_path))


def test_what_is_needed_stays() -> None:
    """Of a failure that needs 37 rounds, one fault and one act, exactly these are left."""

    def run(plan: Plan) -> Outcome:
        outcome = Outcome(plan, acts=("add_pod", "add_gang", "remove_node"), rounds=plan.rounds)
        needed = "message_held" not in plan.faults_off and "add_gang" not in plan.acts_off
        if needed and plan.rounds >= 37:
            outcome.failure = Violation("over-capacity", 5, "", "planted")
        return outcome

    first = run(Plan(7))
    shrunk, again = shrink(first, run), shrink(first, run)
    plan = shrunk.outcome.plan
    assert (plan, shrunk.tries) == (again.outcome.plan, again.tries)
    assert (37, ("add_pod", "remove_node")) == (plan.rounds, tuple(sorted(plan.acts_off)))
    assert "message_held" not in plan.faults_off
    assert len(plan.faults_off) > 20


def test_another_rule_is_another_failure() -> None:
    """A run that fails for another reason is not taken for the same failure with less in it."""

    def run(plan: Plan) -> Outcome:
        rule = "over-capacity" if plan.rounds == 500 else "no-rest"
        return Outcome(plan, rounds=500, failure=Violation(rule, 5, "", "planted"))

    plan = shrink(run(Plan(7)), run).outcome.plan
    assert 500 == plan.rounds
    assert replace(plan, faults_off=(), acts_off=()) == Plan(7)


@pytest.mark.parametrize("path", [*kept(), None], ids=lambda path: path.stem if path else "none")
def test_kept_seeds_hold(path: Path | None) -> None:
    """What was once found and mended stays mended."""
    if path is not None:
        outcome = Simulation(read(path).plan).run()
        assert outcome.failure is None, str(outcome)
