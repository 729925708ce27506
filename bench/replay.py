"""R2: replay of a long journal with every decision derived again and its bytes compared.

The journal is written to an embedded log by folding it once: a pod is seen pending, its bind ends, it is seen
running, and after `live` pods more it is gone. So there is one placement for four observations.
"""

import resource
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from bench.journal import OBSERVATIONS_A_RECORD, Journal, Json, pod
from schemas.topics import DECISIONS, JOURNAL
from state.machine import step
from state.model.decision import Decision
from state.model.state import State
from streams.history import LogHistory
from streams.log import LogWriter, open_reader, open_writer
from streams.translate import to_record
from streams.verify import verify

Progress = Callable[[int, int], None]


def write_history(
    url: str, nodes: int, observations: int, live: int, shapes: int
) -> dict[str, int]:
    """Writes a journal and its decisions; returns what is in it."""
    writer = open_writer(url)
    try:
        return PodLife(writer, nodes, live, shapes).write(observations)
    finally:
        writer.close()


def run_replay(url: str, progress: Progress | None = None) -> dict[str, Any]:
    """Verifies the log; returns counts, rates and the first difference, if any."""
    reader = open_reader(url)
    try:
        wall, cpu = time.perf_counter(), time.process_time()
        found = verify(LogHistory(reader, reader), progress=progress)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    finally:
        reader.close()
    return {
        "records": found.records,
        "observations": found.observations,
        "decisions_compared": found.compared,
        "difference": None if found.difference is None else found.difference.detail,
        "wall_s": round(wall, 2),
        "observations_per_s": round(found.observations / wall),
        "cpu_us_per_observation": round(cpu / max(found.observations, 1) * 1e6, 1),
        "rss_mb_max": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


class PodLife:
    """Pods that come, run and go, folded as they are written so that results name the right commands."""

    def __init__(self, writer: LogWriter, nodes: int, live: int, shapes: int) -> None:
        self.writer, self.nodes, self.live, self.shapes = writer, nodes, live, shapes
        self.journal, self.state = Journal(), State()
        self.results: list[Json] = []
        self.updates: list[Json] = []
        self.running: deque[int] = deque()
        self.placements = self.records = self.observations = self.created = 0

    def write(self, observations: int) -> dict[str, int]:
        """Goes on until so many observations have been written in all; what is in the log then."""
        if self.records == 0:
            for data in self.journal.opening(self.nodes):
                self._append(data)
        while self.observations < observations:
            self._turn("results", self.results)
            self._turn("pods", self.updates)
            self._turn("pods", self._gone())
            self._turn("pods", self._new())
        return {
            "records": self.records,
            "observations": self.observations,
            "placements": self.placements,
            "live_pods": len(self.state.pods),
        }

    def _new(self) -> list[Json]:
        first, self.created = self.created, self.created + OBSERVATIONS_A_RECORD
        return [pod(number, number % self.shapes) for number in range(first, self.created)]

    def _gone(self) -> list[Json]:
        gone: list[Json] = []
        while len(self.running) > self.live and len(gone) < OBSERVATIONS_A_RECORD:
            seen = pod(self.running.popleft())
            fields = {"uid": seen["uid"], "name": seen["name"], "namespace": seen["namespace"]}
            gone.append({"kind": "ObjectGone", "resource": "pods", "rv": 100_000_000, **fields})
        return gone

    def _turn(self, topic: str, observations: list[Json]) -> None:
        if not observations:
            return
        taken = list(observations)
        observations.clear()
        decision = self._append(self.journal.record(topic, taken))
        self.observations += len(taken)
        for command in decision.commands:
            if command.kind == "BindPod":
                self._bound(command.id, command.name, command.node)

    def _bound(self, command_id: str, name: str, node: str) -> None:
        self.placements += 1
        number = int(name.removeprefix("pod-"))
        self.running.append(number)
        self.results.append(
            {"kind": "CommandEnded", "command_id": command_id, "outcome": "Applied", "status": 201}
        )
        seen = pod(number, number % self.shapes, node=node, phase="Running", command_id=command_id)
        self.updates.append({**seen, "rv": 50_000_000 + number})

    def _append(self, data: bytes) -> Decision:
        decision = step(self.state, to_record(data))
        self.writer.append_many([(JOURNAL, None, data), (DECISIONS, None, decision.data)])
        self.records += 1
        return decision
