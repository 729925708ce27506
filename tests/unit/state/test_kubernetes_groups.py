"""Gangs of Kubernetes itself: PodGroups of `scheduling.k8s.io`, read where policy says so."""

import pytest

from schemas.topics import RESOURCES
from state import invariants, snapshot
from state.machine import step
from state.waits import Waits
from tests.builders import START_US, Core, Json, absent, ended, gone, node, pod, podgroup
from tests.unit.state.test_gangs import bind_ids

KUBERNETES = "scheduling.k8s.io"
PODGROUPS = f"podgroups.{KUBERNETES}"
WORKLOADS = f"workloads.{KUBERNETES}"
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
    assert (asked, 2) == ([PODGROUPS, WORKLOADS], core.state.gangs["default/g"].min_member)
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
    others = [absent(resource) for resource in RESOURCES if resource not in (PODGROUPS, WORKLOADS)]
    core.see(*others, topic="admin")
    core.see(node("n"), pod("p"))
    assert ({} if on else {"p": "n"}) == core.binds()
    core.see(absent(PODGROUPS), absent(WORKLOADS), topic="admin")
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


def conditions(core: Core, since: int = 0) -> list[Json]:
    """What was to be written into PodGroups of Kubernetes from that decision on."""
    return [
        command.fields
        for decision in core.decisions[since:]
        for command in decision.commands
        if (command.kind, command.resource) == ("PatchStatus", PODGROUPS)
    ]


def test_the_condition_says_why_it_waits_and_that_it_was_placed() -> None:
    """First for members, then for room; when so many are bound as it asks for, once and for all."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 2), worker("a", "g"))
    (first,) = conditions(core)
    assert ("False", "Unschedulable", START_US) == (
        first["status"],
        first["reason"],
        first["since_us"],
    )
    assert first["message"].startswith("WaitingForMembers: ")
    core.see(worker("b", "g"), advance_us=3_000_000)
    _, second = conditions(core)
    assert second["message"].startswith("InsufficientResources: ")
    assert ("False", START_US) == (second["status"], second["since_us"])
    core.see(node("m", 200))
    a, b = bind_ids(core).values()
    core.see(ended(a))
    assert 2 == len(conditions(core))
    core.see(ended(b), advance_us=2_000_000)
    assert {
        "message": "",
        "reason": "Scheduled",
        "since_us": START_US + 5_000_000,
        "status": "True",
    } == conditions(core)[-1]
    core.see(gone("pods", "a"), gone("pods", "b"), worker("c", "g"))
    assert ("WaitingForMembers", 3) == (core.code("c"), len(conditions(core)))


def test_what_is_not_decided_is_an_error_of_the_scheduler() -> None:
    """Its own reason, as no room would help."""
    core = Core(gangs=ON)
    core.see(node("n"), native("g", 1, unsupported=("schedulingConstraints",)), worker("a", "g"))
    (said,) = conditions(core)
    assert ("SchedulerError", "False") == (said["reason"], said["status"])
    assert said["message"].startswith("UnsupportedConstraint: ")


def test_policy_basic_is_placed_with_its_first_pod() -> None:
    """It has no minimum to wait for."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 0), worker("a", "g"), worker("b", "g", 9_000))
    core.see(ended(bind_ids(core)["a"]))
    assert "True" == conditions(core)[-1]["status"]


def test_that_it_was_placed_is_the_last_word_whoever_said_it() -> None:
    """Another scheduler placed it: nothing is written, though its pods wait."""
    core = Core(gangs=ON)
    placed = {"condition": "True", "reason": "Scheduled", "condition_us": START_US}
    core.see(node("n", 100), native("g", 2, status=placed), worker("a", "g"))
    assert ([], "WaitingForMembers") == (conditions(core), core.code("a"))


def test_a_condition_that_is_there_is_not_written_again() -> None:
    """What was written is seen: nothing follows. Somebody overwrites it: once more, then no fight."""
    core = Core(gangs=ON)
    core.see(native("g", 2), worker("a", "g"))
    (said,) = conditions(core)
    seen = {
        "condition": said["status"],
        "condition_us": said["since_us"],
        "message": said["message"],
        "reason": said["reason"],
    }
    core.see(native("g", 2, rv=2, status=seen), topic="podgroups")
    assert 1 == len(conditions(core))
    for rv in (3, 4):
        core.see(native("g", 2, rv=rv, status={**seen, "reason": "Other"}), topic="podgroups")
    assert 2 == len(conditions(core))


def test_where_nothing_is_to_be_said_the_condition_of_others_stands() -> None:
    """No pod of it is known, and another scheduler writes why it waits, again and again: that is not overwritten."""
    core = Core(gangs=ON)
    core.see(native("g", 2), topic="podgroups")
    for rv in (2, 3):
        why = {"condition": "False", "condition_us": START_US, "message": f"other {rv}"}
        core.see(native("g", 2, rv=rv, status=why), topic="podgroups")
    listing = {"resource": PODGROUPS, "epoch": "e"}
    core.see(
        {**listing, "kind": "SyncStarted", "producer": "t", "cold": False, "list_rv": 10},
        {**listing, "kind": "StillThere", "uid": "uid-native-g", "rv": 3},
        {**listing, "kind": "SyncFinished", "list_rv": 10},
        topic="podgroups",
    )
    assert [] == conditions(core)


def test_a_group_of_another_scheduler_is_its_own_to_tell() -> None:
    """All of its pods are another scheduler's, which says itself that it placed them."""
    core = Core(gangs=ON)
    theirs = {"scheduler_name": "default-scheduler"}
    core.see(node("n"), native("g", 1), worker("a", "g", spec=theirs, node="n"))
    assert [] == conditions(core)


def test_nothing_is_written_while_they_are_not_read() -> None:
    """Neither condition nor Event; nor where policy leaves statuses to others."""
    for core in (Core(), Core(gangs={**ON, "writeStatus": False})):
        core.see(node("n"), native("g", 2), worker("a", "g"))
        told = [
            each.kind
            for made in core.decisions
            for each in made.commands
            if each.resource == PODGROUPS
        ]
        assert [] == told


def test_an_event_says_why_it_waits() -> None:
    """One for each code."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 2), worker("a", "g"))
    core.see(worker("b", "g"))
    events = [
        each.reason
        for made in core.decisions
        for each in made.commands
        if (each.kind, each.resource) == ("EmitEvent", PODGROUPS)
    ]
    assert ["WaitingForMembers", "InsufficientResources"] == events


def test_members_that_run_count() -> None:
    """So many have a node or get one now: of three that ran two left, so one that is new waits for another."""
    core = Core(gangs=ON)
    core.see(node("n"), native("g", 3), *(worker(name, "g") for name in "abc"))
    core.see(*[ended(command) for command in bind_ids(core).values()])
    core.see(gone("pods", "a"), gone("pods", "b"), worker("d", "g"))
    assert "WaitingForMembers" == core.code("d")
    core.see(worker("e", "g"))
    assert {"d", "e"} <= set(core.binds())


def test_it_says_how_long_it_waited() -> None:
    """The history of a gang knows members that only the spec names."""
    core = Core(gangs=ON)
    core.see(native("g", 2), worker("a", "g"))
    core.see(advance_us=4_000_000)
    waits = Waits(gang="default/g")
    for decision in core.decisions:
        waits.take(decision.data)
    spent = waits.split(core.journal.now_us)["causes_us"]
    assert {"WaitingForMembers": 4_000_000} == spent


def test_a_restart_forgets_nothing() -> None:
    """State from a snapshot decides the same."""
    core = Core(gangs=ON)
    core.see(node("n", 100), native("g", 2), worker("a", "g"), worker("b", "g"))
    again = snapshot.decode(snapshot.encode(core.state))
    record = core.journal.record(node("m", 100))
    assert step(again, record).digest == core.take(record).digest
    assert {"a", "b"} == set(core.binds())
