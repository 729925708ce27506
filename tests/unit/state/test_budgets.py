"""PodDisruptionBudgets: how they are folded, and which of them cover a pod."""

from typing import Any

import pytest

from state import invariants, snapshot
from state.model.seen import LabelNeed
from state.model.selectors import selects
from tests.builders import Core, Json, absent, budget, gone, node, pod
from tests.unit.state.test_sync import finished, started, still

BUDGETS = "poddisruptionbudgets.policy"
IN = {"key": "app", "operator": "In", "values": ("a", "b")}


def known(core: Core) -> dict[str, int]:
    """Name of each budget -> what it allows; all that is derived has been checked."""
    invariants.check(core.state)
    return {row.name: row.disruptions_allowed for row in core.state.budgets.values()}


def covering(core: Core, name: str) -> list[str]:
    """The budgets that cover the pod, in order."""
    return [row.name for row in core.state.budgets_of(core.pod(name))]


@pytest.mark.parametrize(
    ("needs", "labels", "expected"),
    [
        (None, {}, False),
        (None, {"app": "a"}, False),
        ((), {}, True),
        ([("app", "In", "a", "b")], {"app": "b"}, True),
        ([("app", "In", "a", "b")], {"app": "c"}, False),
        ([("app", "In", "a")], {}, False),
        ([("app", "In", "")], {"app": ""}, True),
        ([("app", "In", "")], {}, False),
        ([("app", "NotIn", "a")], {"app": "a"}, False),
        ([("app", "NotIn", "a")], {"app": "b"}, True),
        ([("app", "NotIn", "a")], {}, True),
        ([("app", "Exists")], {"app": ""}, True),
        ([("app", "Exists")], {"other": "a"}, False),
        ([("app", "DoesNotExist")], {"app": ""}, False),
        ([("app", "DoesNotExist")], {}, True),
        ([("app", "In", "a"), ("tier", "Exists")], {"app": "a", "tier": "x"}, True),
        ([("app", "In", "a"), ("tier", "Exists")], {"app": "a"}, False),
    ],
)
def test_a_selector_selects_as_in_kubernetes(
    needs: Any, labels: dict[str, str], expected: bool
) -> None:
    """All requirements must be met; an empty selector selects all, none at all nothing."""
    selector = needs
    if needs is not None:
        selector = tuple(
            LabelNeed(key=key, operator=operator, values=tuple(values))
            for key, operator, *values in needs
        )
    assert expected == selects(selector, labels)


def test_the_higher_version_of_a_budget_wins() -> None:
    """Older news is dropped, and so is news that gives the uid another name."""
    core = Core()
    core.see(budget("a", 1, rv=5), topic="budgets")
    core.see(budget("a", 9, rv=4), topic="budgets")
    core.see(budget("b", 9, rv=6, uid="uid-budget-a"), topic="budgets")
    assert {"a": 1} == known(core)
    core.see(budget("a", 2, rv=7, selector=None), topic="budgets")
    assert ({"a": 2}, None) == (known(core), core.state.budgets["uid-budget-a"].selector)


def test_a_budget_that_is_gone_stays_gone() -> None:
    """News of its uid that comes late is dropped; a successor of its name is another budget."""
    core = Core()
    core.see(budget("a", 1), gone(BUDGETS, "budget-a", rv=3), topic="budgets")
    core.see(budget("a", 1, rv=2), topic="budgets")
    assert ({}, {}) == (known(core), core.state.budgets_in)
    core.see(budget("a", 4, uid="again"), topic="budgets")
    assert {"a": 4} == known(core)


def test_a_list_removes_budgets_that_it_does_not_name() -> None:
    """Named ones stay, whole or in few words; of one that nobody knows all is asked anew."""
    core = Core()
    core.see(budget("named", 1), budget("missing", 2), budget("told", 3), topic="budgets")
    core.see(
        started("e", 10, BUDGETS),
        still("e", "budget-named", resource=BUDGETS),
        budget("told", 5, rv=8, epoch="e"),
    )
    assert () == core.see(finished("e", 10, BUDGETS)).requests
    assert {"named": 1, "told": 5} == known(core)
    decision = core.see(started("f", 11, BUDGETS), still("f", "strange", resource=BUDGETS))
    assert [BUDGETS] == [request.resource for request in decision.requests]


def test_nothing_is_placed_before_budgets_were_listed() -> None:
    """Whoever would choose victims must know them, so the gate waits for them as for every kind."""
    core = Core()
    core.see(started("e", 10, BUDGETS, cold=True), node("n"), pod("p"))
    assert ("Syncing", {}) == (core.code("p"), core.binds())
    core.see(finished("e", 10, BUDGETS))
    assert {"p": "n"} == core.binds()


def test_an_api_server_without_the_kind_has_no_budgets() -> None:
    """What was known of it goes."""
    core = Core()
    core.see(budget("a", 1), topic="budgets")
    core.see(absent(BUDGETS))
    assert {} == known(core)


def test_the_budgets_of_a_pod_are_those_of_its_namespace_that_select_it() -> None:
    """By name; one without a selector covers nobody."""
    core = Core()
    core.see(
        budget("z", 0),
        budget("labelled", 1, selector=(IN,)),
        budget("nobody", 1, selector=None),
        budget("elsewhere", 1, namespace="other"),
        topic="budgets",
    )
    core.see(pod("plain"), pod("p", labels={"app": "a"}), pod("q", labels={"app": "c"}))
    assert ["z"] == covering(core, "plain")
    assert ["labelled", "z"] == covering(core, "p")
    assert ["z"] == covering(core, "q")


def test_a_pod_that_is_relabelled_is_covered_anew() -> None:
    """The answer follows the pod's labels and the budget's selector."""
    core = Core()
    core.see(budget("b", 1, selector=(IN,)), pod("p"))
    assert [] == covering(core, "p")
    core.see(pod("p", rv=2, labels={"app": "b"}))
    assert ["b"] == covering(core, "p")
    core.see(budget("b", 1, rv=2, selector=({**IN, "operator": "NotIn"},)))
    assert [] == covering(core, "p")


def test_a_snapshot_keeps_budgets_and_who_is_covered() -> None:
    """State from its bytes answers the same."""
    core = Core()
    said: list[Json] = [budget("none", 1, selector=None), budget("all", 2), budget("a", 0)]
    core.see(*said, pod("p"))
    data = snapshot.encode(core.state)
    state = snapshot.decode(data)
    invariants.check(state)
    assert data == snapshot.encode(state)
    expected = [("a", 0), ("all", 2)]
    found = state.budgets_of(state.pods["uid-p"])
    assert expected == [(row.name, row.disruptions_allowed) for row in found]
