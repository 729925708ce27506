"""The status of PodGroups of both API groups on a real API server, from Pending to Finished, through `lockstep run`."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import ControlPlane, running_control_plane
from tests.integration.deployed import crd_files, documents, established
from tests.integration.kubelet import Kubelet
from tests.integration.lockstep_process import LockstepRun, lockstep

pytestmark = pytest.mark.controlplane

HOME = "lockstep-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{HOME}/leases/lockstep-0"
LABELS = {
    "scheduling.x-k8s.io": "scheduling.x-k8s.io/pod-group",
    "scheduling.sigs.k8s.io": "pod-group.scheduling.sigs.k8s.io",
}
REQUESTS = {"cpu": "1", "memory": "1Gi"}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane of this module's own, with CRDs and roles installed."""
    try:
        with running_control_plane() as plane:
            admin = plane.api()
            admin.apply(*documents(*crd_files(), "rbac.yaml"))
            for crd in documents(*crd_files()):
                wait_for(crd["metadata"]["name"], lambda crd=crd: established(admin, crd))
            yield plane
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture
def run(plane: ControlPlane, tmp_path: Path) -> Iterator[LockstepRun]:
    """`lockstep run` with the rights of `deploy/` on a log of its own."""
    kubeconfig = plane.service_account_kubeconfig(HOME, "lockstep")
    options = ["--kubeconfig", str(kubeconfig), "--lease-namespace", HOME]
    run = LockstepRun(tmp_path, f"embedded://{tmp_path}/log", *options)
    run.start()
    yield run
    run.stop_if_running()
    plane.api().delete(LEASE)  # it names this log: a run on another one would not act


def group_path(api_group: str, namespace: str) -> str:
    return f"/apis/{api_group}/v1alpha1/namespaces/{namespace}/podgroups/g"


def wait_for_status(admin: Api, path: str, **wanted: object) -> Object:
    """The status once it holds all that is wanted; None: the field is not there."""
    last: Object = {}

    def there() -> bool:
        last.clear()
        last.update(admin.get(path).get("status") or {})
        return all(last.get(name) == value for name, value in wanted.items())

    try:
        wait_for(f"{wanted}", there)
    except AssertionError as error:
        raise AssertionError(f"{wanted} never came, last: {last}") from error
    return last


def reasons(admin: Api, namespace: str, kind: str = "PodGroup", name: str = "g") -> list[str]:
    """Reasons of the Events about an object, by time."""
    found = [
        each
        for each in admin.items(f"/api/v1/namespaces/{namespace}/events")
        if (each["involvedObject"]["kind"], each["involvedObject"]["name"]) == (kind, name)
    ]
    return [each["reason"] for each in sorted(found, key=lambda each: each["firstTimestamp"])]


@pytest.mark.parametrize("api_group", LABELS)
def test_a_gang_from_pending_to_finished(
    plane: ControlPlane, run: LockstepRun, api_group: str, tmp_path: Path
) -> None:
    """Alone Pending, with its members Scheduling, with room Running, in the end Finished, though its pods go."""
    koordinator = api_group == "scheduling.sigs.k8s.io"
    admin, home = plane.api(), f"t{uuid.uuid4().hex[:12]}"
    group = manifests.pod_group("g", 2, api_group=api_group, namespace=home)
    admin.create(manifests.namespace(home), group)
    path = group_path(api_group, home)
    wait_for_status(admin, path, phase="Pending", running=0)
    for name in ("a", "b"):
        admin.create(manifests.pod(name, REQUESTS, namespace=home, labels={LABELS[api_group]: "g"}))
    begun = wait_for_status(admin, path, phase="Scheduling", running=0)
    assert (koordinator, koordinator) == ("scheduled" in begun, "scheduleStartTime" in begun)
    wait_for("an event about the group", lambda: reasons(admin, home))
    for name in ("a", "b"):
        wait_for("one about a member", lambda name=name: reasons(admin, home, "Pod", name))
        assert {"FailedScheduling"} == set(reasons(admin, home, "Pod", name))
    node = f"n-{home}"
    admin.create(manifests.node(node, {"cpu": "4", "memory": "8Gi"}))
    if koordinator:
        wait_for_status(admin, path, phase="Scheduled", scheduled=2, running=0)
    with Kubelet(admin):
        running = wait_for_status(admin, path, phase="Running", running=2)
    assert running.get("scheduled") == (2 if koordinator else None)
    assert begun.get("scheduleStartTime") == running.get("scheduleStartTime")
    for name in ("a", "b"):
        pod = f"/api/v1/namespaces/{home}/pods/{name}/status"
        admin.patch(pod, {"status": {"phase": "Succeeded"}})
    wait_for_status(admin, path, phase="Finished", running=0, succeeded=2)
    admin.delete(f"/api/v1/namespaces/{home}/pods", grace_seconds=0)
    admin.create(manifests.pod_group("h", 1, api_group=api_group, namespace=home))
    wait_for_status(admin, path.removesuffix("g") + "h", phase="Pending")
    wait_for_status(admin, path, phase="Finished", succeeded=2)
    told = reasons(admin, home)
    assert len(told) == len(set(told))
    admin.delete(f"/api/v1/nodes/{node}")
    assert 0 == run.stop()
    code, found = lockstep("replay", "--log", f"embedded://{tmp_path}/log", "--verify")
    assert (0, 0, 0) == (code, found["differences"], found["undecided"])


def test_a_status_that_was_overwritten_or_lost(plane: ControlPlane, run: LockstepRun) -> None:
    """Somebody's own phase is put right, once; a restart writes nothing where nothing changed."""
    admin, home = plane.api(), f"t{uuid.uuid4().hex[:12]}"
    admin.create(manifests.namespace(home), manifests.pod_group("g", 2, namespace=home))
    path = group_path("scheduling.x-k8s.io", home)
    wait_for_status(admin, path, phase="Pending")
    admin.patch(f"{path}/status", {"status": {"phase": "Running", "occupiedBy": "who/ever"}})
    wait_for_status(admin, path, phase="Pending", occupiedBy=None)
    version = admin.get(path)["metadata"]["resourceVersion"]
    assert 0 == run.stop()
    run.start()
    labels = {LABELS["scheduling.x-k8s.io"]: "h"}
    admin.create(manifests.pod_group("h", 1, namespace=home))
    admin.create(manifests.pod("p", REQUESTS, namespace=home, labels=labels))
    wait_for_status(admin, path.removesuffix("g") + "h", phase="Scheduling")
    assert version == admin.get(path)["metadata"]["resourceVersion"]
    admin.patch(f"{path}/status", {"status": {"phase": "Running"}})
    assert 0 == run.stop()
    run.start()
    wait_for_status(admin, path, phase="Pending")
    assert 0 == run.stop()
