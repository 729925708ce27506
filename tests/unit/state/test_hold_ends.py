"""Holds of NonStrict gangs after an edit, a deletion or a successor: who may not hold any more lets go at once."""

from state import invariants
from tests.builders import Core, Json, gone, member, node, pod, podgroup
from tests.unit.state.test_gang_holds import LOOSE, MODE, SECOND_US, held, later, loose, upstream
from tests.unit.state.test_gangs import GROUPS, crew


def _edited(core: Core, *observations: Json) -> None:
    core.see(*observations, pod("other", 200), topic="podgroups")
    invariants.check(core.state)
    assert ({}, {"other": "n"}) == (held(core), core.binds())


def test_a_gang_that_is_strict_now_holds_nothing_though_members_are_missing() -> None:
    """Its PodGroup is edited: Strict, and more members than there are."""
    core = Core()
    core.see(node("n", 200), loose("g", 3, wait_s=600), *crew("g", 3))
    assert 2 == len(held(core))
    _edited(core, podgroup("g", 5, 2))
    assert "WaitingForMembers" == core.code("g-0")


def test_a_strict_successor_inherits_no_hold() -> None:
    """The PodGroup goes and comes back Strict, with a minimum that its members don't reach."""
    core = Core()
    core.see(node("n", 200), loose("g", 3, wait_s=600), *crew("g", 3))
    core.see(gone("podgroups.scheduling.sigs.k8s.io", "g", 2, uid="uid-group-g"), topic="podgroups")
    _edited(core, podgroup("g", 5, 3, uid="second"))


def test_a_gang_that_nothing_declares_any_more_holds_nothing() -> None:
    """Its PodGroup is gone."""
    core = Core()
    core.see(node("n", 200), loose("g", 3, wait_s=600), *crew("g", 3))
    _edited(core, gone("podgroups.scheduling.sigs.k8s.io", "g", 2, uid="uid-group-g"))
    assert "WaitingForGroup" == core.code("g-0")


def test_a_partner_that_is_strict_now_and_lacks_members_forbids_holding() -> None:
    """Two NonStrict gangs of a group hold room; one of them is edited."""
    core = Core()
    both = {**LOOSE, GROUPS: '["default/a", "default/b"]'}
    core.see(node("n", 200), *(podgroup(name, 2, annotations=both) for name in "ab"))
    core.see(*crew("a", 2), *crew("b", 1), topic="pods")
    core.see(member("b-1", "b", 300), topic="pods")
    assert {"a-0", "a-1"} == set(held(core))
    _edited(core, podgroup("b", 5, 2, annotations={**both, MODE: "Strict"}))


def test_a_nonstrict_gang_that_loses_a_member_holds_on() -> None:
    """It waits for its members as long as its wait time says (G-2)."""
    core = Core()
    core.see(node("n", 200), loose("g", 3), *crew("g", 3))
    core.see(gone("pods", "g-2"))
    assert {"g-0", "g-1"} == set(held(core))


def test_a_nonstrict_podgroup_of_upstream_holds_what_it_gathered() -> None:
    """Koordinator's annotation counts on a PodGroup of either API group."""
    core = Core()
    group = upstream("g", 3, annotations=LOOSE, schedule_timeout_us=5 * SECOND_US)
    core.see(node("n", 200), group, *crew("g", 3), pod("other", 200))
    assert {"g-0", "g-1"} == set(held(core))
    later(core, 5)
    assert ({"other": "n"}, {}) == (core.binds(), held(core))
