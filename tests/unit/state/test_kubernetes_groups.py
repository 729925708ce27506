"""Gangs of Kubernetes itself: PodGroups of `scheduling.k8s.io`, read where policy says so."""

import pytest

from schemas.topics import RESOURCES
from state import invariants, snapshot
from state.machine import step
from tests.builders import Core, Json, absent, ended, gone, node, pod, podgroup
from tests.unit.state.test_gangs import bind_ids

KUBERNETES = "scheduling.k8s.io"
PODGROUPS = f"podgroups.{KUBERNETES}"
ON = {"kubernetesWorkloads": True}


def native(name: str, minimum: int, rv: int = 1, **fields: object) -> Json:
    """A PodGroup of Kubernetes."""
    return podgroup(name, minimum, rv, group=KUBERNETES, uid=f"uid-native-{name}", **fields)


def worker(name: str, gang: str, cpu: int = 100, **fields: object) -> Json:
    """A pod of that scheduling group."""
    return pod(name, cpu, scheduling_group=gang, **fields)


def switch(core: Core, on: bool, identity: str) -> None:
    """An administrator turns them on or off."""
    change = {
        "kind": "PolicyChanged",
        "id": identity,
        "spec": {"gangs": {"kubernetesWorkloads": on}},
    }
    core.see(change, topic="admin")


def test_all_or_nothing() -> None:
    """Room for one of two: none is bound; with more room both are, and a third comes alone."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 2), worker("a", "g"), worker("b", "g"))
    assert {} == core.binds()
    assert 1 == core.pod("a").diagnosis.details["placeable"]
    core.see(node("m", 200))
    assert {"a", "b"} == set(core.binds())
    core.see(*[ended(command) for command in bind_ids(core).values()])
    core.see(worker("c", "g"))
    assert "c" in core.binds()
    invariants.check(core.state)


def test_the_podgroup_comes_last() -> None:
    """Until then its pods wait for it."""
    core = Core(gangs=ON)
    core.see(node("n"), worker("a", "g"), worker("b", "g"))
    assert "WaitingForGroup" == core.code("a")
    core.see(native("g", 2), topic="podgroups")
    assert {"a", "b"} == set(core.binds())


def test_policy_basic_waits_for_nobody() -> None:
    """A minimum of none: each pod is placed by itself."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 0), worker("a", "g"), worker("b", "g", 9_000))
    assert {"a"} == set(core.binds())


def test_off_they_are_held_by_name() -> None:
    """Never placed as if they were alone, though the PodGroup is there; a single pod runs meanwhile."""
    core = Core()
    core.see(node("n"), native("g", 1), worker("a", "g"), pod("single"))
    assert ({"single": "n"}, "UnsupportedConstraint") == (core.binds(), core.code("a"))
    assert "gangs.kubernetesWorkloads" in core.pod("a").diagnosis.message


def test_switched_on_and_off() -> None:
    """On: asked to be listed, then its pods are placed. Off: the next one is held again."""
    core = Core()
    core.see(node("n"), native("g", 2), worker("a", "g"), worker("b", "g"))
    switch(core, True, "on")
    asked = [request.resource for request in core.decisions[-1].requests]
    assert (asked, 2) == ([PODGROUPS], core.state.gangs["default/g"].min_member)
    assert {"a", "b"} == set(core.binds())
    switch(core, False, "off")
    core.see(worker("c", "g"))
    assert "UnsupportedConstraint" == core.code("c")
    assert "" == core.state.gangs["default/g"].source
    invariants.check(core.state)


@pytest.mark.parametrize("on", [False, True])
def test_only_where_they_are_read_everything_waits_for_their_list(on: bool) -> None:
    """A log that began before they were known goes on without."""
    core = Core(synced=False, gangs={"kubernetesWorkloads": on})
    others = [absent(resource) for resource in RESOURCES if resource != PODGROUPS]
    core.see(*others, topic="admin")
    core.see(node("n"), pod("p"))
    assert ({} if on else {"p": "n"}) == core.binds()
    core.see(absent(PODGROUPS), topic="admin")
    assert {"p": "n"} == core.binds()


def test_what_is_not_decided_holds_its_pods() -> None:
    """Topology constraints of the PodGroup are not ignored."""
    core = Core(gangs=ON)
    core.see(node("n"), native("g", 1, unsupported=("schedulingConstraints",)), worker("a", "g"))
    assert ({}, "UnsupportedConstraint") == (core.binds(), core.code("a"))
    core.see(native("g", 1, rv=2), topic="podgroups")
    assert {"a": "n"} == core.binds()


def test_the_scheduling_group_goes_before_all_labels() -> None:
    """It is the gang, and that a label says another is told."""
    core = Core(gangs=ON)
    labels = {"pod-group.scheduling.sigs.k8s.io": "other"}
    core.see(node("n"), native("g", 2), worker("a", "g", labels=labels))
    (told,) = core.pod("a").diagnosis.details["conflicts"]
    assert "spec.schedulingGroup says g, which counts" in told
    assert "default/g" == core.state.gang_key(core.pod("a"))


def test_other_podgroups_of_the_name_go_first() -> None:
    """One gang whatever declares it: Koordinator's PodGroup, then upstream's, then that of Kubernetes."""
    core = Core(gangs=ON)
    core.see(native("g", 1), podgroup("g", 2), worker("a", "g"), topic="podgroups")
    core.see(node("n"))
    assert "WaitingForMembers" == core.code("a")
    core.see(gone("podgroups.scheduling.sigs.k8s.io", "group-g"), topic="podgroups")
    assert {"a": "n"} == core.binds()


def test_no_status_is_written_into_them() -> None:
    """Neither phase nor Event: their status has conditions, of other writers."""
    core = Core(gangs=ON)
    core.see(node("n"), native("g", 2), worker("a", "g"))
    resources = [
        command.resource
        for decision in core.decisions
        for command in decision.commands
        if command.kind in ("PatchStatus", "EmitEvent")
    ]
    assert PODGROUPS not in resources


def test_a_restart_forgets_nothing() -> None:
    """State from a snapshot decides the same."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 2), worker("a", "g"), worker("b", "g"))
    again = snapshot.decode(snapshot.encode(core.state))
    record = core.journal.record(node("m", 100))
    assert step(again, record).digest == core.take(record).digest
    assert {"a", "b"} == set(core.binds())
