"""What the auditor asks once faults have stopped and time has passed: everything has ended, the log
tells the truth about the cluster, and what fits is placed.

Compares topics with the API server's account, with a first fit of its own. Must not import `state`.
"""

import json
from collections.abc import Sequence

from producers.simulated.kinds import POD, kinds_named
from producers.simulated.store import Raw, uid_of
from schemas.labels import GANG_GROUPS, GANG_MIN_AVAILABLE, GANG_NAME
from tests.simulation.api_server import ApiServer
from tests.simulation.audit_cluster import (
    FINISHED,
    ClusterAudit,
    allocatable_of,
    minors_of,
    requests_of,
)
from tests.simulation.audit_orders import GROUP_LABEL, OrdersAudit
from tests.simulation.violation import Violation
from tests.simulation.workload import OURS

_NODE, _DEVICE = kinds_named("Node")[0], kinds_named("Device")[0]
_GROUP = next(k for k in kinds_named("PodGroup") if k.group == "scheduling.sigs.k8s.io")
GPU = "nvidia.com/gpu"


class RestAudit:
    """One look at a world at rest. `check` raises `Violation`."""

    def __init__(self, server: ApiServer, orders: OrdersAudit, cluster: ClusterAudit) -> None:
        self._server = server
        self._orders = orders
        self._cluster = cluster

    def check(self) -> None:
        """All of it."""
        self._orders.read()
        self._cluster.read()
        self._check_topics()
        self._cluster.check_ends()
        self._check_pods()
        self._check_nodes()
        self._check_devices()
        self._check_placed()

    # Everything ended

    def _check_topics(self) -> None:
        chain, sequence = self._orders.chain, self._orders.sequence
        if len(chain.decisions) != len(chain.records):
            detail = f"{len(chain.records)} records, {len(chain.decisions)} decisions"
            raise Violation("undecided", sequence, "", detail)
        for key, order in self._orders.orders.items():
            if not order.ended_at:
                detail = f"{order.body['kind']} {key} for {order.body['name']} never ended"
                raise Violation("never-ended", order.sequence, order.body["uid"], detail)
        for topic, count in chain.untaken().items():
            detail = f"{count} messages of {topic} were never taken in"
            raise Violation("intake-lost", sequence, topic, detail)

    # The log tells the truth

    def _check_pods(self) -> None:
        rows = self._orders.rows.get("pods", {})
        there = {uid_of(pod): pod for pod in self._server.store.list(POD)}
        for uid, row in rows.items():
            if uid not in there:
                raise self._untrue(uid, f"pod {row['name']} is gone, and State has it")
        for uid, pod in there.items():
            name = pod["metadata"]["name"]
            if uid not in rows:
                raise self._untrue(uid, f"pod {name} is there, and State lacks it")
            says = rows[uid].get("node", ""), rows[uid]["phase"] in FINISHED
            phase = (pod.get("status") or {}).get("phase")
            is_so = pod["spec"].get("nodeName") or "", phase in FINISHED
            if says != is_so:
                raise self._untrue(uid, f"pod {name}: State says {says}, the API server {is_so}")

    def _check_nodes(self) -> None:
        rows = self._orders.rows.get("nodes", {})
        there = {node["metadata"]["name"]: node for node in self._server.store.list(_NODE)}
        if sorted(rows) != sorted(there):
            raise self._untrue("", f"nodes: State has {sorted(rows)}, there are {sorted(there)}")
        for name, node in there.items():
            cordoned = bool((node.get("spec") or {}).get("unschedulable"))
            says = rows[name]["allocatable"], rows[name].get("unschedulable", False)
            if says != (allocatable_of(node), cordoned):
                raise self._untrue(uid_of(node), f"node {name}: State says {says}")

    def _check_devices(self) -> None:
        rows = self._orders.rows.get("devices", {})
        there = {item["metadata"]["name"]: item for item in self._server.store.list(_DEVICE)}
        said = {row["name"]: row for row in rows.values()}
        if sorted(said) != sorted(there):
            raise self._untrue("", f"Devices: State has {sorted(said)}, there are {sorted(there)}")
        for name, item in there.items():
            says = {
                entry["minor"]: entry.get("healthy", True)
                for entry in said[name].get("devices", ())
            }
            is_so = {entry["minor"]: entry["health"] for entry in item["spec"]["devices"]}
            if says != is_so:
                raise self._untrue(uid_of(item), f"Device {name}: {says}, in truth {is_so}")

    def _untrue(self, subject: str, detail: str) -> Violation:
        return Violation("untrue", self._orders.sequence, subject, detail)

    # What fits is placed

    def _check_placed(self) -> None:
        groups: dict[str, list[Raw]] = {}
        for pod in self._server.store.list(POD):
            if _is_ours(pod):
                groups.setdefault(_group_of(pod), []).append(pod)
        for pod in groups.pop("", ()):
            self._check_single(pod)
        for name, pods in groups.items():
            self._check_group(name, pods)

    def _check_single(self, pod: Raw) -> None:
        if not _is_pending(pod):
            return
        for node in self._server.store.list(_NODE):
            if self._slots(node, pod):
                detail = f"{pod['metadata']['name']} waits, and fits on {node['metadata']['name']}"
                raise Violation("not-placed", self._orders.sequence, uid_of(pod), detail)

    def _check_group(self, name: str, pods: list[Raw]) -> None:
        """Pods of one group are alike, so slots can be counted."""
        pending = [pod for pod in pods if _is_pending(pod)]
        minimum = self._minimum(name, pods)
        if minimum is None or not pending:
            return
        bound = [pod for pod in pods if pod["spec"].get("nodeName")]
        if bound:
            # A gang whose partner has not begun may have to wait for it.
            if all(self._has_begun(partner) for partner in self._partners(name)):
                self._check_single(pending[0])
            return
        slots = self._room(pending[0])
        if len(pending) >= minimum and slots >= minimum and self._partners_fit(name, pending):
            detail = f"gang {name} waits: {len(pending)} pods, minimum {minimum}, room for {slots}"
            raise Violation("not-placed", self._orders.sequence, uid_of(pending[0]), detail)

    def _minimum(self, name: str, pods: list[Raw]) -> int | None:
        """What the PodGroup says, or the pods themselves; None: nobody."""
        words = pods[0]["metadata"].get("annotations") or {}
        if GANG_NAME in words:
            return int(words[GANG_MIN_AVAILABLE])
        group = self._server.store.get(_GROUP, "default", name)
        return None if group is None else int(group["spec"]["minMember"])

    def _partners_fit(self, name: str, pending: list[Raw]) -> bool:
        """Whether the gangs of its group surely fit beside it: wherever it goes, they go elsewhere.

        Each node is charged with as much of the one as it could take, so there is no less room in truth.
        """
        for partner in self._partners(name):
            pods = [
                pod
                for pod in self._server.store.list(POD)
                if _is_ours(pod) and _group_of(pod) == partner and _is_pending(pod)
            ]
            minimum = self._minimum(partner, pods) if pods else None
            if minimum is None or len(pods) < minimum:
                return False
            if self._room(pods[0], pending) < minimum or self._room(pending[0], pods) < len(
                pending
            ):
                return False
        return True

    def _partners(self, name: str) -> list[str]:
        """The other gangs that the PodGroup names."""
        group = self._server.store.get(_GROUP, "default", name)
        words = (group or {"metadata": {}})["metadata"].get("annotations") or {}
        named = [key.rpartition("/")[2] for key in json.loads(words.get(GANG_GROUPS, "[]"))]
        return [partner for partner in named if partner != name]

    def _has_begun(self, name: str) -> bool:
        """Whether the gang is declared, and some member of it is bound."""
        there = self._server.store.get(_GROUP, "default", name) is not None
        return there and any(
            pod["spec"].get("nodeName")
            for pod in self._server.store.list(POD)
            if _group_of(pod) == name
        )

    def _room(self, pod: Raw, beside: Sequence[Raw] = ()) -> int:
        """How many pods like this one fit in all, if every node held all of `beside`, too."""
        return sum(self._slots(node, pod, beside) for node in self._server.store.list(_NODE))

    def _slots(self, node: Raw, pod: Raw, beside: Sequence[Raw] = ()) -> int:
        """How many pods like this one fit on the node now, `beside` these."""
        if (node.get("spec") or {}).get("unschedulable"):
            return 0
        name, free = node["metadata"]["name"], allocatable_of(node)
        taken: list[int] = []
        for other in self._cluster.pods_on(name):
            taken += minors_of(other)
            for resource, amount in requests_of(other).items():
                free[resource] = free.get(resource, 0) - amount
        for other in beside:
            for resource, amount in requests_of(other).items():
                free[resource] = free.get(resource, 0) - amount
        wanted = requests_of(pod)
        device = self._server.store.get(_DEVICE, "", name)
        if device is not None and wanted.get(GPU):
            healthy = [e["minor"] for e in device["spec"]["devices"] if e["health"]]
            free[GPU] = min(free.get(GPU, 0), len([m for m in healthy if m not in taken]))
        return max(0, min(free.get(key, 0) // amount for key, amount in wanted.items() if amount))


def _group_of(pod: Raw) -> str:
    words = pod["metadata"].get("annotations") or {}
    labels = pod["metadata"].get("labels") or {}
    return str(labels.get(GROUP_LABEL) or words.get(GANG_NAME, ""))


def _is_ours(pod: Raw) -> bool:
    return bool(pod["spec"].get("schedulerName") == OURS)


def _is_pending(pod: Raw) -> bool:
    phase = (pod.get("status") or {}).get("phase") or "Pending"
    waits = not pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    return waits and phase not in FINISHED
