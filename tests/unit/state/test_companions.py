"""Gangs of Kubernetes with disruption mode `all`: preempted as a whole, or not at all."""

from typing import Any

import pytest

from state import invariants
from tests.builders import START_US, Core, Json, budget, ended, gone, node, pod, podgroup
from tests.unit.state.test_preemption import (
    NOT_PREEMPTIBLE,
    evicted,
    kept,
    leave,
    rest,
    runs,
    urgent,
)


def crew(core: Core, nodes: str, disruption: str = "all", **last: Any) -> None:
    """A node for each letter, full with a member of the gang `g` that has its name in capitals; `last`: of the last."""
    fields = {"group": "scheduling.k8s.io", "uid": "uid-native-g", "disruption": disruption}
    core.see(podgroup("g", 1, **fields), topic="podgroups")
    for name in nodes:
        more = last if name == nodes[-1] else {}
        core.see(node(name, 100), runs(name.upper(), name, scheduling_group="g", **more))


def on(**policy: Any) -> Core:
    """A core that reads PodGroups of Kubernetes, and whose gangs preempt."""
    return Core(gangs={"kubernetesWorkloads": True, "enablePreemption": True}, **policy)


@pytest.mark.parametrize(("disruption", "gone_"), [("all", ["A", "B", "C"]), ("single", ["C"])])
def test_all_leave_where_one_must(disruption: str, gone_: list[str]) -> None:
    """Also those whose room nobody needs; in mode single the one suffices."""
    core = on()
    crew(core, "abc", disruption, started_us=START_US + 9)
    core.see(urgent())
    rest(core)
    assert (gone_, {"urgent": "c"}) == (sorted(evicted(core)), kept(core))
    leave(core, *reversed(gone_))
    assert {"urgent": "c"} == core.binds()


def test_of_equals_a_lone_pod_goes_before_a_whole_gang() -> None:
    """Though it ran longer."""
    core = on()
    crew(core, "ab")
    core.see(node("z", 100), runs("lone", "z", started_us=1))
    core.see(urgent())
    assert ["lone"] == sorted(evicted(core))


def test_a_more_important_lone_pod_stays() -> None:
    """The priority counts before how many leave."""
    core = on()
    crew(core, "ab")
    core.see(node("z", 100), runs("lone", "z", priority=1))
    core.see(urgent())
    assert ["A", "B"] == sorted(evicted(core))


@pytest.mark.parametrize(
    "last", [{"priority": 10}, {"labels": {NOT_PREEMPTIBLE: "true"}}], ids=["priority", "label"]
)
def test_one_that_must_stay_keeps_all(last: Json) -> None:
    """As important as the claimant, or not to be preempted by its label."""
    core = on()
    crew(core, "ab", **last)
    core.see(urgent())
    rest(core)
    assert ({}, {}) == (evicted(core), kept(core))


@pytest.mark.parametrize("how", ["edited", "gone"])
def test_its_pods_may_be_victims_as_soon_as_they_may_go_one_by_one(how: str) -> None:
    """The PodGroup says mode single now, or is gone: who waits for a victim hears of it."""
    core = on()
    crew(core, "ab", priority=10)
    core.see(urgent())
    single = {"group": "scheduling.k8s.io", "uid": "uid-native-g", "disruption": "single"}
    news = podgroup("g", 1, 2, **single)
    if how == "gone":
        news = gone("podgroups.scheduling.k8s.io", "native-g", rv=2)
    core.see(news, topic="podgroups")
    assert ["A"] == sorted(evicted(core))


@pytest.mark.parametrize(("allowed", "goes"), [(0, []), (1, []), (2, ["A", "B"])])
def test_a_budget_must_let_all_of_them_go(allowed: int, goes: list[str]) -> None:
    """One disruption is too few for two."""
    core = on()
    core.see(budget("b", allowed), topic="budgets")
    crew(core, "ab")
    core.see(urgent())
    rest(core)
    assert goes == sorted(evicted(core))


def test_budgets_that_policy_does_not_respect_keep_nobody() -> None:
    """As for lone pods."""
    core = on(preemption={"respectBudgets": False})
    core.see(budget("b", 0), topic="budgets")
    crew(core, "ab")
    core.see(urgent())
    assert ["A", "B"] == sorted(evicted(core))


def test_a_budget_that_is_too_tight_on_one_node() -> None:
    """With its lone pod the gang would be one too many: the dearer node, where no budget forbids it, gives room."""
    core = on()
    covered = [{"key": "of", "operator": "In", "values": ["budget"]}]
    core.see(budget("b", 2, selector=covered), topic="budgets")
    whole = {"group": "scheduling.k8s.io", "uid": "uid-native-g", "disruption": "all"}
    core.see(podgroup("g", 1, **whole), topic="podgroups")
    labels = {"of": "budget"}
    core.see(node("a", 100), node("b", 50), node("z", 100), runs("dear", "z", priority=5))
    core.see(
        runs("lone", "a", 50, labels=labels),
        *[runs(name.upper(), name, 50, scheduling_group="g", labels=labels) for name in "ab"],
    )
    core.see(urgent())
    assert ["dear"] == sorted(evicted(core))


def test_gangs_of_one_budget_that_allows_one_of_them() -> None:
    """Two claimed nodes, two gangs of two, three disruptions: not both gangs, so nobody."""
    core = on()
    core.see(budget("b", 3), topic="budgets")
    crew(core, "ab")
    other = {"group": "scheduling.k8s.io", "uid": "uid-native-h", "disruption": "all"}
    core.see(podgroup("h", 1, **other), topic="podgroups")
    for name in "cd":
        core.see(node(name, 100), runs(name.upper(), name, scheduling_group="h"))
    claimant = {"group": "scheduling.k8s.io", "uid": "uid-native-v"}
    core.see(podgroup("v", 3, **claimant), topic="podgroups")
    core.see(*[urgent(f"v-{index}", scheduling_group="v") for index in range(3)])
    rest(core)
    assert ({}, {}) == (evicted(core), kept(core))


def test_limits_count_all_of_them() -> None:
    """One eviction a minute: the gang never goes, and it is said."""
    core = on(evictions={"perMinute": 1})
    crew(core, "ab")
    core.see(urgent())
    rest(core)
    assert ({}, "EvictionsLimited") == (evicted(core), core.code("urgent"))


def test_a_gang_takes_all_the_room_that_a_gang_leaves() -> None:
    """Nobody else is asked to leave."""
    core = on()
    crew(core, "ab")
    core.see(node("c", 100), runs("C", "c", priority=1))
    claimant = {"group": "scheduling.k8s.io", "uid": "uid-native-v"}
    core.see(podgroup("v", 2, **claimant), topic="podgroups")
    core.see(*[urgent(f"v-{index}", scheduling_group="v") for index in range(2)])
    rest(core)
    assert ["A", "B"] == sorted(evicted(core))
    assert {"v-0": "a", "v-1": "b"} == kept(core)
    leave(core, "A", "B")
    assert {"v-0", "v-1"} <= set(core.binds())


def test_who_leaves_with_a_victim_is_needed_for_its_own_room() -> None:
    """B leaves with A, and v-2 gets its room; then X makes A needless, but not B: all three leave."""
    core = on()
    zones = [node(name, 100, labels={"zone": name}) for name in "ab"]
    whole = {"group": "scheduling.k8s.io", "uid": "uid-native-g", "disruption": "all"}
    core.see(podgroup("g", 1, **whole), *zones, topic="podgroups")
    core.see(runs("X", "a", 80, priority=1))
    core.see(runs("A", "a", 20, scheduling_group="g"), runs("B", "b", scheduling_group="g"))
    claimant = {"group": "scheduling.k8s.io", "uid": "uid-native-v"}
    core.see(podgroup("v", 3, **claimant), topic="podgroups")
    asks = [("a", 20), ("a", 60), ("b", 100)]
    core.see(
        *[
            urgent(f"v-{index}", cpu, scheduling_group="v", spec={"node_selector": {"zone": zone}})
            for index, (zone, cpu) in enumerate(asks)
        ]
    )
    rest(core)
    assert ["A", "B", "X"] == sorted(evicted(core))
    leave(core, "A", "B", "X")
    assert {"v-0", "v-1", "v-2"} == set(core.binds())


def test_a_member_that_spares_its_own_gang_stops_no_other_pod() -> None:
    """Two ask for the same: the first one's only victims are of its own gang, the second one takes them."""
    core = on()
    crew(core, "a", "single", priority=10)
    core.see(urgent("surplus", scheduling_group="g"), urgent("urgent"))
    rest(core)
    assert {} == evicted(core)
    core.see(node("b", 100), runs("B", "b", scheduling_group="g"))  # both are woken
    assert ["B"] == sorted(evicted(core))
    leave(core, "B")
    core.see(gone("pods", "urgent"), node("b", 100, rv=9), runs("C", "b", scheduling_group="g"))
    core.see(urgent("new-surplus", 99, scheduling_group="g"), urgent("next", 99))  # both are new
    assert ["B", "C"] == sorted(evicted(core))


def test_all_are_spared_while_nobody_has_left() -> None:
    """The claimant is gone before an eviction was carried out: every one is withdrawn."""
    core = on()
    crew(core, "ab")
    core.see(urgent())
    asked = evicted(core)
    core.see(gone("pods", "urgent"))
    rest(core)
    withdrawn = [each for decision in core.decisions for each in decision.withdrawn]
    assert sorted(asked.values()) == sorted(withdrawn)
    invariants.check(core.state)


def test_once_one_has_left_the_others_follow() -> None:
    """The claimant takes the room of the first, and needs no more: the others leave all the same."""
    core = on()
    crew(core, "abc")
    core.see(urgent())
    leave(core, "A")
    rest(core)
    assert {"urgent": "a"} == core.binds()
    assert [] == [each for decision in core.decisions for each in decision.withdrawn]
    leave(core, "B", "C")


def test_a_later_plan_is_judged_by_itself() -> None:
    """The gang was evicted and is back; the next claimant goes before anybody left: all are spared."""
    core = on()
    crew(core, "ab")
    core.see(urgent())
    leave(core, "A", "B")
    core.see(gone("pods", "urgent"))
    again = [runs(f"{name}-again", name, scheduling_group="g") for name in "ab"]
    core.see(*again, urgent("next"))
    asked = {name: command for name, command in evicted(core).items() if "again" in name}
    core.see(gone("pods", "next"))
    rest(core)
    withdrawn = [each for decision in core.decisions for each in decision.withdrawn]
    assert (2, sorted(asked.values())) == (len(asked), sorted(withdrawn))


def test_once_one_leaves_the_others_follow() -> None:
    """The claimant is gone, but a member is terminating: half a gang is no use."""
    core = on()
    crew(core, "ab")
    core.see(urgent())
    asked = evicted(core)
    leaving = runs("A", "a", rv=9, scheduling_group="g", deleted_us=core.journal.now_us)
    core.see(leaving, ended(asked["A"]))
    core.see(gone("pods", "urgent"))
    rest(core)
    assert [] == [each for decision in core.decisions for each in decision.withdrawn]
    leave(core, "B")


def test_a_member_that_never_got_its_node_is_not_evicted() -> None:
    """It was about to be bound when its gang had to leave, and the bind was refused: it waits, and leaves no node."""
    core = on()
    crew(core, "a")
    core.see(node("c", 100), pod("late", scheduling_group="g"))
    bind = core.pod("late").command
    core.see(urgent())
    core.see(gone("pods", "A"))
    core.see(ended(bind, "Refused", status=403), topic="results")
    rest(core)
    assert ["A"] == sorted(evicted(core))


def test_only_some_of_many_victims_are_told_by_name() -> None:
    """Each member of a gang is told them: all names would make a decision larger than the log takes."""
    core = on()
    fields = {"group": "scheduling.k8s.io", "uid": "uid-native-g", "disruption": "all"}
    core.see(podgroup("g", 1, **fields), topic="podgroups")
    core.see(
        node("n", 100),
        *[runs(f"v-{index:02}", "n", 4, scheduling_group="g") for index in range(25)],
    )
    core.see(urgent())
    told = core.pod("urgent").diagnosis
    assert (25, 20) == (len(evicted(core)), len(told.details["victims"]))
    assert told.message.endswith("default/v-19 and 5 more left")
