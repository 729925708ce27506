"""The auditor's watch over the API server: nothing on a node beyond what it has, no GPU held twice,
nobody acting without the right to.

By the API server's own account. Excused is only what could not be known: a change of the cluster
(another scheduler's bind, a bind that came late after its command had been given up, a node that
shrank) that was not folded when the last command for that node was decided; a restore of etcd that
State had not caught up with: until it has folded a whole list of each kind that began after it, State
knows the history that is gone, even where that happens to say the same. Must not import `state`.
"""

import json
from dataclasses import dataclass
from typing import Any

from producers.simulated.kinds import POD, kinds_named
from producers.simulated.store import Raw, WatchEvent, uid_of, version_of
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED
from schemas.quantities import resource_amount
from tests.simulation.api_server import ApiServer, Call
from tests.simulation.audit_orders import Order, OrdersAudit
from tests.simulation.violation import Violation

FINISHED = ("Succeeded", "Failed")
_NODE, _DEVICE = kinds_named("Node")[0], kinds_named("Device")[0]
_KINDS = (POD, _NODE, _DEVICE)


@dataclass
class Changed:
    """Since which version an object says what it says now, of what matters here, and its version now."""

    essence: object
    uid: str
    version: int
    latest: int


class ClusterAudit:
    """Follows the server; `on_call` is told of every write at the moment it takes effect."""

    def __init__(self, server: ApiServer, orders: OrdersAudit) -> None:
        self._server = server
        self._orders = orders
        self._place = self._ends_checked = 0
        self._nodes: dict[str, Changed] = {}
        self._devices: dict[str, Changed] = {}
        self._bound_at: dict[str, int] = {}
        self._binds: dict[str, str] = {}
        self._evicted_us: dict[str, int] = {}  # uid -> when an eviction first took effect
        #: What a restore changed and State does not say yet: by table and key.
        self._undone: dict[tuple[str, str], None] = {}
        #: Lists that began since the last restore, by epoch, and resources of which none was folded to its end.
        self._lists: dict[str, None] = {}
        self._unlisted: dict[str, None] = {}
        #: The last decision that could not know of the restore.
        self._unaware_until = 0
        #: Command ids that took effect, and uids that were ever deleted or terminating.
        self.effects: dict[str, None] = {}
        self.ending: dict[str, None] = {}

    def read(self) -> None:
        """Takes in what happened since."""
        self._server.collect()
        history = self._server.history
        while self._place < len(history):
            self._see(history[self._place])
            self._place += 1
        if self._unlisted or self._undone:
            for epoch in self._lists:
                self._unlisted.pop(self._orders.listed(epoch), None)
            if not self._unlisted:
                self._undone = {key: None for key in self._undone if not self._is_said(*key)}
            self._unaware_until = self._orders.sequence

    def on_list(self, epoch: str) -> None:
        """An informer has begun a list: it has the first page."""
        self._lists[epoch] = None

    def on_restore(self) -> None:
        """etcd went back: what was bound may not be, what was gone may be there."""
        self._orders.read()
        self.read()
        self._binds.clear()
        self._evicted_us.clear()
        self._bound_at.clear()
        self._nodes.clear()
        self._devices.clear()
        self._lists.clear()
        self._unlisted = dict.fromkeys(kind.resource for kind in _KINDS)
        for kind in _KINDS:
            for raw in self._server.store.list(kind):
                self._see(WatchEvent("ADDED", kind, raw))
        rows = self._orders.rows
        for table in ("pods", "nodes", "devices"):
            self._undone.update(((table, key), None) for key in rows.get(table, {}))
        self._undone.update((("pods", uid_of(pod)), None) for pod in self._server.store.list(POD))
        self._unaware_until = self._orders.sequence

    def on_call(self, call: Call) -> None:
        """A write arrived at the server."""
        self._orders.read()
        self.read()
        command, sent = call.sent.command, call.sent
        if sent.lease_holder != sent.sender:
            detail = (
                f"{sent.sender} sent {command.id}; the Lease is {sent.lease_holder or 'nobody'}'s"
            )
            raise Violation("acted-without-lease", self._orders.sequence, command.uid, detail)
        order = self._orders.orders.get(command.id)
        if order is None or not _is_same(order, command):
            detail = f"{command.id} for {command.name} is no accepted command"
            raise Violation("stale-command", self._orders.sequence, command.uid, detail)
        if not call.reply.ok:
            return
        self.effects[command.id] = None
        if command.kind == "BindPod":
            other = self._binds.setdefault(command.uid, command.id)
            if other != command.id:
                detail = f"{command.name} was bound by {other} and by {command.id}"
                raise Violation("bound-twice", order.sequence, command.uid, detail)
            self._check_node(command.node, command.uid)
            if order.sequence > self._unaware_until:
                self._check_choice(order, command.node)
        else:
            self._check_eviction(call, order)

    def check_ends(self) -> None:
        """Every `Applied` that was folded since is true by now."""
        ended = self._orders.ended
        new, self._ends_checked = ended[self._ends_checked :], len(ended)
        for key in new:
            order = self._orders.orders[key]
            if order.outcome == "Applied" and key not in self.effects:
                evicted = order.body["kind"] == "EvictPod" and order.body["uid"] in self.ending
                if not evicted:
                    detail = f"{key} for {order.body['name']} is said to be applied, and is not"
                    raise Violation("false-result", order.ended_at, order.body["uid"], detail)

    # What is

    def _see(self, event: WatchEvent) -> None:
        raw, kind = event.raw, event.kind
        name, version = raw["metadata"]["name"], version_of(raw)
        if kind is POD:
            if event.type == "DELETED" or raw["metadata"].get("deletionTimestamp"):
                self.ending[uid_of(raw)] = None
            if raw["spec"].get("nodeName"):
                self._bound_at.setdefault(uid_of(raw), version)
        elif kind is _NODE:
            essence = (
                raw["status"]["allocatable"],
                bool((raw.get("spec") or {}).get("unschedulable")),
            )
            _keep(self._nodes, name, essence, raw, event)
        elif kind is _DEVICE:
            _keep(self._devices, name, raw["spec"]["devices"], raw, event)

    def _is_said(self, table: str, key: str) -> bool:
        """Whether State says of a restored object what the API server says."""
        row = self._orders.rows.get(table, {}).get(key)
        if table == "pods":
            pods = {uid_of(pod): pod for pod in self._server.store.list(POD)}
            pod = pods.get(key)
            if pod is None or row is None:
                return pod is None and row is None
            return bool((pod["spec"].get("nodeName") or "") == row.get("node", ""))
        kind = _NODE if table == "nodes" else _DEVICE
        name = key if row is None else row["name"]
        raw = self._server.store.get(kind, "", name)
        if raw is None or row is None:
            return raw is None and row is None
        return uid_of(raw) == row["uid"] and version_of(raw) == row["rv"]

    def pods_on(self, node: str) -> list[Raw]:
        """The pods that hold room there."""
        return [
            pod
            for pod in self._server.store.list(POD)
            if pod["spec"].get("nodeName") == node
            and (pod.get("status") or {}).get("phase") not in FINISHED
        ]

    # What must hold

    def _check_eviction(self, call: Call, order: Order) -> None:
        """Whoever evicts has looked at the pod before: what has taken effect by then is not sent again."""
        command, sent_us = call.sent.command, call.sent.sent_us
        if self._evicted_us.setdefault(command.uid, call.arrived_us) < sent_us:
            detail = f"{command.name} was evicted already when {command.id} was sent"
            raise Violation("evicted-again", order.sequence, command.uid, detail)

    def _check_node(self, name: str, uid: str) -> None:
        """After a bind: room and GPUs of the node, unless something there was not known yet."""
        pods, node = self.pods_on(name), self._server.store.get(_NODE, "", name)
        if node is None:
            return  # it left meanwhile
        for resource, used, have in over_capacity(node, pods):
            horizon = self._horizon([pod for pod in pods if resource in requests_of(pod)])
            if self._had_to_know(name, pods, horizon):
                detail = f"{name}: {resource} {used} of {have}"
                raise Violation("over-capacity", horizon, uid, detail)
        for minor, holders in holders_of(pods).items():
            horizon = self._horizon(holders)
            if len(holders) > 1 and self._had_to_know(name, pods, horizon):
                names = ", ".join(pod["metadata"]["name"] for pod in holders)
                detail = f"GPU {minor} of {name} is held by {names}"
                raise Violation("minor-held-twice", horizon, uid, detail)

    def _horizon(self, pods: list[Raw]) -> int:
        """The decision that put the last of these pods where it is; 0: none of them is ours."""
        orders = [order for pod in pods if (order := self._order_of(pod)) is not None]
        return max((order.sequence for order in orders), default=0)

    def _had_to_know(self, name: str, pods: list[Raw], horizon: int) -> bool:
        """Whether the node and all its pods, as they are, had been folded by the `horizon`."""
        known = self._is_known(self._nodes[name], horizon) and horizon > self._unaware_until
        return known and all(self._is_counted(pod, horizon) for pod in pods)

    def _check_choice(self, order: Order, name: str) -> None:
        """The bind's node was open, and its GPUs healthy, as far as was known."""
        node, uid = self._nodes.get(name), order.body["uid"]
        if node is not None and self._is_known(node, order.sequence):
            raw = self._server.store.get(_NODE, "", name)
            if raw is not None and (raw.get("spec") or {}).get("unschedulable"):
                detail = f"{order.body['name']} was put on {name}, which is cordoned"
                raise Violation("put-on-cordoned", order.sequence, uid, detail)
        devices = self._devices.get(name)
        if devices is None or not self._is_known(devices, order.sequence):
            return
        raw = self._server.store.get(_DEVICE, "", name)
        ill = [] if raw is None else [e["minor"] for e in raw["spec"]["devices"] if not e["health"]]
        given = json.loads(order.body.get("annotations", {}).get(DEVICE_ALLOCATED, "{}"))
        for entry in given.get("gpu", ()):
            if entry["minor"] in ill:
                detail = f"{order.body['name']} got GPU {entry['minor']} of {name}, which is ill"
                raise Violation("ill-gpu", order.sequence, uid, detail)

    def _order_of(self, pod: Raw) -> Order | None:
        """The command that bound the pod."""
        annotations = pod["metadata"].get("annotations") or {}
        return self._orders.orders.get(annotations.get(COMMAND_ID, ""))

    def _is_known(self, changed: Changed, sequence: int) -> bool:
        # Who knows a higher version than there is knows a history that a restore has undone.
        known = self._orders.version_known(changed.uid, sequence)
        return changed.version <= known <= changed.latest

    def _is_counted(self, pod: Raw, horizon: int) -> bool:
        """Whether the decision of `horizon` had to count the pod where it is."""
        order, uid = self._order_of(pod), uid_of(pod)
        known = self._orders.version_known(uid, horizon)
        if known > version_of(pod):
            return False  # of a history that a restore has undone
        if order is not None and (order.open_at(horizon) or order.outcome == "Applied"):
            return True
        return known >= self._bound_at.get(uid, version_of(pod))


def _is_same(order: Order, command: Any) -> bool:
    body = order.body
    return (body["kind"], body["uid"], body.get("node", "")) == (
        command.kind,
        command.uid,
        getattr(command, "node", ""),
    )


def _keep(
    known: dict[str, Changed], name: str, essence: object, raw: Raw, event: WatchEvent
) -> None:
    old = known.get(name)
    if event.type == "DELETED":
        known.pop(name, None)
    elif old is None or old.uid != uid_of(raw) or old.essence != essence:
        known[name] = Changed(essence, uid_of(raw), version_of(raw), version_of(raw))
    else:
        old.latest = version_of(raw)


def requests_of(pod: Raw) -> dict[str, int]:
    """What the pod asks for: the sum of its containers, and itself."""
    total = {"pods": 1}
    for container in pod["spec"]["containers"]:
        requests = (container.get("resources") or {}).get("requests") or {}
        for name, quantity in requests.items():
            total[name] = total.get(name, 0) + resource_amount(name, quantity)
    return total


def allocatable_of(node: Raw) -> dict[str, int]:
    """What the node has."""
    return {n: resource_amount(n, q) for n, q in node["status"]["allocatable"].items()}


def over_capacity(node: Raw, pods: list[Raw]) -> list[tuple[str, int, int]]:
    """The resources of which the pods take more than the node has: name, used, had."""
    used: dict[str, int] = {}
    for pod in pods:
        for name, amount in requests_of(pod).items():
            used[name] = used.get(name, 0) + amount
    have = allocatable_of(node)
    return [(n, u, have.get(n, 0)) for n, u in sorted(used.items()) if u > have.get(n, 0)]


def holders_of(pods: list[Raw]) -> dict[int, list[Raw]]:
    """By GPU: the pods that hold it."""
    holders: dict[int, list[Raw]] = {}
    for pod in pods:
        for minor in minors_of(pod):
            holders.setdefault(minor, []).append(pod)
    return holders


def minors_of(pod: Raw) -> list[int]:
    """The GPUs that the pod holds, as its annotation says."""
    annotation = (pod["metadata"].get("annotations") or {}).get(DEVICE_ALLOCATED, "{}")
    return [entry["minor"] for entry in json.loads(annotation).get("gpu", ())]
