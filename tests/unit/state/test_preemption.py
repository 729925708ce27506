"""Preemption of single pods: whom, where, for whom the room is kept, what holds evictions back."""

from typing import Any

import pytest

from state import invariants, snapshot
from state.machine import step
from state.model.rows import Budget, Pod
from state.model.state import State
from tests.builders import (
    START_US,
    Core,
    Json,
    budget,
    cards,
    ended,
    gone,
    node,
    pod,
)

SECOND_US = 1_000_000
NOT_PREEMPTIBLE = "scheduling.koordinator.sh/disable-preemptible"
QUOTA_PREEMPTIBLE = "quota.scheduling.koordinator.sh/preemptible"


def runs(name: str, where: str, cpu: int = 100, priority: int = 0, **fields: Any) -> Json:
    """A pod that runs."""
    spec = {"priority": priority, **fields.pop("spec", {})}
    fields.setdefault("started_us", START_US)
    return pod(name, cpu, node=where, phase="Running", spec=spec, **fields)


def urgent(name: str = "urgent", cpu: int = 100, priority: int = 10, **fields: Any) -> Json:
    """A pod that waits, more important than what runs."""
    return pod(name, cpu, spec={"priority": priority, **fields.pop("spec", {})}, **fields)


def evicted(core: Core) -> dict[str, str]:
    """Name -> command id of every EvictPod so far, the last one of each."""
    commands = [command for decision in core.decisions for command in decision.commands]
    return {command.name: command.id for command in commands if command.kind == "EvictPod"}


def kept(core: Core) -> dict[str, str]:
    """Pod name -> node on which room is kept for it."""
    return {row.name: row.nominated for row in core.state.pods.values() if row.nominated}


def leave(core: Core, *names: str) -> None:
    """Evictions are carried out, and the pods are gone."""
    for name in names:
        core.see(ended(evicted(core)[name]), topic="results")
        core.see(gone("pods", name))
    invariants.check(core.state)


def later(core: Core, seconds: float) -> None:
    """Time passes in a tick; work that is left over is finished."""
    core.see(advance_us=round(seconds * SECOND_US))
    rest(core)


def rest(core: Core) -> None:
    """Ticks until nothing is left to do: at once, or there is no end to it."""
    for _ in range(5):
        invariants.check(core.state)
        if not core.decisions[-1].work_left:
            return
        core.see()
    pytest.fail("there is always work left")


def test_a_pod_that_refuses_it_no_longer_is_a_victim() -> None:
    """Its label goes: who waits hears of it."""
    core = Core()
    core.see(node("n", 100), runs("low", "n", labels={NOT_PREEMPTIBLE: "true"}), urgent())
    assert {} == evicted(core)
    core.see(runs("low", "n", rv=2))
    assert ["low"] == list(evicted(core))


# -- whom ----------------------------------------------------------------------------------------------------


def test_the_least_important_go_and_no_more_than_needed() -> None:
    """Room for one is missing: the lowest priority goes, of equals the one that started last."""
    core = Core()
    core.see(
        node("n", 400),
        runs("middle", "n", priority=5),
        runs("old", "n", priority=1, started_us=START_US + 1),
        runs("young", "n", priority=1, started_us=START_US + 2),
        runs("other", "n", priority=7),
        urgent(),
    )
    assert ["young"] == list(evicted(core))
    assert {"urgent": "n"} == kept(core)
    invariants.check(core.state)
    leave(core, "young")
    assert {"urgent": "n"} == core.binds()
    assert {} == kept(core)


def test_the_most_important_are_kept_first() -> None:
    """200 are missing: the pod of 200 that is more important stays, two small ones go."""
    core = Core()
    core.see(
        node("n", 400),
        runs("large", "n", 200, priority=2),
        runs("a", "n", priority=1),
        runs("b", "n", priority=1),
        urgent(cpu=200),
    )
    assert ["a", "b"] == sorted(evicted(core))


def test_a_small_victim_is_kept_where_a_large_one_suffices() -> None:
    """The large pod must go for 300; the small ones that are less important come back."""
    core = Core()
    core.see(
        node("n", 500),
        runs("large", "n", 300, priority=2),
        runs("a", "n", priority=1),
        runs("b", "n", priority=1),
        urgent(cpu=300),
    )
    assert ["large"] == list(evicted(core))


@pytest.mark.parametrize("priority", [10, 11])
def test_equals_are_no_victims(priority: int) -> None:
    """Nor are more important ones."""
    core = Core()
    core.see(node("n", 100), runs("p", "n", priority=priority), urgent())
    assert {} == evicted(core)
    assert "InsufficientResources" == core.code("urgent")


def test_never_means_never() -> None:
    """A pod whose preemptionPolicy says so waits."""
    core = Core()
    core.see(node("n", 100), runs("p", "n"), urgent(spec={"preemption_policy": "Never"}))
    assert ({}, {}) == (evicted(core), kept(core))


def test_preemption_of_single_pods_can_be_off() -> None:
    """The policy says so."""
    core = Core(preemption={"pods": False})
    core.see(node("n", 100), runs("p", "n"), urgent())
    assert {} == evicted(core)


@pytest.mark.parametrize(
    ("labels", "goes"),
    [
        ({}, True),
        ({NOT_PREEMPTIBLE: "true"}, False),
        ({NOT_PREEMPTIBLE: "false"}, True),
        ({QUOTA_PREEMPTIBLE: "false"}, False),
        ({QUOTA_PREEMPTIBLE: "true"}, True),
    ],
)
def test_a_label_protects(labels: dict[str, str], goes: bool) -> None:
    """Pods that refuse it by either label are no victims."""
    core = Core()
    core.see(node("n", 100), runs("p", "n", labels=labels), urgent())
    assert goes == ("p" in evicted(core))


def test_nobody_is_evicted_in_vain() -> None:
    """A pod that would not fit even on an empty node, and one that selects another node."""
    core = Core()
    core.see(node("n", 100), runs("p", "n"))
    core.see(urgent("large", 200), urgent("picky", spec={"node_selector": {"zone": "a"}}))
    assert ({}, {}) == (evicted(core), kept(core))


# -- where ---------------------------------------------------------------------------------------------------


def _two(first: list[Json], second: list[Json], **policy: Any) -> str:
    """On which of two full nodes the claimant's room is kept."""
    core = Core(preemption={"respectBudgets": False}, **policy)
    core.see(node("a", 200), node("b", 200), *first, *second)
    core.see(urgent(cpu=200))
    return kept(core)["urgent"]


def test_the_node_with_the_lowest_most_important_victim() -> None:
    """Two of 1 rather than one of 2."""
    first = [runs("a1", "a", 200, priority=2)]
    second = [runs("b1", "b", priority=1), runs("b2", "b", priority=1)]
    assert "b" == _two(first, second)


def test_the_node_with_the_smallest_sum_of_priorities() -> None:
    """The most important are equal: 3 and 1 rather than 3 and 2."""
    first = [runs("a1", "a", priority=3), runs("a2", "a", priority=2)]
    second = [runs("b1", "b", priority=3), runs("b2", "b", priority=1)]
    assert "b" == _two(first, second)


def test_the_node_with_the_fewest_victims() -> None:
    """Each counts beyond its priority: one of 1 rather than two of 1."""
    first = [runs("a1", "a", priority=1), runs("a2", "a", priority=1)]
    second = [runs("b1", "b", 200, priority=1)]
    assert "b" == _two(first, second)


def test_the_node_whose_victims_started_last() -> None:
    """Of the most important ones on each node the oldest counts."""
    first = [runs("a1", "a", 200, priority=1, started_us=START_US + 1)]
    second = [runs("b1", "b", 200, priority=1, started_us=START_US + 2)]
    assert "b" == _two(first, second)
    assert "a" == _two([{**first[0], "started_us": START_US + 3}], second)


def test_the_node_on_which_fewest_budgets_are_broken() -> None:
    """Before all else, where policy lets budgets be broken at all."""
    need = {"key": "app", "operator": "In", "values": ("a",)}
    first = [budget("none", 0, selector=(need,)), runs("a1", "a", 200, labels={"app": "a"})]
    second = [runs("b1", "b", 200, priority=9)]
    assert "b" == _two(first, second)


# -- budgets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("respect", [True, False])
def test_an_exhausted_budget_protects_where_policy_says_so(respect: bool) -> None:
    """Without it the pod is the last choice, but one."""
    core = Core(preemption={"respectBudgets": respect})
    core.see(budget("none", 0), node("n", 100), runs("p", "n"), urgent())
    assert respect == ("p" not in evicted(core))


def test_a_budget_lets_the_least_important_go() -> None:
    """It allows one disruption: of two that are covered the less important one is the victim."""
    core = Core()
    core.see(budget("one", 1), node("n", 200))
    core.see(runs("a", "n", priority=2), runs("b", "n", priority=1), urgent())
    assert ["b"] == list(evicted(core))
    core.see(urgent("second"))
    assert ["b"] == list(evicted(core))
    assert "second" not in kept(core)


def test_evictions_under_way_count_against_a_budget() -> None:
    """Until its status shows them: a second claimant on another node must wait."""
    core = Core()
    core.see(budget("one", 1), node("a", 100), node("b", 100), runs("x", "a"), runs("y", "b"))
    core.see(urgent("first"), urgent("second"))
    assert 1 == len(evicted(core))
    assert 1 == len(kept(core))
    core.see(budget("one", 2, rv=2))
    assert 2 == len(evicted(core))


def test_evictions_under_way_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty leave; a claimant for whom twenty more nodes are looked at does not go through them for each pod there."""
    core = Core()
    core.see(budget("many", 100), *[node(f"n{index:02}", 100) for index in range(40)])
    core.see(*[runs(f"r{index:02}", f"n{index:02}", priority=index // 20) for index in range(40)])
    core.see(*[urgent(f"u{index}") for index in range(20)])
    assert 20 == len(evicted(core))
    asked: list[str] = []
    budgets_of = State.budgets_of

    def counted(self: State, pod: Pod) -> list[Budget]:
        asked.append(pod.name)
        return budgets_of(self, pod)

    monkeypatch.setattr(State, "budgets_of", counted)
    core.see(urgent("next"))
    assert (21, True) == (len(evicted(core)), len(asked) <= 200)


def test_two_budgets_must_both_allow_it() -> None:
    """One that allows and one that doesn't."""
    core = Core()
    core.see(budget("one", 1), budget("none", 0), node("n", 100), runs("p", "n"), urgent())
    assert {} == evicted(core)


def test_room_that_a_budget_gives_later_is_used() -> None:
    """The budget allows more: the claimant is tried without other news."""
    core = Core()
    core.see(budget("none", 0), node("n", 100), runs("p", "n"), urgent())
    core.see(budget("none", 1, rv=2))
    assert ["p"] == list(evicted(core))


# -- what is under way ---------------------------------------------------------------------------------------


def test_a_victim_whose_bind_is_under_way_is_evicted_after_it() -> None:
    """One command a pod: the eviction follows the bind's end."""
    core = Core()
    bind = core.see(node("n", 100), pod("p")).commands[0].id
    core.see(urgent())
    assert ({}, {"urgent": "n"}) == (evicted(core), kept(core))
    core.see(ended(bind), topic="results")
    assert ["p"] == list(evicted(core))
    leave(core, "p")
    assert "n" == core.binds()["urgent"]


def test_a_victim_whose_bind_comes_to_nothing_is_left_alone() -> None:
    """It holds no room any more, so nobody is evicted for it."""
    core = Core()
    bind = core.see(node("n", 100), pod("p")).commands[0].id
    core.see(urgent())
    core.see(ended(bind, "Refused", status=409), topic="results")
    rest(core)
    assert {} == evicted(core)
    assert "n" == core.binds()["urgent"]
    assert ({}, {}) == (core.state.tables["evictions"], core.state.tables["preempted"])


def test_room_of_pods_that_leave_is_used_before_anybody_is_evicted() -> None:
    """A pod is being deleted on the one node: the claimant waits there, and the pod on the other stays."""
    core = Core()
    core.see(node("a", 100), node("b", 100), runs("x", "a"), runs("y", "b"))
    core.see(runs("y", "b", rv=2, deleted_us=START_US + SECOND_US))
    core.see(urgent())
    assert ({}, {"urgent": "b"}) == (evicted(core), kept(core))
    core.see(gone("pods", "y"))
    assert {"urgent": "b"} == core.binds()


def test_a_pod_that_never_leaves_is_not_waited_for() -> None:
    """It is being deleted for longer than room is kept: the claimant looks elsewhere."""
    core = Core(preemption={"nominatedFor": "5s"})
    core.see(node("a", 100), node("b", 100), runs("x", "a"), runs("y", "b"))
    core.see(runs("y", "b", rv=2, deleted_us=START_US))
    core.see(urgent())
    assert {"urgent": "b"} == kept(core)
    later(core, 6)
    assert (["x"], {"urgent": "a"}) == (list(evicted(core)), kept(core))


def test_another_goes_for_a_victim_that_never_leaves() -> None:
    """A's eviction comes to nothing for too long: B of the same node is asked, and is not spared for A's sake."""
    core = Core()
    core.see(node("n", 200), runs("A", "n", started_us=START_US + 5), runs("B", "n"), urgent())
    assert ["A"] == sorted(evicted(core))
    later(core, 301)
    assert (["A", "B"], {"urgent": "n"}) == (sorted(evicted(core)), kept(core))
    leave(core, "B")
    assert {"urgent": "n"} == core.binds()


def test_the_claimant_takes_other_room_that_comes_first() -> None:
    """A node joins while the victim still leaves: the claimant goes there, and what was kept is free."""
    core = Core()
    core.see(node("a", 100), runs("x", "a"), urgent())
    core.see(node("b", 100))
    assert ({"urgent": "b"}, {}) == (core.binds(), kept(core))
    leave(core, "x")
    core.see(pod("other"))
    assert "a" == core.binds()["other"]


# -- for whom the room is kept -------------------------------------------------------------------------------


def _left(priority: int = 10) -> Core:
    """Room on n is kept for `urgent`, and one of the two who leave has left."""
    core = Core()
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"), urgent(cpu=200, priority=priority))
    leave(core, "x")
    assert {"urgent": "n"} == kept(core)
    return core


@pytest.mark.parametrize("priority", [0, 10])
def test_kept_room_is_kept_from_equals(priority: int) -> None:
    """And from less important pods, of course (7-U9); though they are older."""
    core = _left()
    core.see(pod("other", spec={"priority": priority}, created_us=START_US - 1))
    assert "other" not in core.binds()
    leave(core, "y")
    assert {"urgent": "n"} == core.binds()


def test_a_more_important_pod_takes_room_that_is_kept() -> None:
    """At once where it fits; who lost it looks anew, and waits again where it can."""
    core = _left()
    core.see(urgent("first", 100, priority=20))
    rest(core)
    assert {"first": "n"} == core.binds()
    assert {} == kept(core)
    leave(core, "y")
    assert {"first": "n"} == core.binds()


def test_a_more_important_pod_that_may_not_preempt_takes_kept_room_too() -> None:
    """It evicts nobody, but what is only kept is no obstacle."""
    core = _left()
    core.see(urgent("first", 100, priority=20, spec={"preemption_policy": "Never"}))
    rest(core)
    assert {"first": "n"} == core.binds()


def test_a_more_important_pod_waits_in_place_of_the_claimant() -> None:
    """The victim has not left yet: its room is kept for the more important one, and nobody else is evicted."""
    core = Core()
    core.see(node("n", 100), runs("x", "n"), urgent())
    core.see(urgent("first", priority=20))
    rest(core)
    assert (["x"], {"first": "n"}) == (list(evicted(core)), kept(core))
    leave(core, "x")
    rest(core)
    assert {"first": "n"} == core.binds()
    assert ({}, ["x"]) == (kept(core), list(evicted(core)))


@pytest.mark.parametrize("how", ["deleted", "gone", "bound"])
def test_kept_room_is_given_back(how: str) -> None:
    """Where the claimant is deleted, or bound elsewhere by somebody."""
    core = _left()
    news = {
        "deleted": urgent(cpu=200, rv=2, deleted_us=START_US),
        "gone": gone("pods", "urgent"),
        "bound": urgent(cpu=200, rv=2, node="m"),
    }[how]
    core.see(news)
    rest(core)
    assert {} == kept(core)
    core.see(pod("other"))
    assert "n" == core.binds()["other"]


def test_kept_room_is_given_back_when_its_time_is_over() -> None:
    """The policy's `nominatedFor`: there is a deadline, and others get the room then."""
    core = Core(preemption={"nominatedFor": "60s"})
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"), urgent(cpu=200))
    leave(core, "x")
    core.see(pod("other"))
    assert "other" not in core.binds()
    due_us = core.state.pods["uid-urgent"].nominated_until_us
    assert due_us == core.decisions[-1].next_deadline_us
    later(core, 61)
    assert {} == kept(core)
    assert "n" == core.binds()["other"]
    assert "TimedOut" == core.code("urgent")


@pytest.mark.parametrize("how", ["gone", "cordoned"])
def test_room_on_a_node_that_leaves_or_closes_is_not_kept(how: str) -> None:
    """The claimant looks elsewhere at once."""
    core = Core()
    core.see(node("a", 100), runs("x", "a"), urgent())
    core.see(node("b", 100), runs("y", "b", priority=5))
    core.see(gone("nodes", "a") if how == "gone" else node("a", 100, rv=2, unschedulable=True))
    rest(core)
    assert {"urgent": "b"} == kept(core)
    assert "y" in evicted(core)


# -- cards, restart ------------------------------------------------------------------------------------------


def test_cards_of_victims() -> None:
    """Who holds cards goes for who needs them, on a node whose agent reports them."""
    whole = {"koordinator.sh/gpu-core": 100, "koordinator.sh/gpu-memory-ratio": 100}
    core = Core()
    core.see(node("n", gpus=2), cards("n", 2))
    for minor in (0, 1):
        held = ({"type": "gpu", "minor": minor, "resources": whole},)
        core.see(
            runs(
                f"g{minor}",
                "n",
                priority=minor,
                allocations=held,
                spec={"requests": {"cpu": 100, "nvidia.com/gpu": 1}},
            )
        )
    core.see(runs("plain", "n"), urgent(spec={"requests": {"cpu": 100, "nvidia.com/gpu": 1}}))
    assert (["g0"], {"urgent": "n"}) == (list(evicted(core)), kept(core))
    leave(core, "g0")
    assert "n" == core.binds()["urgent"]
    assert [0] == [held.minor for held in core.pod("urgent").allocations]


def test_a_restart_in_the_middle_decides_the_same() -> None:
    """From a snapshot of any moment on, the same records give the same bytes."""
    core = Core(evictions={"perMinute": 1})
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"))
    core.see(urgent("first"), urgent("second"))
    leave(core, next(iter(evicted(core))))
    later(core, 60)
    later(core, 300)
    state = State()
    for record, decision in zip(core.records, core.decisions, strict=True):
        state = snapshot.decode(snapshot.encode(state))
        assert decision.data == step(state, record).data
