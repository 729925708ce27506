"""Kinds are not ordered among each other: any interleaving, cut into any records, ends in the same State."""

import json
import random
from typing import Any

import pytest

from schemas.topics import RESOURCES
from state import invariants, snapshot
from tests.builders import (
    GIB,
    START_US,
    Core,
    Json,
    absent,
    budget,
    cards,
    gone,
    member,
    node,
    pod,
    podgroup,
)

RECORDS = 24


def cluster(chance: random.Random) -> list[list[Json]]:
    """What each kind's producer says, in its order: objects, changes, deletions."""
    nodes: list[Json] = []
    for index in range(5):
        name = f"n{index}"
        nodes.append(node(name, chance.choice((2_000, 4_000)), rv=10 + index, gpus=4))
        if chance.random() < 0.3:
            nodes.append(gone("nodes", name, rv=30 + index))
            if chance.random() < 0.5:
                nodes.append(node(name, 3_000, rv=40 + index, uid=f"again-{name}", gpus=4))
        elif chance.random() < 0.3:
            taints = ({"key": "k", "effect": "NoSchedule"},)
            nodes.append(node(name, 1_000, rv=50 + index, taints=taints, gpus=2))
    devices = [cards(f"n{index}", 4, rv=index + 1) for index in range(4) if chance.random() < 0.7]
    groups = [podgroup(f"g{index}", chance.randint(1, 3), rv=10 + index) for index in range(3)]
    if chance.random() < 0.5:
        groups.append(podgroup("g0", 2, rv=30))
    if chance.random() < 0.5:
        groups.append(gone("podgroups.scheduling.sigs.k8s.io", "group-g1", rv=40))
        groups.append(podgroup("g1", 2, rv=41, uid="again-g1"))
    budgets = [budget(f"b{index}", chance.randint(0, 2), rv=10 + index) for index in range(3)]
    if chance.random() < 0.5:
        budgets.append(budget("b0", 1, rv=30, selector=None))
    if chance.random() < 0.5:
        budgets.append(gone("poddisruptionbudgets.policy", "budget-b1", rv=40))
        budgets.append(budget("b1", 0, rv=41, uid="again-b1"))
    return [
        nodes,
        devices,
        groups,
        budgets,
        [said for index in range(14) for said in one_pod(chance, index)],
    ]


def one_pod(chance: random.Random, index: int) -> list[Json]:
    """One pod's life so far."""
    fields: dict[str, Any] = {"created_us": START_US + index // 3}
    requests = {"cpu": chance.choice((100, 900)), "memory": GIB}
    if chance.random() < 0.3:
        requests["nvidia.com/gpu"] = 1
    fields["spec"] = {"requests": requests, "priority": chance.choice((0, 3))}
    make: Any = pod
    if chance.random() < 0.5:
        gang = f"g{chance.randint(0, 2)}"

        def make(name: str, **more: Any) -> Json:
            return member(name, gang, **more)

    said = [make(f"p{index}", rv=100 + index, **fields)]
    fate = chance.random()
    if fate < 0.2:
        where = f"n{chance.randint(0, 4)}"
        held: Any = ()
        if "nvidia.com/gpu" in requests:
            whole = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
            held = ({"type": "gpu", "minor": chance.randint(0, 3), "resources": whole},)
        said.append(make(f"p{index}", rv=200 + index, node=where, allocations=held, **fields))
        if chance.random() < 0.3:
            done = {**said[-1], "rv": 300 + index, "phase": "Succeeded"}
            said.append(done)
    elif fate < 0.3 and make is pod:
        said.append(gone("pods", f"p{index}", rv=200 + index))
    elif fate < 0.4:
        said.insert(0, make(f"p{index}", rv=50 + index, gates=("wait",), **fields))
    return said


LISTED = (
    "pods",
    "nodes",
    "podgroups.scheduling.sigs.k8s.io",
    "poddisruptionbudgets.policy",
    "devices.scheduling.koordinator.sh",
)


def told(chance: random.Random, kinds: list[list[Json]]) -> Core:
    """A core that was told all of it, kinds interleaved and cut at random; the gate opens in the last record."""
    core = Core(synced=False)
    core.see(*(_began(resource) for resource in LISTED))
    queues = [list(said) for said in kinds]
    stream: list[Json] = []
    while any(queues):
        stream.append(chance.choice([queue for queue in queues if queue]).pop(0))
    cuts = sorted(chance.randint(0, len(stream)) for _ in range(RECORDS - 1))
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        core.see(*stream[start:end])
    core.see(*(_ended(name) if name in LISTED else absent(name) for name in RESOURCES))
    return core


def _began(resource: str) -> Json:
    start = {"kind": "SyncStarted", "resource": resource, "producer": "t", "epoch": resource}
    return {**start, "list_rv": 0, "cold": True}


def _ended(resource: str) -> Json:
    return {"kind": "SyncFinished", "resource": resource, "epoch": resource, "list_rv": 0}


def tables(core: Core) -> Json:
    """All rows but the positions, which count messages."""
    found: Json = json.loads(snapshot.encode(core.state))["tables"]
    del found["positions"]
    return found


@pytest.mark.parametrize("seed", range(30))
def test_any_interleaving_ends_in_the_same_state(seed: int) -> None:
    """Rows, placements and command ids are the same, however the kinds interleave."""
    kinds = cluster(random.Random(seed))
    first = told(random.Random(1_000 + seed), kinds)
    for variant in range(2, 5):
        other = told(random.Random(1_000 * variant + seed), kinds)
        invariants.check(other.state)
        assert tables(first) == tables(other)
        assert first.decisions[-1].commands == other.decisions[-1].commands


def test_some_of_these_clusters_place_pods() -> None:
    """The comparison is about something: binds, with cards, and pods that wait."""
    cores = [told(random.Random(seed), cluster(random.Random(seed))) for seed in range(30)]
    assert sum(len(core.binds()) for core in cores) > 60
    assert sum(1 for core in cores for row in core.state.pods.values() if row.allocations) > 20
    assert sum(1 for core in cores for row in core.state.pods.values() if row.diagnosis) > 20
