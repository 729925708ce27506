"""Gang groups whose gangs don't name the same partners: who is named brings along all that it names itself."""

import pytest

from state import invariants
from state.explain import explain_gang
from tests.builders import Core, ended, gone, member, node, podgroup
from tests.unit.state.test_gang_holds import LOOSE, MODE, held
from tests.unit.state.test_gangs import GROUPS, bind_ids, crew, grouped
from tests.unit.state.test_preemption import rest


@pytest.mark.parametrize("own", [("b", "c"), ("a", "b", "c")])
def test_a_partner_of_a_partner_is_waited_for(own: tuple[str, ...]) -> None:
    """A names B, B names C, and C has no members: neither A nor B starts; once C, which names nobody, runs, both do."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "a", "b"), grouped("b", 1, *own), podgroup("c", 1))
    core.see(*crew("a", 1), *crew("b", 1), topic="pods")
    assert {} == core.binds()
    assert ["WaitingForGroup", "WaitingForGroup"] == [core.code("a-0"), core.code("b-0")]
    assert "default/c" in core.pod("a-0").diagnosis.message
    core.see(*crew("c", 1))
    assert {"c-0": "n"} == core.binds()
    core.see(ended(bind_ids(core)["c-0"]), topic="results")
    assert {"a-0": "n", "b-0": "n", "c-0": "n"} == core.binds()
    invariants.check(core.state)


def test_a_partner_of_a_partner_that_does_not_fit_holds_all_back() -> None:
    """Room for A and B, none for C."""
    core = Core()
    core.see(node("n", 200), grouped("a", 1, "a", "b"), grouped("b", 1, "b", "c"))
    core.see(podgroup("c", 1), *crew("a", 1), *crew("b", 1), *crew("c", 1, 300), topic="pods")
    assert {} == core.binds()
    core.see(node("m", 300))
    assert {"a-0", "b-0", "c-0"} == set(core.binds())


def test_a_ring_of_partners_starts_together() -> None:
    """A names B, B names C, C names A: nobody waits for ever for the next one."""
    core = Core()
    rings = [grouped("a", 1, "b"), grouped("b", 1, "c"), grouped("c", 1, "a")]
    core.see(node("n", 200), *rings, *crew("a", 1), *crew("b", 1), *crew("c", 1))
    assert {} == core.binds()
    core.see(node("m", 100))
    assert {"a-0", "b-0", "c-0"} == set(core.binds())
    invariants.check(core.state)


def test_who_names_nobody_starts_alone() -> None:
    """A names B, which does not know of it and can start; A has to wait for its own members."""
    core = Core()
    core.see(node("n"), grouped("a", 2, "a", "b"), podgroup("b", 1), *crew("a", 1), *crew("b", 1))
    assert {"b-0": "n"} == core.binds()
    core.see(*crew("a", 2)[1:])
    assert {"a-0", "a-1", "b-0"} == set(core.binds())


def test_a_partner_that_no_longer_names_another_is_not_waited_for_beyond_itself() -> None:
    """B drops C from its list: A and B start, though C never comes."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "a", "b"), grouped("b", 1, "b", "c"))
    core.see(*crew("a", 1), *crew("b", 1), topic="pods")
    assert {} == core.binds()
    core.see(grouped("b", 1, "a", "b", rv=2), topic="podgroups")
    assert {"a-0", "b-0"} == set(core.binds())
    core.see(gone("podgroups.scheduling.sigs.k8s.io", "b", 3, uid="uid-group-b"), topic="podgroups")
    invariants.check(core.state)


def test_explain_names_all_who_start_together() -> None:
    """What it is said to start with is what it waits for."""
    core = Core()
    core.see(node("n"), grouped("a", 1, "a", "b"), grouped("b", 1, "b", "c"), *crew("a", 1))
    found = explain_gang(core.state, "default/a")
    (of_a, *_) = found["gangs"]
    assert ["default/b", "default/c"] == of_a["partners"]
    assert ["default/a", "default/b", "default/c"] == [row["gang"] for row in found["gangs"]]


@pytest.mark.parametrize("names", [("z", "b"), ("z", "b", "ghost")])
@pytest.mark.parametrize("mode", ["Strict", "NonStrict"])
@pytest.mark.parametrize("own", ["a", "z"])
def test_who_is_only_named_holds_what_it_holds(names: tuple[str, ...], mode: str, own: str) -> None:
    """B holds room and names nobody; a gang that names it can't start: B holds on, and there is an end to it."""
    core = Core()
    core.see(node("n", 200), podgroup("b", 3, annotations=LOOSE), *crew("b", 3))
    before = {pod.uid: pod.held_until_us for pod in core.state.pods.values()}
    group = grouped(own, 2, *(own if name == "z" else name for name in names))
    group["annotations"] = {**group["annotations"], MODE: mode}
    core.see(group, *crew(own, 1))
    rest(core)
    assert {"b-0", "b-1"} == set(held(core))
    assert before == {uid: core.state.pods[uid].held_until_us for uid in before}
    assert "HoldingRoom" == core.code("b-0")


def test_a_group_does_not_start_on_room_that_its_own_members_hold() -> None:
    """B, which names nobody, holds room for one of two; A, which names it, doesn't start with half of it."""
    core = Core()
    core.see(node("n", 400), podgroup("b", 2, annotations=LOOSE))
    core.see(member("b-0", "b", 100), member("b-1", "b", 350), topic="pods")
    core.see(gone("pods", "b-1"))
    annotations = {**LOOSE, GROUPS: '["default/a", "default/b"]'}
    again = member("b-1", "b", 300, uid="second", rv=200)
    core.see(again, podgroup("a", 1, annotations=annotations), *crew("a", 1), topic="pods")
    rest(core)
    assert {} == core.binds()
    core.see(node("m", 100))
    assert {"b-0", "b-1"} == set(core.binds())
    core.see(*(ended(bind_ids(core)[name]) for name in ("b-0", "b-1")), topic="results")
    assert {"a-0", "b-0", "b-1"} == set(core.binds())
