"""Seeds of the simulation: whatever goes wrong, all holds, and the same seed is the same run."""

import os
import subprocess
import sys

import pytest

from tests.simulation.simulation import Simulation

SEEDS = 40
#: Seeds of the long run.
MANY = 1_000
#: Seeds a test runs, so that workers share the work evenly.
BATCH = 4


@pytest.mark.parametrize("first", range(1, SEEDS + 1, BATCH))
def test_seeds_hold(first: int) -> None:
    """The auditor finds nothing, with faults and after them."""
    outcomes = [Simulation(seed).run() for seed in range(first, first + BATCH)]
    assert [] == [str(outcome) for outcome in outcomes if outcome.failure is not None]
    busy = [outcome for outcome in outcomes if outcome.counts["applied"]]
    assert len(busy) >= BATCH - 1, "a run without a bind says little; one may have no open node"


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
def test_a_thousand_seeds_hold() -> None:
    """What `make simulate RUNS=1000` runs, on all cores: 0 violations; the sums of all seeds are printed."""
    command = (sys.executable, "-m", "tests.simulation.run", "--runs", str(MANY))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    print("\n".join(lines[-2:] if done.returncode == 0 else lines))
    assert 0 == done.returncode
    assert f"{MANY} seeds on " in lines[-1]


def test_a_seed_is_one_run() -> None:
    """The same seed ends with the same digest in another process under another hash seed."""
    program = (
        "from tests.simulation.simulation import Simulation; print(Simulation(7).run().digest)"
    )
    digests = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()
        for hash_seed in ("0", "1")
    ]
    assert 64 == len(digests[0])
    assert digests[0] == digests[1]
