"""Gangs with members that are not alike get nodes where there is an order in which all fit."""

from typing import Any

from tests.builders import Core, Json, member, node, podgroup
from tests.unit.state.test_gang_preemption import preempting
from tests.unit.state.test_gangs import grouped
from tests.unit.state.test_preemption import evicted, kept, leave, rest, runs


def sized(gang: str, **cpus: int) -> list[Json]:
    """Members by name and cpu; they are asked in the order of their names."""
    return [member(f"{gang}-{name}", gang, cpu) for name, cpu in cpus.items()]


def test_a_small_member_leaves_the_only_room_of_a_large_one() -> None:
    """The driver, first by name, would take the freer node, the only one on which the worker fits."""
    core = Core()
    core.see(node("big", 300), node("small", 150), podgroup("g", 2))
    core.see(*sized("g", driver=100, worker=300))
    assert {"g-driver": "small", "g-worker": "big"} == core.binds()


def test_so_does_a_member_of_a_partner_gang() -> None:
    """The drivers' gang comes before the workers'; both are one unit."""
    core = Core()
    core.see(node("big", 300), node("small", 150))
    core.see(grouped("d", 1, "d", "w"), grouped("w", 1, "d", "w"))
    core.see(*sized("d", driver=100), *sized("w", worker=300))
    assert {"d-driver": "small", "w-worker": "big"} == core.binds()


def test_a_large_member_makes_way_where_the_small_ones_are_enough() -> None:
    """Two are needed of three; with the large one there is room for one only."""
    core = Core()
    core.see(node("n", 400), podgroup("g", 2))
    core.see(*sized("g", a=300, b=200, c=200))
    assert {"g-b": "n", "g-c": "n"} == core.binds()
    assert "InsufficientResources" == core.code("g-a")


def test_who_has_one_node_comes_before_who_has_two() -> None:
    """Ten of the small one would fit, but only on one node; three of the large ones, on two."""
    core = Core()
    core.see(node("a", 10, labels={"zone": "one"}), node("b", 5), podgroup("g", 3))
    picky = member("g-z", "g", 1, spec={"node_selector": {"zone": "one"}})
    core.see(*sized("g", x=5, y=5), picky)
    assert {"g-x": "a", "g-y": "b", "g-z": "a"} == core.binds()


def test_where_no_order_helps_nothing_is_held() -> None:
    """The two large ones have one node; what is told is what the queue's order found."""
    core = Core()
    core.see(node("big", 300), node("small", 150), podgroup("g", 3))
    core.see(*sized("g", a=100, b=300, c=300))
    assert ({}, 0) == (core.binds(), core.state.columns.used[0].sum())
    details: dict[str, Any] = dict(core.pod("g-a").diagnosis.details)
    assert (1, 3) == (details["placeable"], details["needed"])


def test_room_is_made_where_all_fit_and_taken_as_planned() -> None:
    """Of two nodes to clear the driver would plan on the one that the worker needs."""
    core = preempting()
    core.see(
        node("big", 300), runs("BIG", "big", 300), node("small", 150), runs("SMALL", "small", 150)
    )
    urgent = {"priority": 10}
    core.see(podgroup("g", 2), member("g-driver", "g", 100, spec=urgent))
    core.see(member("g-worker", "g", 300, spec=urgent))
    assert ["BIG", "SMALL"] == sorted(evicted(core))
    assert {"g-driver": "small", "g-worker": "big"} == kept(core)
    leave(core, "BIG")
    leave(core, "SMALL")
    assert {"g-driver": "small", "g-worker": "big"} == core.binds()


def test_what_is_freed_goes_to_those_it_was_freed_for() -> None:
    """Another node opens meanwhile on which the first member would be better off; the plan holds."""
    core = preempting()
    core.see(node("a", 100), runs("A", "a", 100), node("b", 100), runs("B", "b", 100))
    urgent = {"priority": 10}
    core.see(podgroup("g", 2), *(member(f"g-{i}", "g", 100, spec=urgent) for i in range(2)))
    planned = kept(core)
    core.see(node("c", 1_000))
    leave(core, "A")
    leave(core, "B")
    assert ["a", "b"] == sorted(planned.values())
    assert {"g-0", "g-1"} == set(core.binds())


def test_a_plan_that_needs_no_victims_is_carried_out_at_once() -> None:
    """By what empty nodes would take, the plan's order fits where no order by what is free did; nobody has to leave."""
    core = preempting()
    core.see(
        node("n0", 300), runs("A", "n0", priority=20), runs("B", "n0", 50), runs("C", "n0", 50)
    )
    core.see(node("n1", 400), runs("D", "n1", 50))
    urgent = {"priority": 10}
    sizes = zip("abcd", (300, 100, 200, 150), strict=True)
    core.see(podgroup("g", 3), *[member(f"g-{n}", "g", cpu, spec=urgent) for n, cpu in sizes])
    rest(core)
    assert (["g-b", "g-c", "g-d"], {}) == (sorted(core.binds()), evicted(core))


def test_who_keeps_the_others_back_is_named() -> None:
    """Four members, of whom one fits nowhere: the three that fit hear which (7-G13). Where all are alike nobody is."""
    core = Core()
    core.see(node("n", 1_000), podgroup("g", 4), *sized("g", a=2_000, b=100, c=100, d=100))
    for name in ("g-a", "g-b"):
        told = core.pod(name).diagnosis
        assert ("InsufficientResources", "default/g-a") == (told.code, told.details["member"])
        assert "for the next one, default/g-a, no node fits" in told.message
    core = Core()
    core.see(node("n", 100), podgroup("g", 2), *sized("g", a=100, b=100))
    assert "member" not in core.pod("g-a").diagnosis.details
