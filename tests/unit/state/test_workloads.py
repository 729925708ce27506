"""Workloads of Kubernetes 1.35: each replica of each of their pod groups is a gang of its own."""

from state import invariants, snapshot
from state.machine import step
from tests.builders import Core, Json, ended, gone, node, pod, workload
from tests.unit.state.test_gangs import bind_ids

WORKLOADS = "workloads.scheduling.k8s.io"
ON = {"kubernetesWorkloads": True}


def worker(name: str, gang: str, cpu: int = 100, **fields: object) -> Json:
    """A pod whose spec.workloadRef names `WORKLOAD/PODGROUP[/REPLICA]`."""
    return pod(name, cpu, scheduling_group=gang, **fields)


def test_each_replica_starts_as_a_whole() -> None:
    """Room for one of two replicas: it starts, the other waits for room of its own; a pod group has its own minimum."""
    core = Core(gangs=ON)
    core.see(node("n", 300), workload("w", worker=2, driver=1), topic="podgroups")
    core.see(worker("a0", "w/worker/a"), worker("b0", "w/worker/b"), worker("d", "w/driver"))
    assert {"d"} == set(core.binds())
    core.see(worker("a1", "w/worker/a"), worker("b1", "w/worker/b"))
    assert {"d", "a0", "a1"} == set(core.binds())
    assert "InsufficientResources" == core.code("b0")
    assert ["default/w/driver", "default/w/worker/a", "default/w/worker/b"] == sorted(
        core.state.gangs
    )
    invariants.check(core.state)


def test_pods_wait_for_their_workload() -> None:
    """It comes last; one that lacks the pod group is none; a successor that has it is."""
    core = Core(gangs=ON)
    core.see(node("n"), worker("a", "w/g"), worker("b", "w/g"))
    assert "WaitingForGroup" == core.code("a")
    said = core.pod("a").diagnosis.message
    assert "Workload default/w does not exist, or has no pod group g" == said
    core.see(workload("w", other=1), topic="podgroups")
    assert "WaitingForGroup" == core.code("a")
    core.see(
        gone(WORKLOADS, "workload-w"), workload("w", 5, g=2) | {"uid": "uid-2"}, topic="podgroups"
    )
    assert {"a", "b"} == set(core.binds())
    assert "uid-2" == core.state.gangs["default/w/g"].source


def test_policy_basic_waits_for_nobody() -> None:
    """Its pods are placed one by one."""
    core = Core(gangs=ON)
    core.see(node("n", 100), workload("w", g=0), worker("a", "w/g"), worker("b", "w/g", 9_000))
    assert {"a"} == set(core.binds())


def test_off_their_pods_are_held_by_name() -> None:
    """The field and the switch are named; switched on both kinds are listed, and the pods placed; off again: held."""
    core = Core()
    core.see(node("n"), workload("w", g=1), worker("a", "w/g"))
    assert "UnsupportedConstraint" == core.code("a")
    assert (
        "workloadRef (policy gangs.kubernetesWorkloads is off)" in core.pod("a").diagnosis.message
    )
    for on, name in ((True, "on"), (False, "off")):
        spec = {"gangs": {"kubernetesWorkloads": on}}
        core.see({"kind": "PolicyChanged", "id": name, "spec": spec}, topic="admin")
        assert {"a": "n"} == core.binds()
    core.see(worker("b", "w/g"))
    assert ("UnsupportedConstraint", "") == (core.code("b"), core.state.gangs["default/w/g"].source)


def test_a_replica_ends_with_its_last_pod() -> None:
    """Replicas come and go while the Workload stays: nothing of them is kept, and the next of that name starts anew."""
    core = Core(gangs=ON)
    core.see(node("n"), workload("w", g=2), worker("a", "w/g/0"), worker("b", "w/g/0"))
    core.see(*[ended(command) for command in bind_ids(core).values()])
    core.see(gone("pods", "a"), gone("pods", "b"))
    assert ({}, {}) == (core.state.gangs, core.state.replicas.of)
    core.see(worker("c", "w/g/0"))
    assert "WaitingForMembers" == core.code("c")
    core.see(gone(WORKLOADS, "workload-w"), topic="podgroups")
    assert "WaitingForGroup" == core.code("c")
    core.see(gone("pods", "c"))
    assert {} == core.state.workloads
    invariants.check(core.state)


def test_a_replica_arrives_with_its_first_pod() -> None:
    """Not with its Workload, which may be old: a gang that came before the replica goes first."""
    core = Core(gangs=ON)
    core.see(workload("w", g=1))
    late = worker("late", "w/g/1", created_us=core.journal.now_us + 9_000_000)
    early = pod("early", created_us=core.journal.now_us + 5_000_000)
    core.see(late, early)
    core.see(node("n", 100))
    assert {"early"} == set(core.binds())


def test_its_annotations_count() -> None:
    """Koordinator's, for all of its pod groups: NonStrict holds what it gathered."""
    core = Core(gangs=ON)
    mode = {"gang.scheduling.koordinator.sh/mode": "NonStrict"}
    core.see(node("n", 100), {**workload("w", g=2), "annotations": mode})
    core.see(worker("a", "w/g"), worker("b", "w/g"))
    assert "HoldingRoom" == core.code("a")


def test_a_label_that_says_another_gang_is_told() -> None:
    """The spec counts."""
    core = Core(gangs=ON)
    labels = {"pod-group.scheduling.sigs.k8s.io": "other"}
    core.see(node("n"), workload("w", g=2), worker("a", "w/g", labels=labels))
    (told,) = core.pod("a").diagnosis.details["conflicts"]
    assert "spec.workloadRef says w/g, which counts" in told


def test_a_list_that_lacks_a_workload_ends_it() -> None:
    """As of every kind."""
    core = Core(gangs=ON)
    core.see(workload("w", g=2), worker("a", "w/g"))
    listing = {"resource": WORKLOADS, "epoch": "e"}
    core.see(
        {**listing, "kind": "SyncStarted", "producer": "t", "cold": False, "list_rv": 10},
        {**listing, "kind": "SyncFinished", "list_rv": 10},
        topic="podgroups",
    )
    assert ({}, "WaitingForGroup") == (core.state.workloads, core.code("a"))


def test_a_restart_forgets_nothing() -> None:
    """State from a snapshot decides the same."""
    core = Core(gangs=ON)
    core.see(node("n", 100), workload("w", g=2), worker("a", "w/g/0"), worker("b", "w/g/0"))
    again = snapshot.decode(snapshot.encode(core.state))
    for news in (node("m", 200), gone(WORKLOADS, "workload-w")):
        record = core.journal.record(news)
        assert step(again, record).digest == core.take(record).digest
    assert {"a", "b"} == set(core.binds())
    assert core.state.replicas.of == again.replicas.of
