"""`lockstep run` from the watch to the bind: real API server, both logs, the rights of `deploy/rbac.yaml`."""

import json
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import ProtocolError

from schemas.codec import encode
from schemas.topics import RESOURCES
from streams.log import open_reader, open_writer
from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import ControlPlane, running_control_plane
from tests.integration.deployed import crd_files, documents, established
from tests.integration.history import all_listed, first_bind, rows_that_differ
from tests.integration.kafka_broker import KafkaAddress
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import COMMAND, LockstepRun, lockstep, open_commands

pytestmark = pytest.mark.controlplane

HOME = "lockstep-system"
GROUPS = "gang.scheduling.koordinator.sh/groups"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/lockstep-0"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, with CRDs and roles installed, and kubelets."""
    try:
        with running_control_plane() as plane:
            admin = plane.api()
            admin.apply(*documents(*crd_files(), "rbac.yaml"))
            for crd in documents(*crd_files()):
                wait_for(crd["metadata"]["name"], lambda crd=crd: established(admin, crd))
            with Kubelet(admin):
                yield plane
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def admin(plane: ControlPlane) -> Iterator[Api]:
    """The administrator; nodes and the Lease are gone after the test."""
    api = plane.api()
    yield api
    for node in api.items("/api/v1/nodes"):
        api.delete(f"/api/v1/nodes/{node['metadata']['name']}")
    if any(
        lease["metadata"]["name"] == "lockstep-0" for lease in api.items(LEASE.rpartition("/")[0])
    ):
        api.delete(LEASE)


@pytest.fixture
def home(admin: Api) -> Iterator[str]:
    """A namespace for this test alone."""
    name = f"t{uuid.uuid4().hex[:12]}"
    admin.create(manifests.namespace(name))
    yield name
    admin.delete(f"/api/v1/namespaces/{name}")

    def emptied() -> bool:
        with suppress(ProtocolError):  # thousands of them may take longer than a request may
            admin.delete(f"/api/v1/namespaces/{name}/pods", grace_seconds=0)
        return not admin.pods(name)

    wait_for("the pods to go", emptied, seconds_max=300)


Start = Callable[..., LockstepRun]


@pytest.fixture
def start(plane: ControlPlane, tmp_path: Path) -> Iterator[Start]:
    """Starts `lockstep run` on a log, as the service account of `deploy/`; stopped after the test."""
    runs: list[LockstepRun] = []
    kubeconfig = plane.service_account_kubeconfig(HOME, "lockstep")

    def begin(url: str, *arguments: str) -> LockstepRun:
        directory = tmp_path / f"run{len(runs)}"
        directory.mkdir()
        run = LockstepRun(
            directory, url, "--kubeconfig", str(kubeconfig), "--lease-namespace", HOME, *arguments
        )
        runs.append(run)
        run.start()
        return run

    yield begin
    for run in runs:
        run.stop_if_running()


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.kafka)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty log of each kind."""
    if request.param == "embedded":
        return f"embedded://{tmp_path}/log"
    kafka: KafkaAddress = request.getfixturevalue("kafka")
    prefix = request.getfixturevalue("prefix")
    return f"kafka://{kafka.bootstrap}?prefix={prefix}"


def pod_group(name: str, namespace: str, min_member: int) -> Object:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"minMember": min_member},
    }


def phases(admin: Api, namespace: str) -> list[str]:
    return sorted(pod["status"]["phase"] for pod in admin.pods(namespace))


def scheduled_condition(pod: Object) -> Any:
    conditions = pod["status"].get("conditions", [])
    return next((each for each in conditions if each["type"] == "PodScheduled"), None)


def add_gang(admin: Api, namespace: str, min_member: int) -> None:
    """Six replicas of 3000m in a PodGroup, and three nodes with room for one each."""
    for index in range(3):
        admin.create(manifests.node(f"n{index}", {"cpu": "4", "memory": "4Gi"}))
    admin.create(pod_group("gang", namespace, min_member))
    labels = {"scheduling.x-k8s.io/pod-group": "gang", "pod-group.scheduling.sigs.k8s.io": "gang"}
    requests = {"cpu": "3000m", "memory": "500Mi"}
    admin.create(manifests.deployment("d", 6, requests, namespace=namespace, labels=labels))


def test_a_gang_that_fits_runs_and_the_rest_waits(
    admin: Api, home: str, start: Start, url: str
) -> None:
    """Six replicas, room for three, minMember 3: three Running, three Pending; the log replays to the same bytes."""
    run = start(url)
    add_gang(admin, home, 3)
    wait_for("3 Running", lambda: phases(admin, home) == ["Pending"] * 3 + ["Running"] * 3)
    assert 0 == run.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


def test_a_gang_that_does_not_fit_waits_whole_and_says_why(
    admin: Api, home: str, start: Start, url: str
) -> None:
    """minMember 4: all six Pending, each with PodScheduled=False and how many members can be placed."""
    run = start(url)
    add_gang(admin, home, 4)

    def told() -> bool:
        found = [scheduled_condition(pod) for pod in admin.pods(home)]
        return len(found) == 6 and all(
            each and each["status"] == "False" and "3" in each["message"] for each in found
        )

    wait_for("six conditions", told)
    time.sleep(1)
    assert ["Pending"] * 6 == phases(admin, home)
    assert 0 == run.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0) == (code, found["differences"])


def bound_once(admin: Api, namespace: str) -> dict[str, int]:
    """Binding events are not kept by an API server; what is bound is counted by pod: its node, or nothing."""
    return {
        pod["metadata"]["name"]: int("nodeName" in pod["spec"]) for pod in admin.pods(namespace)
    }


def used_cpu(admin: Api) -> dict[str, int]:
    """Milli-cpu of the pods that hold room, by node, by the API server's account."""
    used: dict[str, int] = {}
    for pod in admin.items("/api/v1/pods"):
        node = pod["spec"].get("nodeName")
        if node and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            cpu = pod["spec"]["containers"][0]["resources"]["requests"]["cpu"]
            used[node] = used.get(node, 0) + int(cpu.removesuffix("m"))
    return used


def test_killed_three_times_while_a_thousand_pods_arrive(
    admin: Api, home: str, start: Start, url: str
) -> None:
    """Every pod is bound once, no node holds more than it has, and the log verifies."""
    for index in range(60):
        admin.create(manifests.node(f"n{index}", {"cpu": "2", "memory": "8Gi"}))
    run = start(url, "--identity", "the-only-one")
    pods = [manifests.pod(f"p{index}", {"cpu": "100m"}, namespace=home) for index in range(1_000)]
    for quarter in range(4):
        admin.create(*pods[quarter * 250 : (quarter + 1) * 250])
        if quarter < 3:
            run.kill()
            run.start()

    def all_bound() -> bool:
        return sum(bound_once(admin, home).values()) == 1_000

    wait_for("1000 pods to be bound", all_bound, seconds_max=180, every=1)
    assert all(cpu <= 2_000 for cpu in used_cpu(admin).values())
    wait_for("the results", lambda: not open_commands(url), seconds_max=60, every=1)
    time.sleep(2)  # the tables follow
    assert 0 == run.stop()
    assert 0 == rows_that_differ(url, run.datadir)
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])
    assert 1_000 == len(applied_binds(url))
    assert {1} == set(applied_binds(url).values())


@pytest.mark.kafka
def test_two_hundred_gangs_and_a_group_over_two_namespaces(
    admin: Api, home: str, start: Start, kafka: KafkaAddress, prefix: str
) -> None:
    """Room for 120 gangs of five, killed twice on the way: each gang whole or not at all; with more nodes all of them.

    Two of the gangs are one group, in a namespace each.
    """
    away = f"{home}-away"
    admin.create(manifests.namespace(away))
    url = f"kafka://{kafka.bootstrap}?prefix={prefix}"
    size = {"cpu": "1", "memory": "8Gi"}
    admin.create(*[manifests.node(f"n{index}", size) for index in range(60)])
    names = [f"g{index}" for index in range(198)]
    places = [(home, name) for name in names] + [(home, "left"), (away, "right")]
    group = json.dumps([f"{home}/left", f"{away}/right"])
    run = start(url, "--identity", "the-only-one")
    for part in range(4):
        for namespace, name in places[part * 50 : (part + 1) * 50]:
            podgroup = pod_group(name, namespace, 5)
            podgroup["apiVersion"] = "scheduling.sigs.k8s.io/v1alpha1"
            if name in ("left", "right"):
                podgroup["metadata"]["annotations"] = {GROUPS: group}
            label = {"pod-group.scheduling.sigs.k8s.io": name}
            members = [
                manifests.pod(f"{name}-{n}", {"cpu": "100m"}, namespace=namespace, labels=label)
                for n in range(5)
            ]
            admin.create(podgroup, *members)
        if part in (1, 2):
            run.kill()
            run.start()

    def bound() -> dict[tuple[str, str], int]:
        counts = dict.fromkeys(places, 0)
        for namespace in (home, away):
            for pod in admin.pods(namespace):
                gang = pod["metadata"]["labels"]["pod-group.scheduling.sigs.k8s.io"]
                counts[namespace, gang] += "nodeName" in pod["spec"]
        return counts

    wait_for("600 pods", lambda: sum(bound().values()) == 600, seconds_max=180, every=1)
    assert {0, 5} == set(bound().values())
    assert bound()[home, "left"] == bound()[away, "right"]
    assert max(used_cpu(admin).values()) <= 1_000
    admin.create(*[manifests.node(f"m{index}", size) for index in range(40)])
    wait_for("all pods", lambda: set(bound().values()) == {5}, seconds_max=180, every=1)
    wait_for("the results", lambda: not open_commands(url), seconds_max=60, every=1)
    assert 0 == run.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])
    assert {1} == set(applied_binds(url).values())
    admin.delete(f"/api/v1/namespaces/{away}")
    admin.delete(f"/api/v1/namespaces/{away}/pods", grace_seconds=0)


def applied_binds(url: str) -> dict[str, int]:
    """How many binds of each pod were applied, by the log's account."""
    argv = [*COMMAND, "decisions", "--log", url]
    lines = subprocess.run(argv, capture_output=True, check=True).stdout.splitlines()
    uid_of: dict[str, str] = {}
    ended: dict[str, None] = {}
    for line in lines:
        decision = json.loads(line)
        for command in decision["commands"]:
            if command["kind"] == "BindPod":
                uid_of[command["id"]] = command["uid"]
        ended.update(dict.fromkeys(decision["ended"]))
    counts: dict[str, int] = {}
    for command_id, uid in uid_of.items():
        if command_id in ended:
            counts[uid] = counts.get(uid, 0) + 1
    return counts


def test_an_eviction_asked_for_is_held_back_by_a_budget_and_told_in_the_story(
    admin: Api, home: str, start: Start, tmp_path: Path
) -> None:
    """Through the eviction subresource: the budget holds it back, without the budget it goes; the story tells it."""
    url = f"embedded://{tmp_path}/log"
    run = start(url)
    admin.create(manifests.node("n0", {"cpu": "4", "memory": "4Gi"}))
    labels = {"app": "guarded"}
    admin.create(manifests.pod("p", {"cpu": "1"}, namespace=home, labels=labels))
    wait_for("p Running", lambda: phases(admin, home) == ["Running"])
    budget = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": home},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}},
    }
    admin.create(budget)
    path = f"/apis/policy/v1/namespaces/{home}/poddisruptionbudgets/b"
    wait_for("the budget", lambda: admin.get(path)["status"].get("expectedPods") == 1)
    evict = ("evict", "pod", "p", "-n", home, "--reason", "maintenance", "--log", url)
    evict = (*evict, "--datadir", str(run.datadir))
    code, _ = lockstep(*evict)
    assert 0 == code
    wait_for("a refusal", lambda: run.said("command_not_ended") > 0)
    assert ["Running"] == phases(admin, home)
    admin.delete(path)
    wait_for("p to go", lambda: not admin.pods(home))
    wait_for("the result", lambda: run.said("command_ended") > 1)
    assert 0 == run.stop()
    code, events = lockstep("story", "pod", f"{home}/p", "--log", url)
    told = [(event["what"], event["title"]) for event in events]
    assert 0 == code
    for wanted in (
        ("observation", "EvictRequested"),
        ("command", "EvictPod"),
        ("observation", "CommandEnded"),
        ("observation", "ObjectGone"),
    ):
        assert wanted in told
    outcomes = [event["detail"]["outcome"] for event in events if event["title"] == "CommandEnded"]
    assert ["Applied", "Applied"] == outcomes


@pytest.mark.parametrize("nodes", [10, pytest.param(264, marks=pytest.mark.acceptance)])
def test_a_cluster_that_is_almost_full_is_never_over_committed(
    admin: Api, home: str, start: Start, tmp_path: Path, nodes: int
) -> None:
    """Installed on nodes that others have filled to 95 % (19 pods each): only what is left is used, nothing before
    every list has been folded; the same after a cold restart.
    """
    others_count, full_count = 19 * nodes, 20 * nodes
    admin.create(
        *[manifests.node(f"n{index}", {"cpu": "4", "memory": "40Gi"}) for index in range(nodes)]
    )
    others = [
        manifests.pod(
            f"o{index}",
            {"cpu": "200m"},
            namespace=home,
            nodeName=f"n{index % nodes}",
            scheduler="other",
        )
        for index in range(others_count)
    ]
    admin.create(*others)
    wait_for(
        "the others to run",
        lambda: phases(admin, home).count("Running") == others_count,
        seconds_max=300,
        every=1,
    )
    ours = [
        manifests.pod(f"p{index}", {"cpu": "200m"}, namespace=home) for index in range(3 * nodes)
    ]
    admin.create(*ours)
    url = f"embedded://{tmp_path}/log"
    run = start(url)
    wait_for(
        "the rest to be filled",
        lambda: phases(admin, home).count("Running") == full_count,
        seconds_max=300,
        every=1,
    )
    assert first_bind(url) >= all_listed(url)
    assert {4_000} == set(used_cpu(admin).values())
    assert 0 == run.stop()
    run.start()
    wait_for(
        "synced again", lambda: run.said("synced") >= 2 * (len(RESOURCES) - 2)
    )  # no PodGroups and no Workloads of Kubernetes there
    time.sleep(2)
    assert {4_000} == set(used_cpu(admin).values())
    assert full_count == phases(admin, home).count("Running")
    assert 0 == run.stop()
    print(
        f"{nodes} nodes full: {full_count - others_count} pods bound beside {others_count} of others,"
        f" first bind at sequence {first_bind(url)}, all listed at {all_listed(url)};"
        " no node over its capacity, before and after a cold restart"
    )


def test_a_waiting_administrator_learns_how_the_eviction_ended(
    admin: Api, home: str, start: Start, url: str
) -> None:
    """`evict --wait`: Applied is exit 0; a pod that is not there is exit 1 with the reason."""
    run = start(url)
    admin.create(manifests.node("n0", {"cpu": "4", "memory": "4Gi"}))
    admin.create(manifests.pod("p", {"cpu": "1"}, namespace=home))
    wait_for("p Running", lambda: phases(admin, home) == ["Running"])
    shared = ("-n", home, "--reason", "r", "--wait", "--log", url, "--datadir", str(run.datadir))
    code, answer = lockstep("evict", "pod", "p", *shared)
    assert (0, "Applied") == (code, answer["outcome"])
    code, answer = lockstep("evict", "pod", "nobody", *shared)
    assert (1, True) == (code, "is not there" in answer["outcome"])
    assert 0 == run.stop()


@pytest.mark.kafka
def test_bad_messages_on_kafka_have_their_end_and_the_roles_go_on(
    kafka: KafkaAddress, prefix: str, tmp_path: Path
) -> None:
    """Not JSON, a future version, 5 MB, an unknown kind, a negative request: dead letters with the reason, a resync
    asked for.
    """
    url = f"{kafka.url}?prefix={prefix}"
    run = LockstepRun(tmp_path, url, "--sequencer", "--decider")
    run.start()
    try:
        _publish_bad(url)
        reader = open_reader(url)
        wait_for("five dead letters", lambda: reader.end_offset("deadletter") == 5)
        letters = [json.loads(each.value or b"") for each in reader.read("deadletter", 0, 10)]
        wanted = ["FutureVersion", "InvalidField", "NotJson", "TooLarge", "UnknownKind"]
        assert wanted == sorted(letter["reason"] for letter in letters)

        def decided() -> bool:
            values = [each.value or b"" for each in reader.read("decisions", 0, 1_000)]
            asked = [each for data in values for each in json.loads(data)["requests"]]
            return {"kind": "ResyncRequested", "resource": "pods"} in asked

        wait_for("a resync asked for", decided)
        reader.close()
    finally:
        assert 0 == run.stop()
    code, found = lockstep("replay", "--log", url, "--verify")
    assert (0, 0) == (code, found["differences"])


def _publish_bad(url: str) -> None:
    pod = {
        "kind": "PodObserved",
        "uid": "u",
        "rv": 1,
        "namespace": "d",
        "name": "p",
        "created_us": 1,
        "spec": {"scheduler_name": "lockstep", "requests": {"cpu": -1}},
    }
    writer = open_writer(url)
    for value in (
        b"\x00 not json",
        encode({"producer": "t", "version": 9, "observations": [pod]}),
        b" " * 5_000_000,
        encode({"producer": "t", "observations": [{"kind": "Comet"}]}),
        encode({"producer": "t", "observations": [pod]}),
    ):
        writer.append("pods", None, value)
    writer.close()
