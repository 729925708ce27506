"""Every planted fault is found, and called by its name."""

import pytest

from tests.simulation.canary import CANARIES
from tests.simulation.simulation import Simulation

#: Seeds tried in turn; a fault needs its occasion.
SEEDS = 30


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_fault_is_called_by_its_name(name: str) -> None:
    """Some seed is failed by the rule that was broken."""
    canary = CANARIES[name]
    rules: list[str] = []
    for seed in range(1, SEEDS + 1):
        with canary.plant():
            outcome = Simulation(seed).run()
        if outcome.failure is not None:
            rules.append(outcome.failure.rule)
            if outcome.failure.rule in canary.caught_as:
                return
    pytest.fail(f"{SEEDS} seeds, and nobody said {' or '.join(canary.caught_as)}, only {rules}")
