"""Scheduling groups of Kubernetes itself on a real API server: read, decided, and told what became of them."""

import asyncio

import pytest

from producers.kube import resource_path
from producers.observe import OBSERVE, observe_pod
from schemas.envelope import PatchStatus
from schemas.observations import PodGroupObserved, PodGroupStatus
from streams.sink.api import Response
from streams.sink.kube import KubeApi, load_configuration
from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.cluster import Cluster
from tests.integration.deployed import HOME

pytestmark = pytest.mark.controlplane

GROUPS_PATH = "/apis/scheduling.k8s.io/v1beta1/namespaces/{}/podgroups"


def scheduling_group(admin: Api, namespace: str, minimum: int) -> Object:
    """A PodGroup `g` of Kubernetes itself."""
    named = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup"}
    spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
    path = GROUPS_PATH.format(namespace)
    return admin.post(path, {**named, "metadata": {"name": "g"}, "spec": spec})


def grouped(name: str, namespace: str = "default") -> Object:
    """A pod of that group."""
    pod = manifests.pod(name, {"cpu": "1"}, namespace=namespace)
    pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    return pod


def test_a_scheduling_group_of_kubernetes_is_read(installed: Cluster) -> None:
    """A PodGroup of Kubernetes and a pod that names it, as the real API server stores and shows them."""
    admin = installed.api()
    scheduling_group(admin, "default", 2)
    admin.create(grouped("grouped"))
    informers = installed.service_account_api(HOME, "lockstep-informers")
    (raw,) = informers.items(resource_path("podgroups.scheduling.k8s.io"))
    group = OBSERVE["podgroups.scheduling.k8s.io"](raw, None)
    assert isinstance(group, PodGroupObserved)
    assert ("scheduling.k8s.io", 2, ()) == (group.group, group.min_member, group.unsupported)
    raw = next(each for each in informers.items("/api/v1/pods") if name_of(each) == "grouped")
    assert "g" == observe_pod(raw).scheduling_group


def test_the_condition_of_a_scheduling_group_is_written(installed: Cluster) -> None:
    """By the sink's account: beside conditions of others, for that uid only, and read back as it was commanded."""
    admin = installed.api()
    admin.create(manifests.namespace("conditions"))
    uid = scheduling_group(admin, "conditions", 2)["metadata"]["uid"]
    path = GROUPS_PATH.format("conditions") + "/g"
    other = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    admin.patch(f"{path}/status", {"status": {"conditions": [other]}})
    said = {"status": "False", "reason": "Unschedulable", "message": "no room"}
    since_us = 1_767_225_600_000_000
    command = PatchStatus(
        id="1.0",
        resource="podgroups.scheduling.k8s.io",
        namespace="conditions",
        name="g",
        uid=uid,
        fields={**said, "since_us": since_us},
    )
    config = load_configuration(str(installed.service_account_kubeconfig(HOME, "lockstep-sink")))

    async def scene() -> list[Response]:
        async with KubeApi(config) as writer:
            stranger = command.model_copy(update={"uid": "11111111-1111-1111-1111-111111111111"})
            return [await writer.patch_status(each) for each in (stranger, command)]

    refused, written = asyncio.run(scene())
    assert ((422, True), True) == (
        (refused.status, "metadata.uid" in refused.message),
        written.ok,
    ), refused
    raw = admin.get(path)
    assert ["DisruptionTarget", "PodGroupInitiallyScheduled"] == sorted(
        each["type"] for each in raw["status"]["conditions"]
    )
    seen = OBSERVE["podgroups.scheduling.k8s.io"](raw, None)
    assert isinstance(seen, PodGroupObserved)
    assert seen.status == PodGroupStatus(
        condition="False", condition_us=since_us, message="no room", reason="Unschedulable"
    )


def name_of(raw: Object) -> str:
    return str(raw["metadata"]["name"])


def check_scheduling_group(admin: Api) -> None:
    """A gang of Kubernetes itself waits for its second member, then is bound as a whole, and its condition says so."""
    admin.create(manifests.namespace("native"), manifests.node("w2", {"cpu": "3", "memory": "4Gi"}))
    scheduling_group(admin, "native", 2)
    path = GROUPS_PATH.format("native") + "/g"

    def condition() -> tuple[str, str, str]:
        for each in admin.get(path).get("status", {}).get("conditions", ()):
            if each["type"] == "PodGroupInitiallyScheduled":
                return each["status"], each["reason"], each["message"].partition(":")[0]
        return "", "", ""

    admin.create(grouped("g-0", "native"))
    waiting = ("False", "Unschedulable", "WaitingForMembers")
    wait_for("the condition that it waits", lambda: waiting == condition())
    admin.create(grouped("g-1", "native"))
    wait_for(
        "both to be bound",
        lambda: all(each["spec"].get("nodeName") for each in admin.pods("native")),
    )
    wait_for("the condition that it was placed", lambda: ("True", "Scheduled", "") == condition())
