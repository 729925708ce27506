"""Seeded simulations by hand: `python -m tests.simulation.run --seed 7 --runs 100`.

Runs seeds on all cores and prints one line a seed, in their order. A seed that fails prints what did
not hold, the first bad sequence and the story of the object; then it is shrunk, and what is left of it
is kept as a file under tests/scenarios/seeds/ (`kept`). The exit code is then 1.
"""

import argparse
import logging
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tests.simulation.kept import KEPT, keep
from tests.simulation.plan import ROUNDS, Plan
from tests.simulation.shrink import TRIES_MAX, shrink
from tests.simulation.simulation import Outcome, Simulation


def main() -> int:
    """Runs the seeds from `--seed` on."""
    asked = _arguments()
    begun, failed, counts = time.monotonic(), 0, Counter[str]()
    plans = [Plan(seed, asked.rounds) for seed in range(asked.seed, asked.seed + asked.runs)]
    jobs = max(1, min(asked.jobs, len(plans)))
    context = multiprocessing.get_context("spawn")
    # A process that is killed ends the run; `multiprocessing.Pool` would wait for its seed for ever.
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_be_silent) as pool:
        for outcome in pool.map(_run, plans):
            print(outcome, flush=True)
            counts += outcome.counts + Counter(records=outcome.records)
            if outcome.failure is not None:
                failed += 1
                if failed <= asked.shrink_max:
                    _shrink(outcome, asked.kept)
    wall_s = time.monotonic() - begun
    print("in all: " + ", ".join(f"{count} {name}" for name, count in sorted(counts.items())))
    print(f"{asked.runs} seeds on {jobs} processes, {failed} failed, {wall_s:.1f} s")
    return 1 if failed else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="seeded simulations with faults")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--shrink-max", type=int, default=1, help="failing seeds that are shrunk")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where a shrunk seed is kept")
    return parser.parse_args()


def _shrink(outcome: Outcome, directory: Path) -> None:
    print(f"  shrinking, at most {TRIES_MAX} runs ...", flush=True)
    found = shrink(outcome)
    print(f"  {found.tries} runs later, with the least in it that still fails:")
    print(f"  {found.outcome}")
    print(f"  kept: {keep(found.outcome, directory)}", flush=True)


def _run(plan: Plan) -> Outcome:
    return Simulation(plan).run()


def _be_silent() -> None:
    """A run logs thousands of faults that were meant to happen."""
    logging.disable(logging.CRITICAL)


if __name__ == "__main__":
    sys.exit(main())
