"""The auditor's watch over the API server, against records and decisions of the core."""

import json
from typing import Any

import pytest

from producers.observe import OBSERVE
from producers.simulated.kinds import POD, kinds_named
from schemas.envelope import BindPod
from tests.builders import Core, Json, gone
from tests.simulation.api_server import ApiServer, Backup, Sent
from tests.simulation.audit_cluster import ClusterAudit
from tests.simulation.audit_orders import OrdersAudit
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock
from tests.simulation.core_chain import CoreChain
from tests.simulation.manifests import device, pod
from tests.simulation.violation import Violation
from tests.unit.state.test_sync import finished, started

KINDS = {kind.resource: kind for kind in (*kinds_named("Node"), *kinds_named("Device"), POD)}


class World:
    """A node with room for one of two pods, and `a` is on it, put there by another scheduler.

    `seen_cpu`: what an informer makes of the node's 1000 milli-CPU.
    """

    def __init__(self, seen_cpu: int = 1_000) -> None:
        self._seen_cpu = seen_cpu
        self.server = ApiServer(Clock(), Chaos(0), ())
        self.core = Core()
        self.orders = OrdersAudit(CoreChain(self.core))  # type: ignore[arg-type]
        self.audit = ClusterAudit(self.server, self.orders)
        self.server.on_call = self.audit.on_call
        self.server.on_restore = lambda _bumped: self.audit.on_restore()
        allocatable = {"cpu": "1000m", "memory": "16Gi", "pods": "8"}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
        self.server.apply({**node, "status": {"allocatable": allocatable}})
        self.server.apply(device("n", 2))
        self.add_pod("a", schedulerName="other", nodeName="n")
        for resource in KINDS:
            self.list_all(resource, f"first {resource}")

    def read(self) -> None:
        """The auditor looks."""
        self.orders.read()
        self.audit.read()

    def add_pod(self, name: str, **spec: Any) -> None:
        """A pod that asks for more than half of the node."""
        requests = {"cpu": "600m", "memory": "1Gi"}
        container = {"name": "main", "resources": {"requests": requests}}
        self.server.apply(pod(name, {}, {"containers": [container], **spec}))

    def restore(self, backup: Backup) -> None:
        """etcd goes back to it."""
        self.server.restore(backup, bumped=False, down_us=0)

    def list_all(self, resource: str, epoch: str) -> None:
        """A list of the resource that begins now, folded to its end."""
        self.audit.on_list(epoch)
        self.fold_list(resource, epoch)

    def fold_list(self, resource: str, epoch: str) -> None:
        """The same of a list that began before."""
        version = self.server.store.highest_version
        items = [
            self._seen(resource, raw, epoch) for raw in self.server.store.list(KINDS[resource])
        ]
        begun = started(epoch, version, resource, whole=True)
        end = finished(epoch, version, resource)
        self.core.see(begun, *items, end)
        self.read()

    def see_pod(self, name: str) -> None:
        """The pod as it is now, by a watch."""
        raw = self.server.store.get(POD, "default", name)
        assert raw is not None
        self.core.see(self._seen("pods", raw, None))
        self.read()

    def bind(self) -> None:
        """The core's only bind takes effect, and the auditor looks at it."""
        (command,) = [
            item
            for decision in self.core.decisions
            for item in json.loads(decision.data)["commands"]
            if item["kind"] == "BindPod"
        ]
        self.server.clock.advance(1_000)
        sent = Sent("sink", self.server.clock.now_us, "sink", BindPod(**command))
        assert self.server.carry_out(sent).ok

    def _seen(self, resource: str, raw: Json, epoch: str | None) -> Json:
        seen: Json = json.loads(OBSERVE[resource](raw, epoch).model_dump_json())
        if resource == "nodes":
            seen["allocatable"]["cpu"] = self._seen_cpu
        return seen


def test_who_says_what_is_restored_before_any_list_of_it_knows_the_lost_history() -> None:
    """The log lags: it tells of a deletion that the restore has undone before it tells of the restore."""
    world = World()
    backup, uid = world.server.back_up(), world.server.read_pod("default", "a")["metadata"]["uid"]  # type: ignore[index]
    world.server.delete("Pod", "default", "a")
    lost = gone("pods", "a", rv=world.server.store.highest_version, uid=uid)
    world.server.collect()
    world.restore(backup)
    world.read()  # State says of everything what the server says
    world.core.see(lost)
    world.add_pod("b", schedulerName="lockstep")
    world.see_pod("b")
    assert {"b": "n"} == world.core.binds()
    world.bind()


@pytest.mark.parametrize("late", [*KINDS, ""])
def test_a_restore_is_known_once_every_kind_was_listed_since(late: str) -> None:
    """Then a bind beyond what the node has is nobody else's fault; of the kind `late` the list is an older one."""
    world = World(seen_cpu=2_000)
    backup = world.server.back_up()
    world.audit.on_list(f"again {late}")
    world.restore(backup)
    for resource in KINDS:
        if resource == late:
            world.fold_list(resource, f"again {resource}")
        else:
            world.list_all(resource, f"again {resource}")
    world.add_pod("b", schedulerName="lockstep")
    world.see_pod("b")
    assert {"b": "n"} == world.core.binds()
    if late:
        world.bind()
        return
    with pytest.raises(Violation, match="over-capacity"):
        world.bind()
