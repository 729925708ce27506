"""The sink on a real API server: the contract, a batch of binds, lost connections, a budget, the Lease."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from schemas.envelope import BindPod, EvictPod
from schemas.labels import COMMAND_ID
from schemas.observations import CommandEnded
from streams.sink.api import LOG_ID, Response
from streams.sink.kube import KubeApi, load_configuration
from streams.sink.lease import Lease, LeaseSettings, keep
from streams.sink.sink import Sink, SinkSettings
from tests.contracts.api_writer import CHECKS, Check
from tests.integration import manifests
from tests.integration.api import Api, wait_for
from tests.integration.cluster import Cluster, ControlPlane
from tests.integration.deployed import documents, established

pytestmark = pytest.mark.controlplane

REQUESTS = {"cpu": "100m"}


class RealGround:
    """The checks' ground on a real API server."""

    node = "contract-node"

    def __init__(self, writer: KubeApi, admin: Api, namespace: str) -> None:
        self.api = writer
        self.namespace = namespace
        self._admin = admin

    async def add_pod(self, name: str, *, gated: bool = False) -> str:
        gates = {"schedulingGates": [{"name": "example.com/wait"}]} if gated else {}
        pod = manifests.pod(
            name, REQUESTS, namespace=self.namespace, labels={"name": name}, **gates
        )
        (created,) = await asyncio.to_thread(self._admin.create, pod)
        uid: str = created["metadata"]["uid"]
        return uid

    async def add_group(self, name: str, api_group: str) -> str:
        await asyncio.to_thread(add_group_kind, self._admin, api_group)
        group = manifests.pod_group(name, 2, api_group=api_group, namespace=self.namespace)
        (created,) = await asyncio.to_thread(self._admin.create, group)
        uid: str = created["metadata"]["uid"]
        return uid

    async def guard(self, name: str) -> None:
        await asyncio.to_thread(add_budget, self._admin, self.namespace, name)


def add_group_kind(admin: Api, api_group: str) -> None:
    """Install the CRD of that group's PodGroups."""
    (crd,) = admin.apply(*documents(f"crds/podgroups.{api_group}.yaml"))
    wait_for(crd["metadata"]["name"], lambda: established(admin, crd))


def add_budget(admin: Api, namespace: str, name: str) -> None:
    """Make the bound pod healthy, under a budget that then allows no disruption of it."""
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    admin.patch(f"/api/v1/namespaces/{namespace}/pods/{name}/status", {"status": ready})
    (budget,) = admin.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"name": name}}},
        }
    )
    path = admin.path(budget)
    wait_for("a healthy pod", lambda: admin.get(path)["status"].get("currentHealthy") == 1)


@asynccontextmanager
async def writer_of(cluster: Cluster, **settings: float) -> AsyncIterator[KubeApi]:
    async with KubeApi(load_configuration(str(cluster.kubeconfig())), **settings) as writer:
        yield writer


@asynccontextmanager
async def acting(
    writer: KubeApi, settings: SinkSettings | None = None
) -> AsyncIterator[tuple[Sink, list[CommandEnded]]]:
    """A sink that acts, and its results."""
    results: list[CommandEnded] = []

    async def publish(result: CommandEnded) -> None:
        results.append(result)

    sink = Sink(writer, publish, settings=settings)
    running = asyncio.create_task(sink.run())
    sink.activate()
    try:
        yield sink, results
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def until(holds: Callable[[], object], seconds: float = 30) -> None:
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110  (nothing to wait on: it only looks)
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_real_api_server(check: Check, cluster: Cluster, namespace: str) -> None:
    """Each check of the contract passes on a real API server, through the real adapter."""

    async def scene() -> None:
        async with writer_of(cluster, timeout_s=3.0) as writer:
            await check(RealGround(writer, cluster.api(), namespace))

    asyncio.run(scene())


def binds_for(admin: Api, namespace: str, count: int) -> list[BindPod]:
    """So many new pods, and a bind for each."""
    pods = [manifests.pod(f"p{index}", REQUESTS, namespace=namespace) for index in range(count)]
    return [
        BindPod(
            id=f"7.{index}",
            namespace=namespace,
            name=pod["metadata"]["name"],
            uid=pod["metadata"]["uid"],
            node=f"n{index % 3}",
        )
        for index, pod in enumerate(admin.create(*pods))
    ]


def test_a_batch_of_binds(cluster: Cluster, namespace: str) -> None:
    """300 binds are all applied, each once, each pod with its command's id."""
    admin = cluster.api()
    commands = binds_for(admin, namespace, 300)

    async def scene() -> list[CommandEnded]:
        async with writer_of(cluster) as writer, acting(writer) as (sink, results):
            started = time.perf_counter()
            sink.on_decision(commands)
            await until(lambda: len(results) >= len(commands))
            print(f"{len(commands) / (time.perf_counter() - started):.0f} binds/s")
            return results

    results = asyncio.run(scene())
    assert sorted((each.id, "Applied", 201) for each in commands) == sorted(
        (each.command_id, each.outcome, each.status) for each in results
    )
    bound = {
        pod["metadata"]["name"]: (
            pod["spec"]["nodeName"],
            pod["metadata"]["annotations"][COMMAND_ID],
        )
        for pod in admin.pods(namespace)
    }
    assert {each.name: (each.node, each.id) for each in commands} == bound


def test_api_server_killed_amid_binds(breakable_cluster: ControlPlane) -> None:
    """The API server dies and comes back: every bind ends Applied, whatever was lost on the way."""
    commands = binds_for(breakable_cluster.api(), "default", 200)

    async def scene() -> list[CommandEnded]:
        settings = SinkSettings(calls_max=8, retry_s=0.1, retry_s_max=1)
        async with (
            writer_of(breakable_cluster, timeout_s=3.0) as writer,
            acting(writer, settings) as (sink, results),
        ):
            sink.on_decision(commands)
            await until(lambda: len(results) >= 20)
            await asyncio.to_thread(breakable_cluster.kill_api_server)
            assert len(results) < len(commands)
            # From this thread: the server is told to die with the thread that started it.
            breakable_cluster.api_server.spawn()
            await asyncio.to_thread(breakable_cluster.api_server.wait_ready)
            await until(lambda: len(results) >= len(commands), 60)
            return results

    results = asyncio.run(scene())
    assert sorted((each.id, "Applied") for each in commands) == sorted(
        (each.command_id, each.outcome) for each in results
    )
    expected = {each.name: each.id for each in commands}
    assert expected == {
        pod["metadata"]["name"]: pod["metadata"]["annotations"][COMMAND_ID]
        for pod in breakable_cluster.api().pods()
    }


class Deaf(KubeApi):
    """Loses the answer of every bind that succeeded."""

    async def bind(self, command: BindPod) -> Response:
        await super().bind(command)
        return Response(0, "TimeoutError", "no answer")


def test_lost_answers_of_successes(cluster: Cluster, namespace: str) -> None:
    """With every answer lost, reading the pods finds every bind Applied, and none is sent twice."""
    commands = binds_for(cluster.api(), namespace, 20)

    async def scene() -> list[CommandEnded]:
        configuration = load_configuration(str(cluster.kubeconfig()))
        settings = SinkSettings(retry_s=0.01)
        async with Deaf(configuration) as writer, acting(writer, settings) as (sink, results):
            sink.on_decision(commands)
            await until(lambda: len(results) >= len(commands))
            return results

    results = asyncio.run(scene())
    assert sorted((each.id, "Applied", 200) for each in commands) == sorted(
        (each.command_id, each.outcome, each.status) for each in results
    )


def test_budget_holds_an_eviction_until_its_deadline(cluster: Cluster, namespace: str) -> None:
    """A real budget refuses at the deadline; once it is gone the next eviction is applied and told."""
    admin = cluster.api()
    (pod,) = admin.create(
        manifests.pod("a", REQUESTS, namespace=namespace, labels={"name": "a"}, nodeName="n1")
    )
    add_budget(admin, namespace, "a")

    def evict(number: str, deadline_us: int) -> EvictPod:
        return EvictPod(
            id=number,
            namespace=namespace,
            name="a",
            uid=pod["metadata"]["uid"],
            reason="asked by a test",
            deadline_us=deadline_us,
        )

    async def scene() -> list[CommandEnded]:
        settings = SinkSettings(retry_s=0.05)
        async with writer_of(cluster) as writer, acting(writer, settings) as (sink, results):
            sink.note_time(0)
            sink.on_decision([evict("8.0", 1_000_000)])
            await asyncio.sleep(0.5)
            assert [] == results
            await until(lambda: results)
            await asyncio.to_thread(
                admin.delete, f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets/a"
            )
            sink.on_decision([evict("8.1", 30_000_000)], ended=["8.0"])
            await until(lambda: len(results) == 2)
            events = f"/api/v1/namespaces/{namespace}/events/8.1"
            await until(lambda: _exists(admin, events))
            return results

    refused, applied = asyncio.run(scene())
    assert ("Refused", 429) == (refused.outcome, refused.status)
    assert "disruption budget" in refused.message
    assert ("8.1", "Applied") == (applied.command_id, applied.outcome)
    message = admin.get(f"/api/v1/namespaces/{namespace}/events/8.1")["message"]
    assert "Evicted by Lockstep: asked by a test" == message
    assert "deletionTimestamp" in admin.pods(namespace)[0]["metadata"]


def _exists(admin: Api, path: str) -> bool:
    parent, _, name = path.rpartition("/")
    return name in [each["metadata"]["name"] for each in admin.items(parent)]


def test_two_sinks_hand_the_lease_over(cluster: Cluster, namespace: str) -> None:
    """On a real Lease: one acts, a released Lease passes at once, a silent holder's after its time."""

    async def scene() -> None:
        async with writer_of(cluster) as writer:
            first, second, third = (
                Lease(
                    writer,
                    LeaseSettings(
                        namespace=namespace,
                        domain=0,
                        log_id="log-1",
                        identity=identity,
                        duration_s=2,
                        renew_s=0.2,
                        margin_s=0.5,
                    ),
                )
                for identity in ("first", "second", "third")
            )

            async def act() -> None:
                await asyncio.Event().wait()

            keeping = asyncio.create_task(keep(first, act))
            await until(first.held)
            waiting = asyncio.create_task(keep(second, act))
            await asyncio.sleep(3)
            assert (True, False) == (first.held(), second.held())
            keeping.cancel()
            await asyncio.wait([keeping])
            await until(second.held, 1)
            await third.step()
            assert not third.held()
            waiting.cancel()
            await asyncio.wait([waiting])
            await third.step()
            assert third.held()
            await first.step()
            started = time.monotonic()
            while not first.held():
                await asyncio.sleep(0.1)
                await first.step()
                assert not (first.held() and third.held())
            assert 1.5 < time.monotonic() - started < 4
            read = await writer.read_lease(namespace, "lockstep-0")
            assert {LOG_ID: "log-1"} == read.body["metadata"]["annotations"]
            assert 3 == read.body["spec"]["leaseTransitions"]

    asyncio.run(scene())
