"""Statuses of PodGroups: what is commanded when, never twice, never in a fight, never for what did not change."""

import time
from typing import Any

import pytest
from msgspec.structs import replace

from schemas.topics import RESOURCES
from state import invariants, snapshot
from state.model.decision import Decision
from state.model.limits import RESOURCES as CORE_RESOURCES
from state.statuses import STATUSES_MAX
from tests.builders import START_US, Core, Json, ended, gone, member, node, pod, podgroup

UPSTREAM = "scheduling.x-k8s.io"
UPSTREAM_LABEL = "scheduling.x-k8s.io/pod-group"
PODGROUPS = "podgroups.scheduling.sigs.k8s.io"


def statuses(decision: Decision) -> dict[str, dict[str, Any]]:
    """Fields of the decision's PodGroup statuses, by uid."""
    return {
        command.uid: command.fields
        for command in decision.commands
        if command.kind == "PatchStatus" and command.resource.startswith("podgroups.")
    }


def phases(decision: Decision) -> dict[str, str]:
    """Phases of the decision's PodGroup statuses, by uid."""
    return {uid: fields["phase"] for uid, fields in statuses(decision).items()}


def events(decision: Decision) -> list[tuple[str, str]]:
    """Uid and reason of the decision's Events."""
    return [
        (command.uid, command.reason)
        for command in decision.commands
        if command.kind == "EmitEvent"
    ]


def all_listed(core: Core) -> list[Json]:
    """Every kind has been listed; what is known is still there."""
    said: list[Json] = []
    for name in RESOURCES:
        listing = {"resource": name, "epoch": f"first-{name}"}
        place = {**listing, "list_rv": 1_000}
        said.append({**place, "kind": "SyncStarted", "producer": "t", "cold": False})
        for row in core.state.tables[CORE_RESOURCES[name][0]].values():
            said.append({**listing, "kind": "StillThere", "uid": row.uid, "rv": row.rv})
        said.append({**place, "kind": "SyncFinished"})
    return said


def status(**fields: Any) -> Json:
    """A status as an informer shows it."""
    return {"phase": "Pending", **fields}


def running(name: str, gang: str, rv: int = 5, **fields: Any) -> Json:
    """A member that runs."""
    return member(name, gang, rv=rv, node="n1", phase="Running", **fields)


def test_a_gang_from_its_group_to_its_end() -> None:
    """Pending, Scheduling while it does not fit, Running, Finished: one status each."""
    core = Core()
    assert {"uid-group-g": "Pending"} == phases(core.see(podgroup("g", 2), topic="podgroups"))
    assert {} == phases(core.see(member("a", "g")))
    owned = member("b", "g", owner="Job/train")
    begun = statuses(core.see(member("a", "g", rv=2, owner="Job/train"), owned))["uid-group-g"]
    assert ("Scheduling", "default/train", 0, START_US) == (
        begun["phase"],
        begun["occupiedBy"],
        begun["scheduled"],
        begun["start_us"],
    )
    assert {} == phases(core.see(node("n1"), topic="nodes"))  # a bind is no news of a pod
    assert {"uid-group-g": "Running"} == phases(core.see(running("a", "g"), running("b", "g")))
    done = [running(name, "g", rv=9) | {"phase": "Succeeded"} for name in "ab"]
    assert {"uid-group-g": "Finished"} == phases(core.see(*done))
    assert {} == phases(core.see(gone("pods", "a"), gone("pods", "b")))
    assert "Finished" == core.state.podgroups["uid-group-g"].written.phase
    invariants.check(core.state)


def test_the_command() -> None:
    """The whole status of an upstream group, for its uid; what stood there goes."""
    core = Core()
    decision = core.see(podgroup("g", 2, group=UPSTREAM), topic="podgroups")
    (command,) = decision.commands
    assert ("PatchStatus", "podgroups.scheduling.x-k8s.io", "default", "g", "uid-group-g") == (
        command.kind,
        command.resource,
        command.namespace,
        command.name,
        command.uid,
    )
    assert {
        "failed": 0,
        "phase": "Pending",
        "running": 0,
        "succeeded": 0,
    } == command.fields


def test_nothing_is_written_twice() -> None:
    """Not for an echo, not for news that says nothing of it, not after a restart."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    echo = podgroup("g", 2, rv=2, status=status())
    for said in (echo, podgroup("g", 2, rv=3, status=status(), annotations={"a": "b"})):
        assert {} == phases(core.see(said, topic="podgroups"))
    core.state = snapshot.decode(snapshot.encode(core.state))
    assert {} == phases(core.see(node("n1"), topic="nodes"))
    assert {} == phases(core.see(member("a", "g")))
    assert {} == phases(core.see(podgroup("g", 2, rv=4, status=status()), topic="podgroups"))


def test_counts_are_those_of_the_members() -> None:
    """10 of 10 bound, 5 gone and made anew: 10, never 15; 4 of 4 running: scheduled 4, Running."""
    core = Core()
    core.see(podgroup("g", 10), topic="podgroups")
    core.see(*(running(f"p{index}", "g") for index in range(10)))
    core.see(*(gone("pods", f"p{index}") for index in range(5)))
    assert 5 == core.state.podgroups["uid-group-g"].written.scheduled
    again = [running(f"p{index}", "g", rv=200, uid=f"new-{index}") for index in range(5)]
    written = statuses(core.see(*again))["uid-group-g"]
    assert ("Running", 10, 10) == (written["phase"], written["scheduled"], written["running"])


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 2, 0)])
def test_four_of_four_run(order: tuple[int, ...]) -> None:
    """Whatever order the news come in, one by one, the last status says 4 and Running."""
    core = Core()
    core.see(podgroup("g", 4), topic="podgroups")
    for index in order:
        core.see(running(f"p{index}", "g"))
        core.see(running(f"p{index}", "g"))
    written = core.state.podgroups["uid-group-g"].written
    assert ("Running", 4, 4) == (written.phase, written.scheduled, written.running)


@pytest.mark.parametrize("api_group", [UPSTREAM, "scheduling.sigs.k8s.io"])
def test_members_are_counted_in_their_namespace(api_group: str) -> None:
    """One pod here and two of the same gang name elsewhere: this group stays Pending."""
    core = Core()
    core.see(podgroup("g", 2, group=api_group), topic="podgroups")
    labels = {UPSTREAM_LABEL: "g"}
    here = pod("a", labels=labels)
    there = [pod(name, labels=labels, namespace="other") for name in "bc"]
    core.see(here, *there)
    assert "Pending" == core.state.podgroups["uid-group-g"].written.phase
    assert {"uid-group-g": "Scheduling"} == phases(core.see(pod("d", labels=labels)))


def test_both_groups_of_one_gang_have_their_own_status() -> None:
    """Each in its own words; of two namesakes only the newer is written."""
    core = Core()
    both = [podgroup("g", 1), podgroup("g", 1, group=UPSTREAM, uid="up", rv=3)]
    older = podgroup("g", 1, group=UPSTREAM, uid="older", rv=2)
    core.see(*both, older, running("a", "g"), topic="podgroups")
    written = {uid: core.state.podgroups[uid].written for uid in ("uid-group-g", "up", "older")}
    assert written["older"] is None
    assert ("Running", 1) == (written["uid-group-g"].phase, written["uid-group-g"].scheduled)
    assert ("Running", 0) == (written["up"].phase, written["up"].scheduled)


def test_what_stands_there_already_is_taken_over() -> None:
    """Another controller's status is the one that ours follows from, and is not written again."""
    core = Core(synced=False)
    stood = status(phase="Running", scheduled=2, running=2, schedule_start_us=START_US - 9_000_000)
    stood["occupied_by"] = "default/job"
    core.see(podgroup("g", 2, status=stood), topic="podgroups")
    core.see(running("a", "g"), running("b", "g"))
    assert {} == statuses(core.decisions[-1])
    opened = core.see(*all_listed(core), topic="admin")
    assert {} == statuses(opened)
    fallen = statuses(core.see(gone("pods", "b")))["uid-group-g"]
    assert ("Scheduling", 1, "default/job", START_US - 9_000_000) == (
        fallen["phase"],
        fallen["scheduled"],
        fallen["occupiedBy"],
        fallen["start_us"],
    )


def test_an_overwritten_status_is_put_right_once() -> None:
    """Somebody else's status is answered once; a second one stands until our own changes."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(podgroup("g", 2, rv=2, status=status()), topic="podgroups")

    def seen(rv: int, phase: str) -> dict[str, str]:
        return phases(
            core.see(podgroup("g", 2, rv=rv, status=status(phase=phase)), topic="podgroups")
        )

    assert {"uid-group-g": "Pending"} == seen(3, "Running")
    assert {} == seen(4, "Pending")
    assert {} == seen(5, "Running")
    core.see(member("a", "g"), member("b", "g"))
    assert "Scheduling" == core.decisions[-1].commands[0].fields["phase"]


def test_overwritten_within_one_record() -> None:
    """Ours and somebody else's are seen together: that is an overwriting, too."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    both = [
        podgroup("g", 2, rv=rv, status=status(phase=phase))
        for rv, phase in ((2, "Pending"), (3, "Running"))
    ]
    assert {"uid-group-g": "Pending"} == phases(core.see(*both, topic="podgroups"))


def test_an_echo_of_an_older_status_is_no_overwriting() -> None:
    """Two statuses under way: the echo of the first changes nothing."""
    core = Core()
    core.see(podgroup("g", 1), topic="podgroups")
    core.see(member("a", "g"))
    assert {} == phases(core.see(podgroup("g", 1, rv=2, status=status()), topic="podgroups"))


def test_back_before_the_first_has_landed() -> None:
    """A status that is under way is overwritten, even when the old one still stands there."""
    core = Core()
    core.see(podgroup("g", 1), topic="podgroups")
    core.see(podgroup("g", 1, rv=2, status=status()), topic="podgroups")
    assert {"uid-group-g": "Scheduling"} == phases(core.see(member("a", "g")))
    assert {"uid-group-g": "Pending"} == phases(core.see(gone("pods", "a")))


def test_a_list_finds_what_was_lost() -> None:
    """A status that never arrived is commanded again when a list has finished, and only then."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    core.see(node("n1"), topic="nodes")
    start = {"kind": "SyncStarted", "resource": PODGROUPS, "producer": "t", "epoch": "e"}
    finish = {"kind": "SyncFinished", "resource": PODGROUPS, "epoch": "e", "list_rv": 9}
    said = [
        {**start, "list_rv": 9, "cold": True},
        podgroup("g", 2, epoch="e"),
        finish,
    ]
    assert {"uid-group-g": "Pending"} == phases(core.see(*said, topic="podgroups"))
    again = [{**item, "epoch": "f"} for item in said]
    again[1]["status"], again[1]["rv"] = status(), 10
    assert {} == phases(core.see(*again, topic="podgroups"))


def test_nothing_is_written_before_all_is_known() -> None:
    """Members not listed yet would make every group Pending."""
    core = Core(synced=False)
    assert {} == phases(core.see(podgroup("g", 1), topic="podgroups"))
    core.see(running("a", "g"))
    decision = core.see(*all_listed(core), topic="admin")
    assert {"uid-group-g": "Running"} == phases(decision)


def test_switched_off_and_on() -> None:
    """Off: nothing written, nothing remembered. On: what others wrote meanwhile is what ours follows from."""
    core = Core(gangs={"writeStatus": False})
    assert {} == phases(core.see(podgroup("g", 1), topic="podgroups"))
    assert core.state.podgroups["uid-group-g"].written is None

    def switch(to: bool) -> dict[str, str]:
        change = {"kind": "PolicyChanged", "id": f"{to}", "spec": {"gangs": {"writeStatus": to}}}
        return phases(core.see(change, topic="admin"))

    assert {"uid-group-g": "Pending"} == switch(True)
    assert {} == switch(False)
    assert core.state.podgroups["uid-group-g"].written is None
    ended_there = podgroup("g", 1, rv=7, status=status(phase="Finished", succeeded=1))
    core.see(ended_there, topic="podgroups")
    change = {"kind": "PolicyChanged", "id": "again", "spec": {"gangs": {"writeStatus": True}}}
    assert {} == phases(core.see(change, topic="admin"))
    assert "Finished" == core.state.podgroups["uid-group-g"].written.phase


def test_an_event_says_what_is_missing() -> None:
    """One for each change of the code, none for other amounts or another record, anew after it has run."""
    core = Core()
    core.see(podgroup("g", 2), topic="podgroups")
    one = core.see(member("a", "g"))
    assert [("uid-group-g", "WaitingForMembers")] == events(one)
    (told,) = [command for command in one.commands if command.kind == "EmitEvent"]
    assert "podgroups.scheduling.sigs.k8s.io" == told.resource
    assert "2" in told.message
    assert [] == events(core.see(member("a", "g", rv=2, annotations={"x": "y"})))
    core.state = snapshot.decode(snapshot.encode(core.state))
    assert [] == events(core.see(podgroup("g", 3, rv=2), topic="podgroups"))
    full = core.see(member("b", "g", 9_000), member("c", "g", 9_000), node("n1"))
    assert [("uid-group-g", "InsufficientResources")] == events(full)
    assert [] == events(core.see(node("n2"), topic="nodes"))
    fits = core.see(*(node(f"big{index}", 16_000) for index in range(2)), topic="nodes")
    assert ["BindPod"] * 3 == [c.kind for c in fits.commands if c.kind != "PatchStatus"]
    assert "" == core.state.podgroups["uid-group-g"].told


def test_no_event_without_the_policy_or_for_gates() -> None:
    """Whoever set the gates knows of them; switched off, nothing is told."""
    core = Core()
    core.see(podgroup("g", 1), topic="podgroups")
    assert [] == events(core.see(member("a", "g", gates=("example.com/wait",))))
    off = Core(gangs={"writeStatus": False})
    assert [] == events(off.see(podgroup("g", 2), member("a", "g"), topic="podgroups"))


def test_a_bind_alone_changes_no_status() -> None:
    """A member counts as scheduled when the API server says so."""
    core = Core()
    core.see(podgroup("g", 1), node("n1"), topic="podgroups")
    bound = core.see(member("a", "g"))
    assert "BindPod" == bound.commands[0].kind
    assert {"uid-group-g": "Scheduling"} == phases(bound)
    assert {"uid-group-g": "Scheduled"} == phases(core.see(ended(bound.commands[0].id)))


def test_a_late_group_is_left_as_it_is() -> None:
    """Its scheduling began over 48 hours after it was made: bound, and then nothing is written any more."""
    core = Core()
    core.see(podgroup("g", 1), topic="podgroups")
    late = core.see(member("a", "g"), advance_us=49 * 3600 * 1_000_000)
    assert {"uid-group-g": "Scheduling"} == phases(late)
    there = member("a", "g", rv=2, node="n1")
    assert {"uid-group-g": "Scheduled"} == phases(core.see(there))
    last = core.see(running("a", "g"))
    assert ({}, [("uid-group-g", "Timeout")]) == (phases(last), events(last))
    core.see(gone("pods", "a"))
    waits = core.see(member("b", "g"))
    assert ({}, []) == (phases(waits), events(waits))


def test_more_than_one_decision_takes() -> None:
    """A first start with many groups: each is written once, in as many decisions as it takes."""
    core, count = Core(synced=False), STATUSES_MAX + 10
    for first in range(0, count, 100):
        said = [podgroup(f"g{index:05}", 2) for index in range(first, min(first + 100, count))]
        core.see(*said, topic="podgroups")
    one = core.see(*all_listed(core), topic="admin")
    assert (STATUSES_MAX, True) == (len(phases(one)), one.work_left)
    two = core.see()
    assert (10, False) == (len(phases(two)), two.work_left)
    assert core.state.cycle_row().statuses == ""
    assert phases(one).keys().isdisjoint(phases(two))


def test_ten_thousand_groups_that_wait_cost_nothing() -> None:
    """A record that touches one gang takes as long with 10,000 others waiting as without."""

    def seconds(others: int) -> float:
        core = Core()
        row = core.state
        core.see(podgroup("one", 2), topic="podgroups")
        group = replace(row.podgroups["uid-group-one"], arrived=True)
        for index in range(others):
            name = f"g{index}"
            row.put("podgroups", f"u{index}", replace(group, name=name, uid=f"u{index}"))
        taken = []
        for rv in range(2, 12):
            started = time.perf_counter()
            core.see(podgroup("one", 2, rv=rv), topic="podgroups")
            taken.append(time.perf_counter() - started)
        return min(taken)

    assert seconds(10_000) < 5 * seconds(0) + 0.001
