"""Seeded simulations by hand: `python -m tests.simulation.run --seed 7 --runs 100`.

Prints one line a seed; a seed that fails prints what did not hold, the first bad sequence and the
story of the object, and the exit code is 1.
"""

import argparse
import logging
import sys
import time

from tests.simulation.plan import ROUNDS, Plan
from tests.simulation.simulation import Simulation


def main() -> int:
    """Runs the seeds from `--seed` on."""
    parser = argparse.ArgumentParser(description="seeded simulations with faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    begun, failed = time.monotonic(), 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        outcome = Simulation(Plan(seed, asked.rounds)).run()
        failed += outcome.failure is not None
        print(outcome, flush=True)
    print(f"{asked.runs} seeds, {failed} failed, {time.monotonic() - begun:.1f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
