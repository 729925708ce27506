"""R4: a process that starts on a log with a checkpoint and a tail, until its first decision; what a checkpoint costs.

The log is embedded: pods come, run and go as in `bench.replay`; the checkpoint is taken when `live` pods run, the tail
is what comes in a minute at a given rate. The start is measured in a process of its own, from its creation on.
Run as `python -m bench.recovery URL`, it is that process.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from typing import Any

OBSERVATIONS_A_POD = 4


def run_recovery(url: str, nodes: int, live: int, pods_per_s: int, repeats: int) -> dict[str, Any]:
    """Writes the log and starts on it `repeats` times."""
    pause_ms = write_history(url, nodes, live, 60 * pods_per_s)
    starts = [_start(url) for _ in range(repeats)]
    figures = {name: [start[name] for start in starts] for name in starts[0]}
    return {
        "nodes": nodes,
        "live_pods": live,
        "tail_pods_per_s": pods_per_s,
        "checkpoint_pause_ms": pause_ms,
        **{
            name: {"median": statistics.median(values), "max": max(values)}
            for name, values in figures.items()
        },
    }


def write_history(url: str, nodes: int, live: int, tail_pods: int) -> dict[str, float]:
    """A log with a checkpoint at `live` running pods and a tail of `tail_pods`; how long decisions waited for it."""
    from bench.replay import PodLife
    from schemas.topics import JOURNAL
    from streams.checkpoints import Checkpointer, CheckpointStore
    from streams.log import open_reader, open_writer

    writer, reader = open_writer(url), open_reader(url)
    life = PodLife(writer, nodes, live, shapes=100)
    life.write((OBSERVATIONS_A_POD - 1) * live + nodes)
    pauses = []
    for _ in range(5):
        checkpointer = Checkpointer(CheckpointStore(reader), writer)
        before = time.perf_counter()
        checkpointer.on_decided(life.state, reader.end_offset(JOURNAL), force=True)
        pauses.append((time.perf_counter() - before) * 1e3)
    taken = checkpointer.claim(life.state.sequence)
    assert taken is not None
    checkpointer.write(taken, reader.end_offset("decisions") - 1)
    life.write(life.observations + OBSERVATIONS_A_POD * tail_pods)
    writer.close()
    reader.close()
    return {"median": round(statistics.median(pauses), 1), "max": round(max(pauses), 1)}


def _start(url: str) -> dict[str, float]:
    before = time.perf_counter()
    argv = [sys.executable, "-m", "bench.recovery", url]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        to_first_decision_s = time.perf_counter() - before
    said: dict[str, float] = json.loads(line)
    return {"to_first_decision_s": round(to_first_decision_s, 2), **said}


def main(url: str) -> None:
    """Recovers, decides one more record, and says how long each took."""
    from bench.journal import START_US
    from schemas.codec import encode
    from state.machine import step
    from streams.history import LogHistory
    from streams.log import open_reader
    from streams.recovery import recover
    from streams.translate import to_record

    before = time.perf_counter()
    reader = open_reader(url)
    found = recover(LogHistory(reader, reader))
    recovered = time.perf_counter()
    chain = found.decider.chain
    record = {
        "observations": [],
        "positions": {},
        "prev": chain.last_hash,
        "sequence": chain.sequence + 1,
        "timestamp_us": START_US * 2,
        "version": 1,
    }
    step(found.decider.state, to_record(encode(record)))
    rss_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    tail = chain.sequence - found.started_at
    said = {"recover_s": round(recovered - before, 2), "tail_records": tail, "rss_mb": rss_mb}
    print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
