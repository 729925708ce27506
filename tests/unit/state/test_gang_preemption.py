"""Preemption for gangs: all or nothing over nodes, whole victim gangs first, what only waits is let go."""

from typing import Any

import pytest

from state import snapshot
from state.machine import step
from state.model.state import State
from tests.builders import START_US, Core, Json, budget, cards, ended, gone, member, node, pod
from tests.unit.state.test_gang_holds import held, loose
from tests.unit.state.test_gangs import GROUPS, crew, grouped
from tests.unit.state.test_preemption import evicted, kept, later, leave, rest, runs, urgent

LABEL = "pod-group.scheduling.sigs.k8s.io"


def preempting(**policy: Any) -> Core:
    """A core whose policy has gangs preempt."""
    return Core(gangs={"enablePreemption": True}, **policy)


def vips(gang: str, count: int, cpu: int = 100, priority: int = 10, **fields: Any) -> list[Json]:
    """Members of a gang that matters."""
    spec = {"priority": priority, **fields.pop("spec", {})}
    return [member(f"{gang}-{index}", gang, cpu, spec=spec, **fields) for index in range(count)]


def group(name: str, minimum: int, **fields: Any) -> Json:
    """Its PodGroup."""
    return grouped(name, minimum, name, **fields)


def full(core: Core, nodes: str, priority: int = 0, **fields: Any) -> None:
    """Nodes with one pod each that takes all of it; the pod's name is the node's in capitals."""
    for name in nodes:
        core.see(node(name, 100), runs(name.upper(), name, priority=priority, **fields))


def test_all_members_get_room_over_several_nodes() -> None:
    """Two nodes must be cleared and one is free: two are evicted, all three are bound together in the end."""
    core = preempting()
    full(core, "ab")
    core.see(node("c", 100), group("g", 3), *vips("g", 3))
    assert (["A", "B"], {}) == (sorted(evicted(core)), core.binds())
    assert ["a", "b", "c"] == sorted(kept(core).values())
    core.see(pod("other"))
    leave(core, "A")
    assert {} == core.binds()
    leave(core, "B")
    assert {"g-0", "g-1", "g-2"} == set(core.binds())


def test_nobody_is_evicted_where_not_all_would_fit() -> None:
    """Room can be made for two of four (7-G5)."""
    core = preempting()
    full(core, "ab")
    full(core, "c", priority=10)
    core.see(group("g", 4), *vips("g", 4))
    assert ({}, {}) == (evicted(core), kept(core))
    assert "InsufficientResources" == core.code("g-0")


def test_a_gang_that_can_never_start_evicts_nobody() -> None:
    """One member selects a node that there is not (7-U9), however often low pods come and go."""
    core = preempting()
    full(core, "ab")
    stuck = member("g-x", "g", spec={"priority": 10, "node_selector": {"zone": "none"}})
    core.see(group("g", 2), *vips("g", 1), stuck)
    core.see(gone("pods", "A"), pod("again"))
    rest(core)
    assert ({}, {}) == (evicted(core), kept(core))
    assert "a" == core.binds()["again"]


def test_room_that_is_kept_is_not_taken_by_those_that_come_back() -> None:
    """The evicted pod's successor waits (7-U9)."""
    core = preempting()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    leave(core, "A")
    core.see(pod("A-again"))
    leave(core, "B")
    assert {"g-0", "g-1"} == set(core.binds())


def test_a_misfit_is_passed_over() -> None:
    """Two are needed of three, and the first can be nowhere (7-G3): the others' room is made."""
    core = preempting()
    full(core, "ab")
    misfit = member("g-", "g", spec={"priority": 10, "node_selector": {"zone": "none"}})
    core.see(group("g", 2), misfit, *vips("g", 2))
    assert ["A", "B"] == sorted(evicted(core))
    assert {"g-0", "g-1"} == set(kept(core))


def test_gangs_preempt_only_where_policy_says_so() -> None:
    """It is off by default, as in the reference."""
    core = Core()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    assert {} == evicted(core)


def test_one_member_that_never_preempts_speaks_for_all() -> None:
    """As in the reference."""
    core = preempting()
    full(core, "ab")
    never = {"priority": 10, "preemption_policy": "Never"}
    core.see(group("g", 2), *vips("g", 1), member("g-x", "g", spec=never))
    assert {} == evicted(core)


def test_the_least_important_member_decides_whom_the_gang_may_evict() -> None:
    """One member is no more important than what runs."""
    core = preempting()
    full(core, "ab", priority=5)
    core.see(group("g", 2), *vips("g", 1), member("g-x", "g", spec={"priority": 5}))
    assert {} == evicted(core)


def test_several_members_on_one_node() -> None:
    """Room for two of them is made by as many victims as it takes, and no more."""
    core = preempting()
    core.see(node("n", 400))
    core.see(*[runs(f"r{i}", "n", started_us=START_US + i) for i in range(4)])
    core.see(group("g", 2), *vips("g", 2, 150))
    assert ["r1", "r2", "r3"] == sorted(evicted(core))
    assert {"g-0": "n", "g-1": "n"} == kept(core)


def test_one_large_victim_may_do_for_several_members() -> None:
    """What was chosen for the first member alone and is not needed any more is kept."""
    core = preempting()
    core.see(node("n", 400), runs("small", "n", 100), runs("large", "n", 300, priority=1))
    core.see(group("g", 3), *vips("g", 3))
    assert ["large"] == list(evicted(core))


def test_a_whole_victim_gang_rather_than_two_broken_ones() -> None:
    """Two pods must go, on two nodes; of equals the second is of the gang that is hit already."""
    core = preempting()
    core.see(group("one", 2), group("two", 2), node("a", 100), node("b", 200))
    core.see(runs("one-0", "a", labels={LABEL: "one"}, started_us=START_US + 9))
    core.see(runs("one-1", "b", labels={LABEL: "one"}, started_us=START_US + 1))
    core.see(runs("two-0", "b", labels={LABEL: "two"}, started_us=START_US + 5))
    core.see(runs("two-1", "elsewhere", labels={LABEL: "two"}))
    core.see(group("g", 2), *vips("g", 2))
    assert ["one-0", "one-1"] == sorted(evicted(core))


@pytest.mark.parametrize("claimant", ["gang", "pod"])
def test_a_lone_pod_goes_rather_than_a_member_of_a_running_gang(claimant: str) -> None:
    """Without it the other member would run in vain; the lone pod has run for longer, which counts less."""
    core = preempting()
    core.see(group("one", 2), node("a", 100), node("b", 100))
    core.see(runs("one-0", "a", labels={LABEL: "one"}, started_us=START_US + 9))
    core.see(runs("one-1", "elsewhere", labels={LABEL: "one"}))
    core.see(runs("lone", "b", started_us=START_US + 1))
    asking = [group("g", 1), *vips("g", 1)] if claimant == "gang" else [urgent("p")]
    core.see(*asking)
    assert ["lone"] == list(evicted(core))


def test_so_it_is_on_one_node() -> None:
    """The member and the lone pod share the node."""
    core = preempting()
    core.see(group("one", 2), node("a", 200))
    core.see(runs("one-0", "a", labels={LABEL: "one"}, started_us=START_US + 9))
    core.see(runs("one-1", "elsewhere", labels={LABEL: "one"}))
    core.see(runs("lone", "a", started_us=START_US + 1))
    core.see(urgent("p"))
    assert ["lone"] == list(evicted(core))


def test_a_whole_gang_rather_than_a_part_of_another() -> None:
    """Two must go, of one node: a gang of two, or two of a gang of three, the third of which is elsewhere."""
    core = preempting()
    core.see(group("two", 2), group("three", 3), node("a", 200), node("b", 200))
    core.see(
        *[runs(f"three-{i}", "a", labels={LABEL: "three"}, started_us=START_US + 9) for i in (0, 1)]
    )
    core.see(runs("three-2", "elsewhere", labels={LABEL: "three"}))
    core.see(
        *[runs(f"two-{i}", "b", labels={LABEL: "two"}, started_us=START_US + 1) for i in (0, 1)]
    )
    core.see(group("g", 1), *vips("g", 1, 200))
    assert ["two-0", "two-1"] == sorted(evicted(core))


def test_a_surplus_member_goes_before_one_that_its_gang_needs() -> None:
    """One of three that need two may go; the gang of two would be broken."""
    core = preempting()
    core.see(group("few", 2), group("many", 2), node("a", 100), node("b", 100))
    core.see(runs("few-0", "a", labels={LABEL: "few"}, started_us=START_US + 9))
    core.see(runs("many-0", "b", labels={LABEL: "many"}, started_us=START_US + 1))
    core.see(runs("few-1", "elsewhere", labels={LABEL: "few"}))
    core.see(*[runs(f"many-{i}", "elsewhere", labels={LABEL: "many"}) for i in (1, 2)])
    core.see(urgent("p"))
    assert ["many-0"] == list(evicted(core))


@pytest.mark.parametrize("leaving", ["evicted", "deleted"])
def test_who_leaves_already_is_no_member_that_a_gang_could_lose(leaving: str) -> None:
    """Of three that need two one leaves: another one would leave the last to run in vain, so the lone pod goes."""
    core = preempting()
    core.see(group("many", 2), node("a", 100), node("b", 100), node("c", 100))
    fields = {"deleted_us": START_US} if leaving == "deleted" else {}
    core.see(runs("many-0", "a", labels={LABEL: "many"}, started_us=START_US + 9, **fields))
    core.see(runs("many-1", "b", labels={LABEL: "many"}, started_us=START_US + 8))
    core.see(runs("many-2", "elsewhere", labels={LABEL: "many"}))
    core.see(runs("lone", "c", started_us=START_US + 1))
    core.see(urgent("p"))
    assert (["many-0"] if leaving == "evicted" else []) == list(evicted(core))
    core.see(urgent("q"))
    assert "lone" in evicted(core)
    assert "many-1" not in evicted(core)


def test_members_that_only_hold_are_let_go_instead_of_evicted() -> None:
    """A NonStrict gang waits with two of three: they are no pods to evict (7-G4)."""
    core = preempting()
    core.see(node("n", 200), loose("low", 3), *crew("low", 3))
    assert 2 == len(held(core))
    core.see(group("g", 2), *vips("g", 2))
    rest(core)
    assert ({"g-0": "n", "g-1": "n"}, {}, {}) == (core.binds(), held(core), evicted(core))


def test_what_is_held_and_what_runs_make_room_together() -> None:
    """One node is held, the other one taken: the holder lets go, the other is evicted."""
    core = preempting()
    core.see(node("n", 100), loose("low", 2), *crew("low", 2))
    full(core, "a")
    assert 1 == len(held(core))
    core.see(group("g", 2), *vips("g", 2))
    assert (["A"], {}) == (list(evicted(core)), held(core))
    assert {"a", "n"} == set(kept(core).values())
    leave(core, "A")
    rest(core)
    assert {"g-0", "g-1"} == set(core.binds())


def test_a_nonstrict_gang_gathers_where_evictions_are_held_back() -> None:
    """The limit allows too few: meanwhile it holds what it can, as it would without preemption."""
    core = preempting(evictions={"perMinute": 1})
    full(core, "ab")
    core.see(node("c", 100), loose("g", 3), *vips("g", 3))
    assert {"c"} == set(held(core).values())
    assert {} == evicted(core)
    assert "EvictionsLimited" == core.code("g-2")


def test_room_that_is_kept_on_a_node_takes_no_hold_there() -> None:
    """A pod waits there for another one to leave; the more important gang holds the rest of the node as before."""
    core = Core()
    core.see(node("n", 200), runs("low", "n"))
    core.see(loose("g", 3), *vips("g", 3, priority=20))
    assert {"g-0": "n"} == held(core)
    core.see(urgent("p"))
    core.see(node("other", 1))
    rest(core)
    assert ({"g-0": "n"}, {"p": "n"}) == (held(core), kept(core))
    leave(core, "low")
    assert {"p": "n"} == core.binds()


def test_a_gang_holds_on_where_room_is_kept_for_another_member_of_it() -> None:
    """The driver holds what it has while the worker waits for a pod to leave the same node."""
    core = preempting()
    core.see(node("n", 300), runs("low", "n", 200))
    core.see(loose("g", 2), member("g-driver", "g", 100), *vips("g", 1, 200))
    core.see(node("other", 1))
    core.see()
    rest(core)
    assert ({"g-driver": "n"}, {"g-0": "n"}) == (held(core), kept(core))
    leave(core, "low")
    assert {"g-driver": "n", "g-0": "n"} == core.binds()


def test_a_group_over_two_namespaces() -> None:
    """Both gangs' minimums, or nothing."""
    names = '["default/g", "other/h"]'
    there = {"namespace": "other", "annotations": {GROUPS: names}}
    for rooms in ("ab", "a"):
        core = preempting()
        full(core, rooms)
        core.see(grouped("g", 1, "g"), *vips("g", 1))
        core.see(
            {**group("g", 1, rv=2), "annotations": {GROUPS: names}},
            {**group("h", 1), **there},
        )
        assert ["A"] == list(evicted(core))
        core = preempting()
        full(core, rooms)
        core.see({**group("g", 1), "annotations": {GROUPS: names}}, {**group("h", 1), **there})
        core.see(*vips("g", 1), *[{**each, "namespace": "other"} for each in vips("h", 1)])
        assert list(rooms.upper() if rooms == "ab" else "") == sorted(evicted(core))


def test_cards_for_a_gang() -> None:
    """A node whose agent reports four cards, two pods with two each: both leave for a gang of four."""
    whole = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    core = preempting()
    core.see(node("n", gpus=4), cards("n", 4))
    for first in (0, 2):
        minors = ({"type": "gpu", "minor": first + more, "resources": whole} for more in (0, 1))
        requests = {"cpu": 100, "nvidia.com/gpu": 2}
        core.see(
            runs(f"r{first}", "n", allocations=tuple(minors), spec={"requests": requests}),
        )
    core.see(runs("plain", "n"))
    core.see(group("g", 4), *vips("g", 4, spec={"requests": {"cpu": 10, "nvidia.com/gpu": 1}}))
    assert ["r0", "r2"] == sorted(evicted(core))
    leave(core, "r0")
    assert {} == core.binds()
    leave(core, "r2")
    assert [0, 1, 2, 3] == sorted(core.pod(f"g-{i}").allocations[0].minor for i in range(4))


def test_budgets_over_several_nodes() -> None:
    """One disruption is allowed, two are needed, each on a node of its own: nobody goes."""
    core = preempting()
    core.see(budget("one", 1))
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    assert {} == evicted(core)
    core.see(budget("one", 2, rv=2))
    assert ["A", "B"] == sorted(evicted(core))


def test_members_of_its_own_are_no_victims() -> None:
    """A sibling of less importance that runs is left alone."""
    core = preempting()
    words = {"gang.scheduling.koordinator.sh/match-policy": "waiting-and-running"}
    core.see(node("n", 100), {**group("g", 2), "annotations": words})
    core.see(runs("g-old", "n", labels={LABEL: "g"}), *vips("g", 1))
    assert {} == evicted(core)


def test_a_surplus_member_evicts_none_of_its_own_gang_or_group() -> None:
    """It comes alone, and others of the gang, and of a partner, are less important: they are left alone."""
    core = preempting()
    core.see(node("n", 200), grouped("g", 1, "g", "h"), grouped("h", 1, "g", "h"))
    core.see(runs("g-old", "n", labels={LABEL: "g"}), runs("h-old", "n", labels={LABEL: "h"}))
    core.see(*vips("g", 1))
    rest(core)
    assert ({}, "InsufficientResources") == (evicted(core), core.code("g-0"))


def test_where_a_victim_stays_the_gang_plans_anew() -> None:
    """The eviction on b is refused: room is made on c, and what has come free on a is used."""
    core = preempting()
    full(core, "ab")
    full(core, "c", priority=5)
    core.see(group("g", 2), *vips("g", 2))
    assert ["A", "B"] == sorted(evicted(core))
    leave(core, "A")
    core.see(ended(evicted(core)["B"], "Refused", status=403), topic="results")
    rest(core)
    assert ["A", "B", "C"] == sorted(evicted(core))
    leave(core, "C")
    assert {"a", "c"} == set(core.binds().values())


def test_where_a_node_is_lost_the_gang_plans_anew() -> None:
    """One of two nodes on which room is kept is gone: another is cleared at once, the first one's room is kept."""
    core = preempting()
    full(core, "ab")
    full(core, "c", priority=5)
    core.see(group("g", 2), *vips("g", 2))
    core.see(gone("nodes", "b"))
    rest(core)
    assert ["A", "B", "C"] == sorted(evicted(core))
    assert ["a", "c"] == sorted(kept(core).values())


def test_kept_room_of_a_gang_ends() -> None:
    """A victim never leaves: after the policy's time all of it is free for others, and there is no more to do."""
    core = preempting(preemption={"nominatedFor": "60s"})
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    leave(core, "A")
    core.see(pod("other"))
    assert {} == core.binds()
    later(core, 61)
    assert ({"other": "a"}, {}) == (core.binds(), kept(core))


def test_of_two_gangs_the_more_important_one_gets_the_room() -> None:
    """Its partner in the fight waits, and neither evicts more than is needed."""
    core = preempting()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    core.see(group("h", 2), *vips("h", 2, priority=20))
    rest(core)
    assert {"h-0", "h-1"} == set(kept(core))
    leave(core, "A", "B")
    rest(core)
    assert {"h-0", "h-1"} == set(core.binds())
    assert ["A", "B"] == sorted(evicted(core))


def test_two_equal_gangs_do_not_fight() -> None:
    """The older one gets all it needs, the other one evicts nobody and waits."""
    core = preempting()
    full(core, "abc")
    core.see(group("g", 2), *vips("g", 2), group("h", 2, created_us=START_US + 1), *vips("h", 2))
    rest(core)
    assert (2, {"g-0", "g-1"}) == (len(evicted(core)), set(kept(core)))


def test_a_single_pod_that_matters_more_takes_room_of_a_nominated_gang() -> None:
    """The gang gives up all that was kept for it, and gets room elsewhere only as a whole."""
    core = preempting()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    leave(core, "A")
    core.see(urgent("first", priority=20))
    rest(core)
    assert ({"first": "a"}, {}) == (core.binds(), kept(core))


@pytest.mark.parametrize("minimum", [1, 3])
def test_a_minimum_that_changes_while_room_is_kept(minimum: int) -> None:
    """Fewer are needed: they go as soon as one has room. More: more is cleared, or nothing is kept."""
    core = preempting()
    full(core, "abc")
    core.see(group("g", 2), *vips("g", 3))
    assert 2 == len(kept(core))
    core.see(group("g", minimum, rv=2))
    rest(core)
    if minimum == 3:
        assert 3 == len(kept(core))
    leave(core, *sorted(evicted(core)))
    rest(core)
    assert minimum <= len(core.binds())


def test_a_restart_in_the_middle_decides_the_same() -> None:
    """From a snapshot of any moment on, the same records give the same bytes."""
    core = preempting()
    full(core, "ab")
    core.see(node("c", 100), loose("low", 2), *crew("low", 2))
    core.see(group("g", 3), *vips("g", 3))
    leave(core, "A", "B")
    rest(core)
    assert 3 == len([name for name in core.binds() if name.startswith("g-")])
    state = State()
    for record, decision in zip(core.records, core.decisions, strict=True):
        state = snapshot.decode(snapshot.encode(state))
        assert decision.data == step(state, record).data


def test_a_gang_matters_as_much_as_its_most_important_member() -> None:
    """One member of 100 and one of 10: a pod of 100 that comes later does not take the half that is kept for the 10."""
    core = preempting()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 1, priority=100), member("g-x", "g", spec={"priority": 10}))
    assert {"g-0", "g-x"} == set(kept(core))
    core.see(urgent("late", priority=100, created_us=START_US + 1))
    rest(core)
    assert ({"g-0", "g-x"}, ["A", "B"]) == (set(kept(core)), sorted(evicted(core)))


def test_a_gang_that_gives_way_gives_up_all() -> None:
    """A more important pod waits in place of one member: nothing is kept for the other one alone."""
    core = preempting()
    full(core, "ab")
    core.see(group("g", 2), *vips("g", 2))
    core.see(urgent("first", priority=20))
    rest(core)
    assert {"first"} == set(kept(core))


def test_a_gang_that_names_another_as_its_partner_takes_no_room_that_is_kept_for_that() -> None:
    """The other one doesn't name it, and has its room kept; it lacks members, again and again: that ends some time."""
    core = preempting()
    core.see(group("g", 1), grouped("h", 2, "g", "h"), topic="podgroups")
    core.see(node("n", 100), runs("old", "n", deleted_us=core.journal.now_us))
    core.see(runs("low", "n", 0, priority=-5))
    core.see(member("h-0", "h"), member("g-0", "g", spec={"priority": 10}))
    rest(core)
    assert {"g-0": "n"} == kept(core)
    assert ("Preempting", "WaitingForMembers") == (core.code("g-0"), core.code("h-0"))
    core.see(gone("pods", "old"))
    assert {"g-0": "n"} == core.binds()
