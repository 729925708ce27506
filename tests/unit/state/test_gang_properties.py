"""Properties of gangs: any kinds of them, any policy, any events, and what must hold after each and at the end."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from schemas.topics import RESOURCES
from state import snapshot
from tests.builders import START_US, Core, Json, absent, node
from tests.gang_world import (
    KOORDINATOR,
    MATCHES,
    NATIVE,
    SLOT,
    UPSTREAM,
    WORKLOAD,
    GangKind,
    Setting,
    World,
)

STEPS = (
    *("pod",) * 6,
    *("answer",) * 6,
    *("group",) * 4,
    *("node",) * 4,
    *("tick",) * 3,
    *("delete",) * 2,
    "finish",
    "lose",
    "disband",
    "restart",
)
KINDS = st.builds(
    GangKind,
    mode=st.sampled_from(("Strict", "Strict", "NonStrict")),
    match=st.sampled_from((MATCHES[0], *MATCHES)),
    group=st.sampled_from((KOORDINATOR, KOORDINATOR, UPSTREAM, NATIVE, WORKLOAD)),
    slots=st.integers(1, 2),
    priority=st.sampled_from((0, 0, 5, 10)),
    wait_s=st.sampled_from((5, 20)),
    grouped=st.booleans(),
    ring=st.booleans(),
    disruption=st.sampled_from(("single", "all")),
)
SETTINGS = st.builds(
    Setting,
    gangs=st.lists(KINDS, min_size=1, max_size=4).map(tuple),
    percentage=st.sampled_from((0, 0, 50, 100)),
    backoff_s=st.sampled_from((0, 0, 7)),
    preempts=st.booleans(),
    placements_max=st.sampled_from((1, 3, 500)),
)
PLANS = st.lists(
    st.tuples(st.sampled_from(STEPS), st.integers(0, 11), st.integers(0, 11)),
    min_size=6,
    max_size=36,
)
#: The same plans each time: whether a commit passes does not hang on luck.
FEW = settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=(HealthCheck.too_slow,),
    database=None,
    derandomize=True,
)
MANY = settings(FEW, max_examples=5_000, derandomize=False)
#: A member on a node that is not claimed follows those that left their own.
WHOLE = GangKind("Strict", MATCHES[0], NATIVE, 1, 0, 5, grouped=False, disruption="all")
FOLLOWS = (
    Setting((WHOLE,), percentage=0, backoff_s=0, preempts=True, placements_max=1),
    [*[("pod", 0, 0)] * 4, ("group", 0, 0), *[("pod", 0, 0)] * 2, ("pod", 2, 0)],
)


def _holds(setting: Setting, plan: list[tuple[str, int, int]]) -> None:
    world = World(setting)
    for name in ("n0", "n1"):
        world.step("node", int(name[1]), 3)
    for kind, first, second in plan:
        world.step(kind, first, second)
    world.settle()
    assert [] == world.forgotten()


@FEW
@example(*FOLLOWS)
@given(SETTINGS, PLANS)
def test_gangs_hold_what_the_policy_promises(
    setting: Setting, plan: list[tuple[str, int, int]]
) -> None:
    """No partial bind, nothing held too long, evictions only for who then fits, in the end all that fits is placed."""
    _holds(setting, plan)


@pytest.mark.acceptance
@pytest.mark.timeout(3_600)
@MANY
@given(SETTINGS, PLANS)
def test_gangs_hold_what_the_policy_promises_at_length(
    setting: Setting, plan: list[tuple[str, int, int]]
) -> None:
    """The same with 5,000 plans."""
    _holds(setting, plan)


def _objects(setting: Setting, minimums: list[int], pods: list[tuple[int, int]]) -> list[Json]:
    """Nodes, PodGroups and pods; some of the pods run already."""
    objects = [node(f"n{number}", SLOT * 3, 10 + number) for number in range(3)]
    objects += [
        setting.group_of(number, minimums[number], 20 + number)
        for number in range(len(setting.gangs))
    ]
    for place, (number, where) in enumerate(pods):
        made = setting.pod_of(
            f"p{place}",
            number % (len(setting.gangs) + 2),
            rv=100 + place,
            created_us=START_US + place // 2,
        )
        objects.append({**made, "node": f"n{where}", "phase": "Running"} if where < 3 else made)
    return objects


def _told(setting: Setting, objects: list[Json]) -> Core:
    """A core that was told one after the other, and may act from the last record on."""
    core = Core(synced=False, **setting.policy())
    for each in objects:
        core.see(each)
    core.see(*(absent(name) for name in RESOURCES if name not in _LISTED), *map(_began, _LISTED))
    core.see(*map(_ended, _LISTED))
    return core


_LISTED = (
    "pods",
    "nodes",
    *(f"podgroups.{group}" for group in (KOORDINATOR, UPSTREAM, NATIVE)),
    WORKLOAD,
)


def _began(resource: str) -> Json:
    start = {"kind": "SyncStarted", "resource": resource, "producer": "t", "epoch": resource}
    return {**start, "list_rv": 0, "cold": False}


def _ended(resource: str) -> Json:
    return {"kind": "SyncFinished", "resource": resource, "epoch": resource, "list_rv": 0}


def _tables(core: Core) -> Json:
    found: Json = json.loads(snapshot.encode(core.state))["tables"]
    del found["positions"]
    return found


@settings(FEW, max_examples=150)
@given(
    SETTINGS,
    st.lists(st.integers(1, 4), min_size=4, max_size=4),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=14),
    st.randoms(use_true_random=False),
)
def test_the_order_of_news_decides_nothing(
    setting: Setting, minimums: list[int], pods: list[tuple[int, int]], chance: object
) -> None:
    """The same objects in another order: the same rows, the same commands, evictions and holds among them."""
    setting = replace(setting, placements_max=500)
    objects = _objects(setting, minimums, pods)
    first = _told(setting, objects)
    shuffled = list(objects)
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    other = _told(setting, shuffled)
    assert _tables(first) == _tables(other)
    assert first.decisions[-1].commands == other.decisions[-1].commands
