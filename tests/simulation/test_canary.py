"""Every planted fault is found, and called by its name."""

import pytest

from tests.simulation.canary import CANARIES
from tests.simulation.simulation import Simulation

#: Seeds tried in turn; a fault needs its occasion.
SEEDS = 12


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_fault_is_called_by_its_name(name: str) -> None:
    """Some seed fails, and the first that does says what was planted."""
    canary = CANARIES[name]
    for seed in range(1, SEEDS + 1):
        with canary.plant():
            outcome = Simulation(seed).run()
        if outcome.failure is not None:
            assert outcome.failure.rule in canary.caught_as, str(outcome)
            return
    pytest.fail(f"{SEEDS} seeds passed with the fault planted")
