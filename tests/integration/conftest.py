"""Fixtures for real services. A service that cannot be had skips the test with the reason.

`kafka` and `cluster` are shared by the whole run, so a test works under names of its own: `prefix`
for topics, `namespace` for objects. `breakable_kafka` and `breakable_cluster` belong to one test,
which may kill them.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import TypeVar

import pytest

from tests.integration import manifests
from tests.integration.api import Api, Object, wait_for
from tests.integration.builds import Missing
from tests.integration.cluster import Cluster, ControlPlane, find_cluster, running_control_plane
from tests.integration.deployed import running_installed
from tests.integration.kafka_broker import KafkaAddress, LocalBroker, find_kafka, running_broker
from tests.integration.kubelet import Kubelet

Found = TypeVar("Found")


def _found(search: AbstractContextManager[Found]) -> Iterator[Found]:
    try:
        service = search.__enter__()
    except Missing as missing:
        pytest.skip(str(missing))
    try:
        yield service
    finally:
        search.__exit__(None, None, None)


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaAddress]:
    """A broker to share."""
    yield from _found(find_kafka())


@pytest.fixture
def breakable_kafka() -> Iterator[LocalBroker]:
    """A broker for this test alone, to kill and start again."""
    yield from _found(running_broker())


@pytest.fixture
def prefix() -> str:
    """A topic prefix that no other test has."""
    return f"t{uuid.uuid4().hex[:12]}."


@pytest.fixture(scope="module")
def installed() -> Iterator[Cluster]:
    """A control plane of the module's own, with everything under deploy/ applied to it."""
    yield from _found(running_installed())


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A control plane to share."""
    yield from _found(find_cluster())


@pytest.fixture
def breakable_cluster() -> Iterator[ControlPlane]:
    """A control plane for this test alone, to kill and start again."""
    yield from _found(running_control_plane())


@pytest.fixture
def api(cluster: Cluster) -> Api:
    """The shared cluster as its administrator."""
    return cluster.api()


@pytest.fixture
def namespace(api: Api) -> Iterator[str]:
    """A namespace for this test alone; its pods are gone afterwards, so the next test has the room."""
    name = f"t{uuid.uuid4().hex[:12]}"
    api.create(manifests.namespace(name))
    yield name
    api.delete(f"/api/v1/namespaces/{name}")  # from here on no controller can make new pods
    api.delete(f"/api/v1/namespaces/{name}/pods", grace_seconds=0)
    wait_for("the pods to go", lambda: not api.pods(name))


@pytest.fixture
def add_nodes(api: Api) -> Iterator[Callable[..., None]]:
    """Creates the given Node objects; they are gone afterwards, so the next test starts with none."""
    names: list[str] = []

    def add(*nodes: Object) -> None:
        names.extend(node["metadata"]["name"] for node in nodes)
        api.create(*nodes)

    yield add
    for name in names:
        api.delete(f"/api/v1/nodes/{name}")


@pytest.fixture
def kubelet(cluster: Cluster) -> Iterator[Kubelet]:
    """Bound pods of the shared cluster become Running, terminating ones go."""
    with Kubelet(cluster.api()) as kubelet:
        yield kubelet
