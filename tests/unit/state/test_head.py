"""Head of line and starvation: what can't fit blocks nobody, and isn't starved by those that can."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from state import invariants, snapshot
from tests.builders import GIB, START_US, Core, Json, cards, gone, member, node, pod, podgroup
from tests.gang_world import PREFIX
from tests.unit.state.test_gangs import GROUPS, crew
from tests.unit.state.test_preemption import leave, rest, runs, urgent

MINUTE_US = 60_000_000
CARD = ({"type": "gpu", "minor": 1, "resources": {"koordinator.sh/gpu-core": 100}},)
RULES = {"holdAfter": "10m", "holdFor": "30m", "holdNodesPercent": 50}


def busy(nodes: int = 4, **queue: object) -> Core:
    """Nodes of 200 with a small pod on each, and a gang at the head that needs two whole ones."""
    core = Core(queue={**RULES, **queue})
    core.see(*[node(f"n{index}", 200) for index in range(nodes)])
    core.see(*[pod(f"p{index}", 100, node=f"n{index}") for index in range(nodes)])
    core.see(podgroup("big", 2), *crew("big", 2, cpu=200))
    return core


def small(name: str, **fields: object) -> Json:
    """A pod that came after the gang."""
    return pod(name, 100, created_us=START_US + 10, **fields)


def later(core: Core, minutes: float) -> None:
    """Time passes in a tick."""
    core.see(advance_us=round(minutes * MINUTE_US))
    invariants.check(core.state)


def test_a_gang_that_cannot_fit_does_not_block_what_can() -> None:
    """Backfill: a small pod behind it is placed at once."""
    core = busy()
    core.see(small("s"))
    assert "s" in core.binds()


def test_after_its_time_at_the_head_nodes_are_kept_for_it() -> None:
    """Two of four nodes, those with the least in use; small pods get the others, then wait and are told why."""
    core = busy()
    core.see(gone("pods", "p3"))
    later(core, 10)
    assert ("n0", "n3") == core.state.head().nodes
    core.see(*[small(f"s{index}") for index in range(3)])
    assert {"n1", "n2"} == {core.binds()[name] for name in ("s0", "s1")}
    assert ("s2" in core.binds(), core.code("s2")) == (False, "InsufficientResources")
    assert 2 == core.pod("s2").diagnosis.details["nodes"]["KeptForHead"]


def test_kept_room_goes_to_the_head() -> None:
    """When the pods on the kept nodes have gone, the gang starts there, and nothing is kept any more."""
    core = busy()
    later(core, 10)
    core.see(gone("pods", "p0"))
    core.see(small("s"))
    core.see(gone("pods", "p1"))
    assert {"big-0", "big-1"} <= set(core.binds())
    assert {"n0", "n1"} == {core.binds()["big-0"], core.binds()["big-1"]}
    assert core.state.head() is None
    assert {} == core.state.kept


def test_without_keeping_the_same_gang_starves() -> None:
    """The same events with `holdAfter` 0: the small pod takes the room, and the gang waits on."""
    core = busy(nodes=2, holdAfter=0)
    later(core, 10)
    core.see(gone("pods", "p0"))
    core.see(small("s"))
    core.see(gone("pods", "p1"))
    assert "s" in core.binds()
    assert "big-0" not in core.binds()


def test_more_important_pods_use_what_is_kept() -> None:
    """Kept is kept from what comes after the head, not from what comes before it."""
    core = busy(nodes=2, holdNodesPercent=100)
    later(core, 10)
    core.see(gone("pods", "p0"))
    core.see(small("s"))
    core.see(small("urgent", spec={"priority": 5}))
    assert "urgent" in core.binds()
    assert "s" not in core.binds()


def test_keeping_ends_after_its_time() -> None:
    """After `holdFor` the others have their turn for as long as it took to begin."""
    core = busy(nodes=2, holdNodesPercent=100)
    later(core, 10)
    core.see(gone("pods", "p0"), small("s"))
    assert "s" not in core.binds()
    later(core, 29)
    assert "s" not in core.binds()
    later(core, 1)
    assert core.decisions[-1].work_left
    core.see()
    assert "s" in core.binds()


def test_no_more_nodes_than_policy_says() -> None:
    """A gang that would need all four nodes gets two kept."""
    core = busy()
    core.see(podgroup("big", 4, rv=2), member("big-2", "big", 200), member("big-3", "big", 200))
    later(core, 10)
    assert 2 == len(core.state.head().nodes)


def test_nothing_is_kept_for_what_never_fits() -> None:
    """Members larger than any node."""
    core = Core(queue=RULES)
    core.see(
        node("n", 200), podgroup("huge", 1), *crew("huge", 1, cpu=300), pod("p", 100, node="n")
    )
    later(core, 10)
    later(core, 10)
    assert () == core.state.head().nodes


def test_what_never_fits_does_not_stand_before_those_that_could() -> None:
    """Nodes are kept for the first that would fit on empty ones, though one that never does is before it in line."""
    core = busy(nodes=2, holdNodesPercent=100)
    core.see(podgroup("huge", 1, created_us=START_US - 1), *crew("huge", 1, cpu=300))
    later(core, 10)
    assert ("default/big", ("n0", "n1")) == (core.state.head().name, core.state.head().nodes)


def test_members_that_are_not_alike_may_share_a_node() -> None:
    """A driver fits beside a worker; the other worker needs a node of its own."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0", 300), node("n1", 300))
    core.see(pod("p0", 100, node="n0"), pod("p1", 100, node="n1"))
    large = [member(f"g-{index}", "g", 250) for index in (1, 2)]
    core.see(podgroup("g", 3), member("g-0", "g", 50), *large)
    later(core, 10)
    assert ("n0", "n1") == core.state.head().nodes


def test_a_new_head_begins_anew() -> None:
    """The first one is deleted after nine minutes: for the next one nothing is kept a minute later."""
    core = busy()
    core.see(podgroup("next", 2, created_us=START_US + 1), *crew("next", 2, cpu=200))
    later(core, 9)
    core.see(gone("pods", "big-0"), gone("pods", "big-1"))
    later(core, 1)
    assert () == core.state.head().nodes
    later(core, 9)
    assert 2 == len(core.state.head().nodes)


def test_kept_nodes_survive_a_restart() -> None:
    """A State from a snapshot keeps the same nodes from the same pods."""
    core = busy(nodes=2, holdNodesPercent=100)
    later(core, 10)
    core.see(gone("pods", "p0"))
    record = core.journal.record(small("s"))
    core.state = snapshot.decode(snapshot.encode(core.state))
    invariants.check(core.state)
    core.take(record)
    assert "s" not in core.binds()


def test_a_single_pod_at_the_head_gets_the_room_that_was_kept() -> None:
    """One of two kept nodes comes free: the pod is bound there in the same decision."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0", 100), node("n1", 100))
    core.see(pod("x0", 100, node="n0"), pod("x1", 100, node="n1"), pod("h", 100))
    later(core, 10)
    assert core.state.head().nodes
    core.see(gone("pods", "x0"))
    assert {"h": "n0"} == core.binds()


def test_a_gang_at_the_head_gets_its_room_beside_a_pod_of_its_class() -> None:
    """Both nodes are kept for the gang; the pod behind it, of the same class, does not stand in its way."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0", 100), node("n1", 100))
    core.see(pod("x0", 100, node="n0"), pod("x1", 100, node="n1"))
    core.see(podgroup("g", 2), *crew("g", 2), pod("k", 100, created_us=START_US + 5))
    later(core, 10)
    core.see(gone("pods", "x0"))
    core.see(gone("pods", "x1"))
    assert {"g-0", "g-1"} == set(core.binds())


@pytest.mark.parametrize(
    "stray",
    [
        {"requests": {"cpu": 900, "memory": GIB}},
        {"node_selector": {"zone": "none"}},
        {"requests": {"cpu": 1, "memory": GIB, "koordinator.sh/gpu": 100}},
    ],
    ids=["too large", "nowhere", "no cards"],
)
def test_a_member_that_fits_nowhere_costs_its_gang_no_kept_nodes(stray: Json) -> None:
    """It comes first by name; the two others are enough, and wait for room."""
    core = busy(nodes=2, holdNodesPercent=100)
    core.see(member("big-", "big", spec=stray))
    later(core, 10)
    assert ("default/big", ("n0", "n1")) == (core.state.head().name, core.state.head().nodes)


def test_who_is_next_after_kept_nodes_may_want_the_same_ones() -> None:
    """After `holdFor` the gang is still the first that they could be kept for, and has to wait once, not twice."""
    core = busy(nodes=2, holdNodesPercent=100)
    core.see(podgroup("huge", 1, created_us=START_US - 1), *crew("huge", 1, cpu=300))
    later(core, 10)
    later(core, 30)
    assert ("default/big", ()) == (core.state.head().name, core.state.head().nodes)
    later(core, 10)
    assert ("n0", "n1") == core.state.head().nodes


def test_nodes_are_kept_for_whom_no_more_evictions_help() -> None:
    """An owner puts its pod back again and again; the claimant waits for room all the same."""
    core = Core(queue={**RULES, "holdNodesPercent": 100}, evictions={"futileMax": 1})
    core.see(node("n", 100), runs("a", "n", owner="set"), urgent("u", owner="job"))
    leave(core, "a")
    core.see(gone("pods", "u"), runs("b", "n", owner="set"), urgent("v", owner="job"))
    assert "EvictionFutile" == core.code("v")
    later(core, 10)
    assert ("default/v", ("n",)) == (core.state.head().name, core.state.head().nodes)


@pytest.mark.parametrize("unhealthy", [(), (0,)], ids=["too few", "one is broken"])
def test_nodes_without_the_cards_are_not_kept(unhealthy: tuple[int, ...]) -> None:
    """Only n1 has eight cards, and where one of them is broken nothing is kept, for room on n0 helps nobody."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0"), cards("n0", 4), node("n1"), cards("n1", 8, unhealthy=unhealthy))
    core.see(
        pod("used", node="n1", spec={"requests": {"koordinator.sh/gpu": 100}}, allocations=CARD)
    )
    core.see(pod("h", spec={"requests": {"cpu": 100, "koordinator.sh/gpu": 800}}))
    later(core, 10)
    assert (() if unhealthy else ("n1",)) == core.state.head().nodes


def _stronger_one_leaves(core: Core) -> None:
    core.see(gone("pods", "big-"))


def _podgroup_made_anew(core: Core) -> None:
    core.see(
        gone("podgroups.scheduling.sigs.k8s.io", "big", uid="uid-group-big"),
        podgroup("big", 2, uid="uid-next", created_us=START_US + 5),
    )


def _members_come_alone(core: Core) -> None:
    core.see(member("big-", "big", 200, rv=2, node="elsewhere", spec={"priority": 5}))


def _partner_comes(core: Core) -> None:
    names = {GROUPS: '["default/a", "default/big"]'}
    core.see(podgroup("big", 2, rv=2, annotations=names), podgroup("a", 1, annotations=names))
    core.see(member("a-0", "a", 1))


@pytest.mark.parametrize(
    "change", [_stronger_one_leaves, _podgroup_made_anew, _members_come_alone, _partner_comes]
)
def test_a_head_whose_place_changes_is_not_kept_from_its_nodes(
    change: Callable[[Core], None],
) -> None:
    """It comes later in the queue than when nodes were kept for it; they are no longer closed to it for that."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0", 200), node("n1", 200))
    core.see(pod("p0", 100, node="n0"), pod("p1", 100, node="n1"))
    stronger = member("big-", "big", 200, spec={"priority": 5})
    core.see(podgroup("big", 2), stronger, *crew("big", 2, cpu=200))
    later(core, 10)
    assert ("n0", "n1") == core.state.head().nodes
    change(core)
    core.see(node("n2", 1))
    core.see(gone("pods", "p0"), gone("pods", "p1"))
    rest(core)
    assert 2 <= len([name for name in core.binds() if name.startswith("big-")])


def test_a_head_that_comes_later_in_the_queue_keeps_its_time() -> None:
    """It is still the first; nodes are kept as long as they would have been."""
    core = busy(nodes=2, holdNodesPercent=100)
    core.see(member("big-", "big", 200, spec={"priority": 5}))
    later(core, 10)
    before = core.state.head()
    core.see(gone("pods", "big-"))
    rest(core)
    assert replace(before, negative_priority=0) == core.state.head()


def test_a_head_that_falls_behind_another_is_the_head_no_more() -> None:
    """The other one waits its own time before nodes are kept."""
    core = busy(nodes=2, holdNodesPercent=100)
    core.see(member("big-", "big", 200, spec={"priority": 5}))
    older = START_US - 1
    core.see(podgroup("next", 2, created_us=older), *crew("next", 2, cpu=200))
    later(core, 10)
    core.see(gone("pods", "big-"))
    rest(core)
    assert ("default/next", ()) == (core.state.head().name, core.state.head().nodes)


def test_a_gang_with_a_comma_in_its_name_waits_its_time_as_all() -> None:
    """Nothing but annotations declares it, so that any name is taken."""
    core = Core(queue={**RULES, "holdNodesPercent": 100})
    core.see(node("n0", 200), pod("p0", 100, node="n0"))
    said = {f"{PREFIX}/name": "a,b", f"{PREFIX}/min-available": "1"}
    core.see(pod("g", 200, annotations=said))
    later(core, 9)
    later(core, 0.5)
    assert () == core.state.head().nodes
    later(core, 0.5)
    later(core, 29)
    assert ("n0",) == core.state.head().nodes


def test_a_large_member_that_its_gang_does_not_need_costs_it_no_kept_nodes() -> None:
    """It comes first by name, and would fit alone; the two small ones are enough, and fit together."""
    core = Core(queue=RULES)
    core.see(node("n", 200), pod("p", 100, node="n"))
    core.see(podgroup("g", 2), member("g-", "g", 200), *crew("g", 2, cpu=100))
    later(core, 10)
    assert ("n",) == core.state.head().nodes
