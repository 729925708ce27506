"""The services themselves do what the other integration tests rely on."""

import threading
import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.integration import manifests
from tests.integration.api import Api, ApiError, wait_for
from tests.integration.cluster import Cluster, ControlPlane
from tests.integration.kafka_broker import KafkaAddress, LocalBroker
from tests.integration.kubelet import Kubelet

AddNodes = Callable[..., None]


def create_topic(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(timeout=20)


def send(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(20) == 0


def read(bootstrap: str, topic: str, count: int) -> list[bytes]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    values: list[bytes] = []
    give_up = time.monotonic() + 20
    while len(values) < count and time.monotonic() < give_up:
        values += [message.value() for message in consumer.consume(count, timeout=0.5)]
    consumer.close()
    return values


@pytest.mark.kafka
def test_a_message_comes_back(kafka: KafkaAddress, prefix: str) -> None:
    """What is produced to the shared broker is read back, in order."""
    create_topic(kafka.bootstrap, f"{prefix}journal")
    send(kafka.bootstrap, f"{prefix}journal", [b"1", b"2"])
    assert read(kafka.bootstrap, f"{prefix}journal", 2) == [b"1", b"2"]


@pytest.mark.kafka
def test_topics_are_not_made_by_accident(kafka: KafkaAddress, prefix: str) -> None:
    """A name that nobody created stays unknown, so a wrong prefix cannot look like an empty log."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.list_topics(f"{prefix}nowhere", timeout=10)
    assert f"{prefix}nowhere" not in admin.list_topics(timeout=10).topics


@pytest.mark.kafka
def test_acknowledged_messages_survive_a_killed_broker(
    breakable_kafka: LocalBroker, prefix: str
) -> None:
    """SIGKILL and a start over the same data lose nothing that was acknowledged."""
    bootstrap = breakable_kafka.address.bootstrap
    create_topic(bootstrap, f"{prefix}journal")
    send(bootstrap, f"{prefix}journal", [b"before"])
    breakable_kafka.kill()
    breakable_kafka.start()
    send(bootstrap, f"{prefix}journal", [b"after"])
    assert read(bootstrap, f"{prefix}journal", 2) == [b"before", b"after"]


@pytest.mark.controlplane
def test_a_deployments_pods_run_once_bound(
    api: Api, namespace: str, add_nodes: AddNodes, kubelet: Kubelet
) -> None:
    """The controllers make a Deployment's pods, and a bound pod becomes Running and Ready."""
    add_nodes(manifests.node("n1", {"cpu": "8", "memory": "16Gi"}))
    api.create(manifests.deployment("web", 3, {"cpu": "1"}, namespace=namespace))
    wait_for("three pods", lambda: len(api.pods(namespace)) == 3)
    bound, *others = sorted(pod["metadata"]["name"] for pod in api.pods(namespace))
    api.bind(bound, "n1", namespace=namespace)

    def phases() -> dict[str, str]:
        return {pod["metadata"]["name"]: pod["status"]["phase"] for pod in api.pods(namespace)}

    wait_for("the bound pod to run", lambda: phases()[bound] == "Running")
    assert phases() == {bound: "Running"} | dict.fromkeys(others, "Pending")

    def available() -> int:
        path = f"/apis/apps/v1/namespaces/{namespace}/deployments/web"
        count: int = api.get(path)["status"].get("availableReplicas", 0)
        return count

    wait_for("the Deployment to count it", lambda: available() == 1)


@pytest.mark.controlplane
def test_an_evicted_pod_goes_and_is_replaced(
    api: Api, namespace: str, add_nodes: AddNodes, kubelet: Kubelet
) -> None:
    """The kubelet stand-in ends a terminating pod, and its controller makes another."""
    add_nodes(manifests.node("n1", {"cpu": "8", "memory": "16Gi"}))
    api.create(manifests.deployment("web", 1, {"cpu": "1"}, namespace=namespace))
    wait_for("a pod", lambda: len(api.pods(namespace)) == 1)
    (pod,) = api.pods(namespace)
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    api.bind(name, "n1", namespace=namespace)
    wait_for("it to run", lambda: api.pods(namespace)[0]["status"]["phase"] == "Running")
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    api.post(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)

    def replaced() -> bool:
        uids = [each["metadata"]["uid"] for each in api.pods(namespace)]
        return len(uids) == 1 and uid not in uids

    wait_for("another pod in its place", replaced)


@pytest.mark.controlplane
def test_users_have_no_rights_until_given_some(cluster: Cluster, api: Api, namespace: str) -> None:
    """RBAC is on: a ServiceAccount's token may list pods only after a role was bound to it."""
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": "reader", "namespace": namespace},
    }
    api.create(account)
    reader = cluster.service_account_api(namespace, "reader")
    with pytest.raises(ApiError) as refusal:
        reader.pods(namespace)
    assert refusal.value.status == 403
    rules = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]
    rbac = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "metadata": {"name": "reader", "namespace": namespace},
    }
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    api.create(
        {**rbac, "kind": "Role", "rules": rules},
        {**rbac, "kind": "RoleBinding", "roleRef": role, "subjects": [subject]},
    )

    def listed() -> bool:
        try:
            return reader.pods(namespace) == []
        except ApiError:
            return False  # the authorizer follows the new binding by a watch

    wait_for("the role to count", listed)


@pytest.mark.controlplane
def test_the_api_server_comes_back_after_a_kill(breakable_cluster: ControlPlane) -> None:
    """After SIGKILL the same address serves the same objects, and the kubelet stand-in goes on."""
    api = breakable_cluster.api()
    api.create(manifests.node("n1", {"cpu": "8"}), manifests.pod("a", {"cpu": "1"}))
    before = threading.enumerate()
    with Kubelet(api):
        breakable_cluster.kill_api_server()
        with pytest.raises(Exception):  # noqa: B017, PT011 - the client library has many names for it
            api.pods()
        breakable_cluster.start_api_server()
        api.bind("a", "n1")
        wait_for("the pod to run", lambda: api.pods()[0]["status"]["phase"] == "Running")
    left = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [] == left
