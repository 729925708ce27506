"""Informers against a real API server: what they publish, folded, is what the server holds."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from producers.informer import Informers, Pace
from producers.kube import UnknownKind
from producers.kube_client import KubeClient
from schemas.errors import Unavailable
from schemas.observations import (
    BudgetObserved,
    KindAbsent,
    LabelRequirement,
    ObjectGone,
    Observed,
    PodGroupObserved,
    PodObserved,
    StillThere,
    SyncFinished,
    SyncStarted,
)
from streams.sink.kube import load_configuration
from tests.integration import builds, manifests
from tests.integration.api import Api, ApiError, wait_for
from tests.integration.cluster import Cluster, ControlPlane, running_control_plane
from tests.integration.process import free_ports

PACE = Pace(page_objects=50, retry_s_min=0.05, retry_s_max=0.5, absent_s=0.1)
BUDGETS = "poddisruptionbudgets.policy"
PODGROUPS = "podgroups.scheduling.x-k8s.io"
RECOVERY_S_MAX = 60


class Log:
    """A publisher that remembers, and folds what it was told in the plainest way."""

    def __init__(self) -> None:
        self.observations: list[Observed] = []

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """Take the observations in."""
        self.observations += observations

    def of(self, kind: type[Observed], resource: str) -> list[Any]:
        """The control observations of one kind about `resource`."""
        return [
            item
            for item in list(self.observations)
            if type(item) is kind and item.resource == resource  # type: ignore[attr-defined]
        ]

    def objects(self, wanted: type[Observed], resource: str) -> dict[str, Any]:
        """uid -> last observation of the objects that are there."""
        found: dict[str, Any] = {}
        versions: dict[str, int] = {}
        named: set[str] = set()
        for item in list(self.observations):
            if type(item) is wanted:
                found[item.uid] = item  # type: ignore[attr-defined]
                versions[item.uid] = item.rv  # type: ignore[attr-defined]
                named.add(item.uid)  # type: ignore[attr-defined]
            elif getattr(item, "resource", "") != resource:
                continue
            elif isinstance(item, SyncStarted):
                named = set()
            elif isinstance(item, StillThere):
                assert item.uid in found, "StillThere of an object that was never published"
                versions[item.uid] = item.rv
                named.add(item.uid)
            elif isinstance(item, ObjectGone):
                found.pop(item.uid, None)
            elif isinstance(item, SyncFinished):
                for uid in [uid for uid in found if uid not in named]:
                    if versions[uid] <= item.list_rv:
                        del found[uid]
            elif isinstance(item, KindAbsent):
                found = {}
        return found


class Interrupted(KubeClient):
    """A client whose network can be cut."""

    def __init__(self, configuration: Any) -> None:
        super().__init__(configuration)
        self.cut = threading.Event()

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """Like the real one, unless the network is cut."""
        if self.cut.is_set():
            raise Unavailable("the network is cut")
        return await super().list_page(resource, limit, continue_)

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Like the real one; a cut network swallows what comes, then fails."""
        async for burst in super().watch(resource, version):
            if self.cut.is_set():
                raise Unavailable("the network is cut")
            yield burst


@contextmanager
def following(
    kubeconfig: Path, *resources: str
) -> Iterator[tuple[Log, Informers, Interrupted, Callable[..., Any]]]:
    """Informers in a thread of their own; the last value calls a function in that thread."""
    log = Log()
    client = Interrupted(load_configuration(str(kubeconfig)))
    informers = Informers(client, log, producer="test", resources=resources, pace=PACE)
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with client:
            await informers.run()

    task = loop.create_task(run())

    def turn() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        yield log, informers, client, loop.call_soon_threadsafe
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(20)
    assert task.cancelled(), task.exception()


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[ControlPlane]:
    """A control plane of this module's own: its tests restart it and change what all would see."""
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(running_control_plane())
        except builds.Missing as missing:
            pytest.skip(str(missing))
        yield cluster


def folded_pods(log: Log, namespace: str) -> dict[str, tuple[str | None, dict[str, str]]]:
    """Name -> node and labels of the pods of a namespace, as the log has them."""
    return {
        item.name: (item.node, item.labels)
        for item in log.objects(PodObserved, "pods").values()
        if item.namespace == namespace
    }


def stored_pods(api: Api, namespace: str) -> dict[str, tuple[str | None, dict[str, str]]]:
    """The same, as the API server has them."""
    return {
        item["metadata"]["name"]: (
            item["spec"].get("nodeName"),
            item["metadata"].get("labels", {}),
        )
        for item in api.pods(namespace)
    }


def agree(log: Log, api: Api, namespace: str) -> Callable[[], bool]:
    """Whether the log says of the namespace's pods what the API server says."""
    return lambda: folded_pods(log, namespace) == stored_pods(api, namespace)


@pytest.mark.controlplane
def test_what_is_published_is_what_the_api_server_holds(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    """Pages, creations, changes, bindings and deletions of real pods; heartbeats are not published."""
    pods = [manifests.pod(f"p{number:03}", {"cpu": "100m"}) for number in range(120)]
    for pod in pods:
        pod["metadata"]["namespace"] = namespace
    api.create(*pods[:110])
    path = f"/api/v1/namespaces/{namespace}/pods"
    with following(cluster.kubeconfig(), "pods", "nodes") as (log, _, _, _):
        wait_for("the first sync", lambda: log.of(SyncFinished, "pods"))
        assert stored_pods(api, namespace) == folded_pods(log, namespace)
        assert [True] == [item.cold for item in log.of(SyncStarted, "pods")]
        api.create(*pods[110:])
        api.patch(f"{path}/p000", {"metadata": {"labels": {"changed": "yes"}}})
        api.bind("p001", "some-node", namespace=namespace)
        api.delete(f"{path}/p002", grace_seconds=0)
        wait_for("the changes", agree(log, api, namespace))
        before = len(log.observations)
        for number in range(20):
            note = {"metadata": {"annotations": {"example.com/note": str(number)}}}
            api.patch(f"{path}/p003", note)
        api.patch(f"{path}/p004", {"metadata": {"labels": {"after": "notes"}}})
        wait_for("the last change", agree(log, api, namespace))
        mine = [
            item
            for item in log.observations[before:]
            if isinstance(item, PodObserved) and item.namespace == namespace
        ]
        assert ["p004"] == [item.name for item in mine]


@pytest.mark.controlplane
def test_a_budget_allows_what_the_disruption_controller_says(
    cluster: Cluster, api: Api, namespace: str
) -> None:
    """Of two healthy pods one may go until the spec wants both; pods carry their start."""
    for name in ("a", "b"):
        labels = {"app": "web"}
        api.create(manifests.pod(name, {"cpu": "1"}, namespace=namespace, labels=labels))
        api.bind(name, "some-node", namespace=namespace)
    spec = {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    metadata = {"name": "keep", "namespace": namespace}
    document = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget"}
    (made,) = api.create({**document, "metadata": metadata, "spec": spec})
    path = api.path(made)

    def seen() -> tuple[Any, ...]:
        found = log.objects(BudgetObserved, BUDGETS).values()
        return tuple((item.selector, item.disruptions_allowed) for item in found)

    with following(cluster.kubeconfig(), BUDGETS, "pods") as (log, _, _, _):
        web = (LabelRequirement(key="app", operator="In", values=("web",)),)
        wait_for("the budget", lambda: seen() == ((web, 0),))
        for name in ("a", "b"):
            status = {"phase": "Running", "startTime": "2026-01-01T00:00:03Z"}
            ready = {"conditions": [{"type": "Ready", "status": "True"}]}
            pod = f"/api/v1/namespaces/{namespace}/pods/{name}/status"
            api.patch(pod, {"status": {**status, **ready}})
        wait_for("one disruption", lambda: seen() == ((web, 1),))
        api.patch(path, {"spec": {"minAvailable": 2}})
        wait_for("another spec", lambda: seen() == ((web, 0),))
        api.delete(path)
        wait_for("no budget", lambda: seen() == ())
        starts = {
            (item.name, item.phase, item.started_us)
            for item in log.objects(PodObserved, "pods").values()
            if item.namespace == namespace
        }
        started_us = 1_767_225_603_000_000
        assert {("a", "Running", started_us), ("b", "Running", started_us)} == starts


@pytest.mark.controlplane
def test_a_requested_resync_names_every_pod(cluster: Cluster, api: Api, namespace: str) -> None:
    """A second list says what is unchanged whole, and the watch goes on after it."""
    api.create(manifests.pod("a", {"cpu": "1"}, namespace=namespace))
    with following(cluster.kubeconfig(), "pods") as (log, informers, _, call):
        wait_for("the first sync", lambda: log.of(SyncFinished, "pods"))
        uid = api.pods(namespace)[0]["metadata"]["uid"]
        call(informers.resync, "pods")
        wait_for("the second sync", lambda: len(log.of(SyncFinished, "pods")) == 2)
        observed = [item for item in log.observations if isinstance(item, PodObserved)]
        assert [uid, uid] == [item.uid for item in observed if item.uid == uid]
        api.create(manifests.pod("b", {"cpu": "1"}, namespace=namespace))
        wait_for("the new pod", agree(log, api, namespace))


@pytest.mark.controlplane
def test_a_killed_api_server_and_deletes_in_the_gap(own_cluster: ControlPlane) -> None:
    """After SIGKILL, a restart and changes nobody saw, a new sync brings the log up to date."""
    api = own_cluster.api()
    api.create(*[manifests.pod(f"p{number:03}", {"cpu": "1"}) for number in range(120)])
    with following(own_cluster.kubeconfig(), "pods") as (log, _, client, _):
        wait_for("the first sync", lambda: log.of(SyncFinished, "pods"))
        assert stored_pods(api, "default") == folded_pods(log, "default")
        client.cut.set()
        # The new server knows no history: it holds events only from its own start on, later than
        # this.
        api.create(manifests.namespace("elsewhere"))
        own_cluster.kill_api_server()
        own_cluster.start_api_server()
        api.delete("/api/v1/namespaces/default/pods/p000", grace_seconds=0)
        api.bind("p001", "some-node")
        api.create(manifests.pod("late", {"cpu": "1"}))
        assert stored_pods(api, "default") != folded_pods(log, "default")
        client.cut.clear()
        wait_for("the log to agree", agree(log, api, "default"), RECOVERY_S_MAX)
        assert [True, False] == [item.cold for item in log.of(SyncStarted, "pods")]
        published = [item.name for item in log.observations if isinstance(item, PodObserved)]
        everything = [*(f"p{number:03}" for number in range(120)), "p001", "late"]
        assert sorted(everything) == sorted(published)
        assert 118 == len(log.of(StillThere, "pods"))


@pytest.mark.controlplane
def test_pages_are_of_one_version(cluster: Cluster, api: Api, namespace: str) -> None:
    """The token of a page leads to the rest of the same list."""

    async def ask() -> None:
        async with KubeClient(load_configuration(str(cluster.kubeconfig()))) as client:
            first = await client.list_page("pods", 1, "")
            second = await client.list_page("pods", 500, first["metadata"]["continue"])
            found = [item["metadata"] for item in first["items"] + second["items"]]
            mine = [item["name"] for item in found if item["namespace"] == namespace]
            assert ["a", "b"] == mine
            assert first["metadata"]["resourceVersion"] == second["metadata"]["resourceVersion"]

    api.create(*[manifests.pod(name, {"cpu": "1"}, namespace=namespace) for name in "ab"])
    asyncio.run(ask())


@pytest.mark.controlplane
def test_an_unknown_kind_is_told_from_a_failure(own_cluster: ControlPlane) -> None:
    """404 of a list or a watch is UnknownKind; no connection is Unavailable."""

    configuration = load_configuration(str(own_cluster.kubeconfig()))

    async def ask(error: type[Exception]) -> None:
        async with KubeClient(configuration) as client:
            with pytest.raises(error):
                await client.list_page(PODGROUPS, 1, "")
            with pytest.raises(error):
                await anext(client.watch(PODGROUPS, "1"))

    asyncio.run(ask(UnknownKind))
    configuration.host = f"https://127.0.0.1:{free_ports(1)[0]}"
    asyncio.run(ask(Unavailable))


@pytest.mark.controlplane
def test_a_crd_that_comes_and_goes(own_cluster: ControlPlane) -> None:
    """A missing kind is reported absent, picked up when its CRD appears, absent again when it goes."""
    api = own_cluster.api()
    with following(own_cluster.kubeconfig(), PODGROUPS, "namespaces") as (log, _, _, _):
        wait_for("KindAbsent", lambda: log.of(KindAbsent, PODGROUPS))
        api.apply(POD_GROUP_CRD)
        group = {
            "apiVersion": "scheduling.x-k8s.io/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"name": "g", "namespace": "default"},
            "spec": {"minMember": 3},
        }
        wait_for("the CRD to be served", lambda: _created(api, group))
        wait_for("the group", lambda: _group_names(log) == ["g"])
        assert log.of(SyncStarted, PODGROUPS)
        api.delete(CRD_PATH)
        wait_for("KindAbsent again", lambda: len(log.of(KindAbsent, PODGROUPS)) == 2)
        assert [] == _group_names(log)
        assert 1 == len(log.of(SyncFinished, "namespaces"))


@pytest.mark.controlplane
def test_a_user_without_rights_is_told_so_and_waits(own_cluster: ControlPlane) -> None:
    """403 is no absence: nothing is published until the right is given, then the sync comes."""
    api = own_cluster.api()
    with following(own_cluster.kubeconfig("nobody"), "nodes") as (log, _, _, _):
        with pytest.raises(ApiError):
            own_cluster.api("nobody").items("/api/v1/nodes")
        assert [] == log.observations
        role = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "reader"},
            "rules": [{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "watch"]}],
        }
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "reader"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "reader",
            },
            "subjects": [{"kind": "User", "name": "nobody"}],
        }
        api.apply(role, binding)
        wait_for("the sync", lambda: log.of(SyncFinished, "nodes"))


def _created(api: Api, body: dict[str, Any]) -> bool:
    """Whether the object could be made by now; a new CRD is served a moment after its creation."""
    try:
        api.apply(body)
    except (ApiError, LookupError):
        return False
    return True


def _group_names(log: Log) -> list[str]:
    return sorted(item.name for item in log.objects(PodGroupObserved, PODGROUPS).values())


CRD_PATH = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/podgroups.scheduling.x-k8s.io"
POD_GROUP_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podgroups.scheduling.x-k8s.io",
        # The group is protected: the API server asks for a link to the approval of its schema.
        "annotations": {"api-approved.kubernetes.io": "unapproved, for tests"},
    },
    "spec": {
        "group": "scheduling.x-k8s.io",
        "names": {"kind": "PodGroup", "plural": "podgroups", "singular": "podgroup"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1alpha1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
