"""W7, W8, W10, W11, W18, C5 and waiting gangs in the core alone: what a decider does for the records, without Kafka.

All sizes follow from the number of nodes; at 5,000 they are those of the performance page. Pods that are bound, and
victims that leave, are told as the sink and the informers would tell it. Milliseconds are CPU time of single records.
"""

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from bench.journal import Journal, Json, batches, member, node, podgroup
from state.machine import step
from state.model.decision import Command
from state.model.state import State
from streams.translate import to_record

Figures = dict[str, float]


class Scene:
    """A State behind a journal. `see` folds and forgets; `wall_s`, `cpu_s` and `records_ms` are of the `timed` ones."""

    def __init__(self, nodes: int, **policy: Any) -> None:
        self.journal, self.state = Journal(), State()
        self.binds, self.evictions, self.work_left = 0, 0, False
        self.wall_s, self.cpu_s = 0.0, 0.0
        self.records_ms: list[float] = []
        self._fold(self.journal.opening(nodes, **policy))

    def see(self, items: list[Json], topic: str = "pods") -> list[Command]:
        """Folds the items, a hundred a record."""
        return self._fold([self.journal.record(topic, batch) for batch in batches(items)])

    def timed(self, items: list[Json], topic: str = "pods") -> list[Command]:
        """The same, with the clock running; without items: one record that only says that time has passed."""
        batch_list = list(batches(items)) or [[]]
        records = [self.journal.record(topic, batch) for batch in batch_list]
        wall, cpu = time.perf_counter(), time.process_time()
        commands = self._fold(records)
        self.wall_s += time.perf_counter() - wall
        self.cpu_s += time.process_time() - cpu
        return commands

    def _fold(self, records: Iterable[bytes]) -> list[Command]:
        commands: list[Command] = []
        for data in records:
            before = time.process_time()
            decision = step(self.state, to_record(data))
            commands += decision.commands
            self.work_left = decision.work_left
            self.records_ms.append((time.process_time() - before) * 1e3)
        self.binds += sum(1 for command in commands if command.kind == "BindPod")
        self.evictions += sum(1 for command in commands if command.kind == "EvictPod")
        return commands

    def drain(self) -> None:
        """Records without news, for as long as the core asks for them; the clock runs."""
        while self.work_left:
            self.timed([])

    def expect(self, binds: int, evictions: int = 0) -> None:
        """Raises `RuntimeError` if something else was decided than the workload is about."""
        if (self.binds, self.evictions) != (binds, evictions):
            raise RuntimeError(
                f"{self.binds} binds and {self.evictions} evictions; wanted {binds} and {evictions}"
            )

    def rates(self, gangs: int, members: int) -> Figures:
        """Decisions a second, and what a gang and a member cost."""
        return {
            "decisions_per_s": gangs * members / self.wall_s,
            "cpu_us_per_gang": self.cpu_s / gangs * 1e6,
            "cpu_us_per_pod": self.cpu_s / (gangs * members) * 1e6,
        }


def run_gangs(nodes: int, repeats: int) -> dict[str, dict[str, Any]]:
    """Every workload, `repeats` times after a warm-up."""
    return {
        label: _spread([workload() for _ in range(repeats + 1)][1:])
        for label, workload in workloads(nodes).items()
    }


def workloads(nodes: int) -> dict[str, Callable[[], Figures]]:
    """Label and workload; one call is one measurement."""
    found: dict[str, Callable[[], Figures]] = {}
    for times in (1, 2, 3):
        gangs = times * nodes // 5
        found[f"W7 {gangs} gangs of 3"] = partial(arrive, nodes, gangs, 3)
    size = nodes // 5
    for gangs in (3, 6, 9):
        found[f"W8 {gangs} gangs of {size}"] = partial(arrive, nodes, gangs, size)
    found[f"C5 one gang of {size}, its PodGroup comes last"] = partial(decide, nodes, size)
    alone, in_turn = (200, *[100] * (size - 1)), (100, 200)
    found[f"C5 the same of a driver and {size - 1} workers"] = partial(decide, nodes, size, alone)
    found["C5 the same of two kinds in turn"] = partial(decide, nodes, size, in_turn)
    found[f"C5 a gang of {size} waits, with room for {size - 1}"] = partial(fall_short, nodes, size)
    few = nodes // 50
    for low in (0, few, few // 10):
        for size in (few, few // 10):
            victims = f"{5 * few // low} gangs of {low}" if low else f"{10 * few} single pods"
            label = f"W10 {few // size} gangs of {size} evict {victims}"
            found[label] = partial(preempt, few, low, size)
    for gang in (False, True):
        how = "as one gang" if gang else "singly"
        label = f"W11 {2 * nodes} hopeless pods {how}, then {nodes // 10} good ones"
        found[label] = partial(starve, 2 * nodes, gang=gang)
    for size in (1, nodes // 250, nodes // 10, 2 * nodes):
        for gang in (True, False):
            gangs, how = 2 * nodes // size, "as gangs" if gang else "as jobs without gangs"
            found[f"W18 {gangs} of {size} {how}"] = partial(arrive, nodes, gangs, size, gang=gang)
    found[f"{2 * nodes} waiting gangs of 3"] = partial(wait, 2 * nodes)
    return found


def arrive(nodes: int, gangs: int, size: int, *, gang: bool = True) -> Figures:
    """Gangs come with their PodGroups and are placed; without `gang` the same pods belong to nothing."""
    scene = Scene(nodes)
    names = [f"gang-{number:05}" for number in range(gangs)]
    if gang:
        scene.timed([podgroup(name, size) for name in names], "podgroups")
    scene.timed(
        [_member(f"{name}-{index}", name if gang else "") for name, index in _each(names, size)]
    )
    scene.expect(binds=gangs * size)
    return scene.rates(gangs, size)


def decide(nodes: int, size: int, cpus: Sequence[int] = (100,)) -> Figures:
    """A gang's members are there when its PodGroup comes: that record places them all. `cpus`: theirs, in turn."""
    scene = Scene(nodes)
    asks = [cpus[index % len(cpus)] for index in range(size)]
    scene.see([_member(f"gang-{index}", "gang", cpu) for index, cpu in enumerate(asks)])
    scene.timed([podgroup("gang", size)], "podgroups")
    scene.expect(binds=size)
    return {"decide_ms": scene.records_ms[-1], **scene.rates(1, size)}


def fall_short(nodes: int, size: int) -> Figures:
    """A gang of one pod a node waits for one node more; a pod goes elsewhere, so it is tried again, in vain."""
    scene = Scene(nodes)
    scene.see([_held(number, number, 3_900, 0) for number in range(nodes - size + 1)])
    scene.see([podgroup("gang", size)], "podgroups")
    scene.see([_member(f"gang-{index}", "gang", cpu=3_000) for index in range(size)])
    scene.see([_member("small-0", "", cpu=50)])
    scene.timed([_gone("uid-small-0", "small-0")])
    scene.expect(binds=1)
    return {"a_pod_goes_ms": scene.records_ms[-1]}


def preempt(nodes: int, low: int, size: int) -> Figures:
    """All nodes are held by less important pods, in gangs of `low` (0: in none); a member fits where all of them left.

    `attempt_ms` is the record in which a gang finds its victims, the worst one.
    """
    scene = Scene(nodes, gangs={"enablePreemption": True})
    each, held_m, wanted_m = (5, 600, 3_500) if low else (10, 40, 3_970)
    if low:
        scene.see(
            [podgroup(f"low-{first}", low) for first in range(0, each * nodes, low)], "podgroups"
        )
    scene.see([_held(number, number % nodes, held_m, low) for number in range(each * nodes)])
    names = [f"high-{number:03}" for number in range(nodes // size)]
    scene.timed([podgroup(name, size) for name in names], "podgroups")
    fields = {"cpu": wanted_m, "mib": 100, "priority": 10}
    seen = [member(f"{name}-{index}", name, **fields) for name, index in _each(names, size)]
    first = len(scene.records_ms)
    evicted = scene.timed(seen)
    attempt_ms = max(scene.records_ms[first:])
    leave(scene, [command for command in evicted if command.kind == "EvictPod"])
    scene.expect(binds=nodes, evictions=each * nodes)
    return {"attempt_ms": attempt_ms, **scene.rates(len(names), size)}


def leave(scene: Scene, evictions: list[Command]) -> None:
    """The victims' evictions are carried out, and they are gone."""
    scene.timed([_ended(command) for command in evictions], "results")
    scene.timed([_gone(command.uid, command.name) for command in evictions])


def starve(nodes: int, *, gang: bool) -> Figures:
    """Important pods that no node can ever take come first; then pods that fit, and one of those goes again."""
    scene, hopeless, good = Scene(nodes), nodes, nodes // 20
    if gang:
        scene.see([podgroup("hopeless", hopeless)], "podgroups")
    fields = {"cpu": 9_000, "mib": 500, "priority": 10}
    name = "hopeless" if gang else ""
    scene.timed([member(f"hopeless-{index}", name, **fields) for index in range(hopeless)])
    scene.drain()
    hopeless_us = scene.cpu_s / hopeless * 1e6
    scene.cpu_s = scene.wall_s = 0.0
    bound = scene.timed([_member(f"good-{index}", "") for index in range(good)])
    figures = {"cpu_us_per_hopeless_pod": hopeless_us, **scene.rates(good, 1)}
    del figures["cpu_us_per_gang"]
    scene.expect(binds=good)
    first = next(command for command in bound if command.kind == "BindPod")
    scene.timed([_gone(first.uid, first.name)])
    return {**figures, "a_pod_goes_ms": scene.records_ms[-1]}


def wait(gangs: int) -> Figures:
    """Full nodes and gangs that wait, each of three identical members; then cycles in which little can change.

    `a_pod_goes_first_ms`: the first time that gangs are tried again, what each asks for is worked out and remembered.
    """
    scene, nodes = Scene(100), 100
    scene.see([_held(number, number, 3_900, 0) for number in range(nodes)])
    names = [f"gang-{number:05}" for number in range(gangs)]
    scene.see([podgroup(name, 3) for name in names], "podgroups")
    scene.timed([_member(f"{name}-{index}", name, cpu=200) for name, index in _each(names, 3)])
    figures = {"cpu_us_per_gang_that_comes": scene.cpu_s / gangs * 1e6}
    scene.see([_member(f"small-{index}", "", cpu=50) for index in range(2)])
    changes: dict[str, tuple[list[Json], str]] = {
        "nothing_changed_ms": ([], "pods"),
        "a_pod_goes_first_ms": ([_gone("uid-small-0", "small-0")], "pods"),
        "a_pod_goes_that_helps_nobody_ms": ([_gone("uid-small-1", "small-1")], "pods"),
        "room_for_one_gang_came_ms": ([node(nodes, cpu=700)], "nodes"),
    }
    for label, (items, topic) in changes.items():
        scene.timed(items, topic)
        figures[label] = scene.records_ms[-1]
    scene.expect(binds=2 + 3)
    return figures


def _each(names: list[str], size: int) -> Iterable[tuple[str, int]]:
    return ((name, index) for name in names for index in range(size))


def _member(name: str, gang: str, cpu: int = 100) -> Json:
    return member(name, gang, cpu=cpu, mib=100)


def _held(number: int, node_number: int, cpu: int, gang_size: int) -> Json:
    """A running pod, of a gang of `gang_size` if that is not 0."""
    gang = f"low-{number // gang_size * gang_size}" if gang_size else ""
    seen = member(f"held-{number:05}", gang, cpu=cpu, mib=100)
    return {**seen, "node": node(node_number)["name"], "phase": "Running"}


def _ended(command: Command) -> Json:
    return {"kind": "CommandEnded", "command_id": command.id, "outcome": "Applied", "status": 201}


def _gone(uid: str, name: str) -> Json:
    fields = {"uid": uid, "name": name, "namespace": "bench", "rv": 100_000_000}
    return {"kind": "ObjectGone", "resource": "pods", **fields}


def _spread(runs: list[Figures]) -> dict[str, Any]:
    return {
        name: {
            "median": round(statistics.median(run[name] for run in runs), 2),
            "min": round(min(run[name] for run in runs), 2),
            "max": round(max(run[name] for run in runs), 2),
        }
        for name in runs[0]
    }
