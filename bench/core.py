"""C1, C2, C3: decisions a second of the core alone, from an in-memory list of journal records.

What is timed is all that the decider does for a record: decode, fold, place, encode, hash. What is not: Kafka, the
API server, the building of the records.
"""

import resource
import statistics
import time
from typing import Any

from bench.journal import Journal, batches, pod
from state.machine import step
from state.model.state import State
from streams.translate import to_record


def run_core(nodes: int, pods: int, shapes: int, repeats: int, init: int = 0) -> dict[str, Any]:
    """Places `pods` of `shapes` mixed shapes on `nodes`, `init` pods placed before; the first repeat is the warm-up."""
    rates, cpu = [], []
    for repeat in range(repeats + 1):
        journal = Journal()
        opening = list(journal.opening(nodes))
        before = _pods(journal, 0, init, shapes)
        measured = _pods(journal, init, pods, shapes)
        state = State()
        for data in (*opening, *before):
            step(state, to_record(data))
        wall, cpu_s, bound = _fold(state, measured)
        if bound != pods:
            raise RuntimeError(f"{bound} of {pods} pods were placed: the workload does not fit")
        if repeat:
            rates.append(pods / wall)
            cpu.append(cpu_s / pods * 1e6)
    return {
        "nodes": nodes,
        "pods": pods,
        "shapes": shapes,
        "init_pods": init,
        "repeats": repeats,
        "decisions_per_s": _spread(rates),
        "cpu_us_per_pod": _spread(cpu),
        "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def _pods(journal: Journal, first: int, count: int, shapes: int) -> list[bytes]:
    items = [pod(number, number % shapes) for number in range(first, first + count)]
    return [journal.record("pods", batch) for batch in batches(items)]


def _fold(state: State, records: list[bytes]) -> tuple[float, float, int]:
    bound = 0
    wall, cpu = time.perf_counter(), time.process_time()
    for data in records:
        decision = step(state, to_record(data))
        bound += sum(1 for command in decision.commands if command.kind == "BindPod")
    return time.perf_counter() - wall, time.process_time() - cpu, bound


def _spread(values: list[float]) -> dict[str, float]:
    return {
        "median": round(statistics.median(values), 1),
        "min": round(min(values), 1),
        "max": round(max(values), 1),
    }
