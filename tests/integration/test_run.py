"""`lockstep run` from the watch to the bind: real API server, both logs, the rights of `deploy/rbac.yaml`."""

import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import ControlPlane, running_control_plane
from tests.integration.kafka_broker import KafkaAddress
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import LockstepRun, lockstep
from tests.integration.test_deploy import crd_files, documents, established

pytestmark = pytest.mark.controlplane

HOME = "lockstep-system"
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
    admin.delete(f"/api/v1/namespaces/{name}/pods", grace_seconds=0)
    wait_for("the pods to go", lambda: not admin.pods(name))


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
