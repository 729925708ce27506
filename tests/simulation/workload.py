"""What users, nodes and other schedulers do, by seed: objects come, change and go.

Acts on the simulated API server as its users do, and on the topic `admin` as an administrator does.
Must not know Lockstep's core. Later issues add their objects here: one method an action, one line
in `_ACTIONS`.
"""

import json
from collections.abc import Callable
from typing import Any

from producers.simulated.kinds import POD, kinds_named
from producers.simulated.store import Raw
from schemas.labels import GANG_GROUPS, GANG_MIN_AVAILABLE, GANG_NAME
from schemas.topics import ADMIN
from streams.log import LogWriter
from tests.simulation.administrator import Administrator
from tests.simulation.api_server import ApiServer, Backup
from tests.simulation.manifests import NAMESPACE
from tests.simulation.manifests import device as device_manifest
from tests.simulation.manifests import pod as pod_manifest
from tests.simulation.manifests import pod_group as group_manifest

Json = dict[str, Any]

OURS = "lockstep"
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"
#: How names of NonStrict gangs begin.
LOOSE = "loose"
GANG_WORDS = (GANG_NAME, GANG_MIN_AVAILABLE)
PODS_MAX = 36
#: Chance of a backup of etcd where a user acts, and how many are kept.
BACKS_UP, BACKUPS_MAX = 0.1, 3
#: How long a restore takes, in seconds; without a bump the informers are stopped and started anew,
#: and by then nothing that a stopped one wrote is still under way.
RESTORE_S, CAREFUL_RESTORE_S = (7.0, 15.0), (11.0, 18.0)
_NODE, _DEVICE = kinds_named("Node")[0], kinds_named("Device")[0]
_BUDGET, _GROUP = kinds_named("PodDisruptionBudget")[0], kinds_named("PodGroup")[1]


class Workload:
    """Everything that happens to the cluster from outside, drawn from the chaos' dice."""

    def __init__(self, server: ApiServer, admin: LogWriter, off: tuple[str, ...] = ()) -> None:
        self._server = server
        self._admin = admin
        self._administrator = Administrator(admin)
        self._dice = server.chaos.acts_dice
        self._serial = 0
        self._backups: list[Backup] = []
        self._node_names = [f"n{number}" for number in range(self._dice.randint(2, 5))]
        #: Names of all that users may do.
        self.action_names = tuple(action.__name__ for _, action in self._weighted())
        self._off = off
        self._actions = [action for weight, action in self._weighted() for _ in range(weight)]

    def begin(self) -> None:
        """The cluster as it was before Lockstep came: nodes, and pods that run already."""
        for name in self._node_names:
            self._add_node(name)
        for _ in range(self._dice.randint(0, 4)):
            self.add_foreign_pod()
        for _ in range(self._dice.randint(0, 6)):
            self.act()

    def act(self) -> None:
        """One thing happens, if the API server answers."""
        action, backs_up = self._dice.choice(self._actions), self._dice.random() < BACKS_UP
        if self._server.is_down():
            return
        if backs_up:
            self._backups = [*self._backups, self._server.back_up()][-BACKUPS_MAX:]
        if self._backups and self._server.chaos.happens("etcd_restored"):
            self.restore_etcd()
        elif action.__name__ not in self._off:
            action()
        self._server.collect()

    def restore_etcd(self) -> None:
        """An administrator restores etcd from a backup, with the revision bumped or not."""
        bumped = self._dice.random() < 0.6
        seconds = RESTORE_S if bumped else CAREFUL_RESTORE_S
        down_us = self._server.chaos.between_us(*seconds)
        backup = self._backups.pop(self._dice.randrange(len(self._backups)))
        self._backups = []
        self._server.restore(backup, bumped=bumped, down_us=down_us)

    def _weighted(self) -> list[tuple[int, Callable[[], None]]]:
        return [
            (12, self.add_pod),
            (7, self.add_gpu_pod),
            (5, self.add_gang),
            (2, self.add_gang_group),
            (3, self.add_loose_gang),
            (2, self.change_queue),
            (2, self.add_annotated_gang),
            (2, self.add_foreign_pod),
            (2, self.add_replicas),
            (5, self.delete_pod),
            (4, self.recreate_pod),
            (5, self.finish_pod),
            (2, self.relabel_pod),
            (2, self.steal_pod),
            (2, self.evict_pod),
            (2, self.slow_down_eviction),
            (2, self.remove_node),
            (4, self.return_node),
            (2, self.resize_node),
            (3, self.cordon_node),
            (3, self.change_health),
            (1, self.delete_group),
            (1, self.remake_group),
            (1, self.change_minimum),
            (1, self.add_budget),
            (1, self.remove_budget),
            (1, self.garble),
        ]

    # Pods

    def add_pod(self) -> None:
        """A single pod of ours."""
        if self._has_room():
            self._apply_pod(self._name("p"), self._dice.choice((250, 500, 1000, 1500)))

    def add_gpu_pod(self) -> None:
        """A single pod that asks for whole GPUs."""
        if self._has_room():
            self._apply_pod(self._name("g"), 250, gpus=self._dice.choice((1, 1, 2)))

    def add_gang(self) -> None:
        """A PodGroup with its pods, in either order; sometimes fewer pods than it needs."""
        if not self._has_room():
            return
        name, members = self._name("gang"), self._dice.randint(2, 5)
        minimum = self._dice.randint(2, members + (self._dice.random() < 0.15))
        cpu, gpus = self._dice.choice((250, 500, 1000)), self._dice.choice((0, 0, 0, 1))
        self._add_members(name, members, minimum, cpu, gpus)

    def add_loose_gang(self) -> None:
        """A NonStrict gang, which holds what it gathered for a while; often too large, or short of members."""
        if not self._has_room():
            return
        name, members = self._name(LOOSE), self._dice.randint(2, 4)
        minimum = self._dice.randint(2, members + 1)
        cpu, gpus = self._dice.choice((500, 1000, 1500)), self._dice.choice((0, 0, 1))
        wait_s = self._dice.choice((2, 5, 12))
        self._add_members(name, members, minimum, cpu, gpus, wait_s=wait_s)

    def _add_members(
        self, name: str, members: int, minimum: int, cpu: int, gpus: int, *, wait_s: int = 0
    ) -> None:
        """A PodGroup and its pods, one after the other in any order; they may matter more than others, together."""
        priority = self._dice.choice((None, None, 10, 100))
        steps: list[Callable[[], None]] = [
            lambda: self._apply_group(name, minimum, wait_s=wait_s),
            *(
                lambda member=member: self._apply_pod(  # type: ignore[misc]
                    f"{name}-{member}", cpu, gpus, name, priority=priority
                )
                for member in range(members)
            ),
        ]
        self._dice.shuffle(steps)
        for step in steps:
            step()

    def add_gang_group(self) -> None:
        """Two gangs that bind only together, their objects in any order."""
        if not self._has_room():
            return
        names = [self._name("pair"), self._name("pair")]
        groups = {GANG_GROUPS: json.dumps([f"{NAMESPACE}/{name}" for name in names])}
        steps: list[Callable[[], None]] = []
        for name in names:
            members, cpu = self._dice.randint(1, 3), self._dice.choice((250, 500))
            minimum = self._dice.randint(1, members)
            steps.append(lambda n=name, least=minimum: self._apply_group(n, least, groups))
            for member in range(members):
                pod = f"{name}-{member}"
                steps.append(lambda n=name, p=pod, c=cpu: self._apply_pod(p, c, 0, n))
        self._dice.shuffle(steps)
        for step in steps:
            step()

    def add_annotated_gang(self) -> None:
        """A gang that has no PodGroup: its pods say how many they must be."""
        if not self._has_room():
            return
        name, members = self._name("words"), self._dice.randint(2, 4)
        words = {GANG_NAME: name, GANG_MIN_AVAILABLE: str(self._dice.randint(2, members))}
        cpu = self._dice.choice((250, 500))
        for member in range(members):
            self._apply_pod(f"{name}-{member}", cpu, annotations=words)

    def add_foreign_pod(self) -> None:
        """A pod that another scheduler has put on a node, whether there is room or not."""
        nodes = self._server.store.list(_NODE)
        if nodes and self._has_room():
            node = self._dice.choice(nodes)["metadata"]["name"]
            self._apply_pod(self._name("f"), 250, scheduler="other", node=node)

    def add_replicas(self) -> None:
        """A ReplicaSet: its evicted or finished pods come back under other names."""
        if not self._has_room():
            return
        name = self._name("r")
        template = {"metadata": {"labels": {"app": name}}, "spec": self._spec(500, 0, OURS, None)}
        spec = {"replicas": self._dice.randint(1, 3), "template": template}
        self._server.apply(
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "metadata": {"name": name},
                "spec": spec,
            }
        )

    def delete_pod(self) -> None:
        """A user deletes a pod."""
        pod = self._any_pod()
        if pod is not None:
            self._server.delete("Pod", NAMESPACE, pod["metadata"]["name"])

    def recreate_pod(self) -> None:
        """A framework deletes a pod and makes another of the same name."""
        pod = self._any_pod()
        if pod is None or pod["metadata"].get("ownerReferences"):
            return
        name, labels = pod["metadata"]["name"], pod["metadata"].get("labels") or {}
        spec = {key: value for key, value in pod["spec"].items() if key != "nodeName"}
        self._server.delete("Pod", NAMESPACE, name)
        again = pod_manifest(name, labels, {**spec, "schedulerName": OURS})
        said = pod["metadata"].get("annotations") or {}
        again["metadata"]["annotations"] = {key: said[key] for key in GANG_WORDS if key in said}
        self._server.apply(again)

    def finish_pod(self) -> None:
        """A running pod ends."""
        running = [pod for pod in self._pods() if pod["spec"].get("nodeName")]
        if running:
            name = self._dice.choice(running)["metadata"]["name"]
            self._server.set_phase(NAMESPACE, name, self._dice.choice(("Succeeded", "Failed")))

    def relabel_pod(self) -> None:
        """A label changes that nobody schedules by: a new version of the same pod."""
        pod = self._any_pod()
        if pod is not None:
            labels = {**(pod["metadata"].get("labels") or {}), "touched": str(self._next())}
            metadata = pod["metadata"]
            kept = {"labels": labels, "annotations": metadata.get("annotations") or {}}
            bare = {"name": metadata["name"], **kept}
            self._server.apply(
                {"apiVersion": "v1", "kind": "Pod", "metadata": bare, "spec": pod["spec"]}
            )

    def steal_pod(self) -> None:
        """Somebody else binds a pending pod of ours."""
        nodes = self._server.store.list(_NODE)
        pending = [pod for pod in self._pods() if not pod["spec"].get("nodeName")]
        if nodes and pending:
            metadata = self._dice.choice(pending)["metadata"]
            node = self._dice.choice(nodes)["metadata"]["name"]
            self._server.bind(NAMESPACE, metadata["name"], metadata["uid"], node, {})

    def evict_pod(self) -> None:
        """An administrator asks for an eviction."""
        pod = self._any_pod()
        if pod is not None:
            name = pod["metadata"]["name"]
            self._administrator.evict(NAMESPACE, name, self._next())

    def change_queue(self) -> None:
        """An administrator has nodes kept for the head of the queue, or no longer."""
        hold_us = self._dice.choice((0, 1_000_000, 4_000_000))
        percent = self._dice.choice((20, 50, 100))
        self._administrator.keep_nodes(hold_us, percent, self._next())

    def slow_down_eviction(self) -> None:
        """A pod that will stay terminating for a while when it is evicted."""
        pod = self._any_pod()
        if pod is not None:
            place = NAMESPACE, pod["metadata"]["name"]
            self._server.faults.slow_us[place] = self._server.chaos.between_us(0.5, 15.0)

    # Nodes, devices, groups

    def remove_node(self) -> None:
        """A node leaves; its pods stay, as the API server keeps them."""
        nodes = self._server.store.list(_NODE)
        if len(nodes) > 1:
            name = self._dice.choice(nodes)["metadata"]["name"]
            self._server.delete("Node", "", name)
            if self._server.store.get(_DEVICE, "", name) and self._dice.random() < 0.7:
                self._server.delete("Device", "", name)

    def return_node(self) -> None:
        """A node that left comes back under its name, maybe another machine."""
        missing = [name for name in self._node_names if not self._server.store.get(_NODE, "", name)]
        if missing:
            self._add_node(self._dice.choice(missing))

    def resize_node(self) -> None:
        """A node shrinks or grows under its pods."""
        node = self._any_node()
        if node is not None:
            cpu = self._dice.choice((1000, 2000, 4000, 6000))
            allocatable = {**node["status"]["allocatable"], "cpu": f"{cpu}m"}
            self._replace_node(node, {"spec": node.get("spec"), "allocatable": allocatable})

    def cordon_node(self) -> None:
        """A node is cordoned, or opened again."""
        node = self._any_node()
        if node is not None:
            cordoned = not (node.get("spec") or {}).get("unschedulable")
            allocatable = node["status"]["allocatable"]
            spec = {"unschedulable": cordoned}
            self._replace_node(node, {"spec": spec, "allocatable": allocatable})

    def change_health(self) -> None:
        """A GPU fails or recovers."""
        devices = self._server.store.list(_DEVICE)
        if devices:
            device = self._dice.choice(devices)
            entry = self._dice.choice(device["spec"]["devices"])
            healthy = not entry["health"]
            name = device["metadata"]["name"]
            self._server.set_health(name, "gpu", entry["minor"], healthy)

    def delete_group(self) -> None:
        """A PodGroup is deleted while its pods are there."""
        group = self._any_group()
        if group is not None:
            self._server.delete("PodGroup", NAMESPACE, group["metadata"]["name"])

    def remake_group(self) -> None:
        """A PodGroup is deleted, and made again under its name."""
        group = self._any_group()
        if group is not None:
            metadata, spec = group["metadata"], group["spec"]
            self._server.delete("PodGroup", NAMESPACE, metadata["name"])
            self._apply_group(
                metadata["name"],
                spec["minMember"],
                metadata.get("annotations"),
                wait_s=spec.get("scheduleTimeoutSeconds", 0),
            )

    def change_minimum(self) -> None:
        """A PodGroup wants more or fewer members than before."""
        group = self._any_group()
        if group is not None:
            metadata, minimum = group["metadata"], self._dice.randint(1, 5)
            self._apply_group(
                metadata["name"],
                minimum,
                metadata.get("annotations"),
                wait_s=group["spec"].get("scheduleTimeoutSeconds", 0),
            )

    def add_budget(self) -> None:
        """A PodDisruptionBudget over all pods, which holds evictions back."""
        spec = {"selector": {}, "minAvailable": self._dice.randint(1, 20)}
        metadata = {"name": self._name("budget"), "namespace": NAMESPACE}
        budget = {"apiVersion": "policy/v1", "kind": _BUDGET.name}
        self._server.apply({**budget, "metadata": metadata, "spec": spec})

    def remove_budget(self) -> None:
        """A PodDisruptionBudget is deleted."""
        budgets = self._server.store.list(_BUDGET)
        if budgets:
            name = self._dice.choice(budgets)["metadata"]["name"]
            self._server.delete(_BUDGET.name, NAMESPACE, name)

    def garble(self) -> None:
        """Somebody writes what no producer would."""
        topic = self._dice.choice(("pods", "nodes", ADMIN))
        self._admin.append(topic, b"stranger", self._dice.choice((b"{", b"[]", b'{"version":9}')))

    def mend(self) -> None:
        """The end of all that users do: nodes are back and open, and nobody waits with what a loose gang holds."""
        for name in self._node_names:
            if self._server.store.get(_NODE, "", name) is None:
                self._add_node(name)
        for pod in self._pods():
            name = pod["metadata"]["name"]
            if name.startswith(LOOSE) and not pod["spec"].get("nodeName"):
                self._server.delete("Pod", NAMESPACE, name)
        self._server.collect()
        # While somebody waits, the head of the queue is looked at again and again: the world would never rest.
        self._administrator.keep_nodes(0, 100, self._next())

    # Inside

    def _add_node(self, name: str) -> None:
        gpus = self._dice.choice((0, 2, 3))
        cpu = self._dice.choice((2000, 4000, 6000))
        allocatable = {
            "cpu": f"{cpu}m",
            "memory": "16Gi",
            "pods": str(self._dice.choice((3, 8, 20))),
        }
        if gpus:
            allocatable["nvidia.com/gpu"] = str(gpus)
        steps: list[Callable[[], None]] = [lambda: self._apply_node(name, {}, allocatable)]
        if gpus and self._dice.random() < 0.7:
            steps.append(lambda: self._server.apply(device_manifest(name, gpus)))
        self._dice.shuffle(steps)
        for step in steps:
            step()

    def _replace_node(self, node: Raw, fields: Json) -> None:
        self._apply_node(node["metadata"]["name"], fields["spec"] or {}, fields["allocatable"])

    def _apply_node(self, name: str, spec: Json, allocatable: Json) -> None:
        status = {"allocatable": allocatable}
        metadata = {"name": name}
        self._server.apply(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": metadata,
                "spec": spec,
                "status": status,
            }
        )

    def _apply_group(
        self,
        name: str,
        minimum: int,
        annotations: dict[str, str] | None = None,
        *,
        wait_s: int = 0,
    ) -> None:
        """`wait_s`: its wait time, and it is NonStrict then."""
        self._server.apply(group_manifest(name, minimum, annotations or {}, wait_s))

    def _apply_pod(
        self,
        name: str,
        cpu: int,
        gpus: int = 0,
        group: str = "",
        *,
        scheduler: str = OURS,
        node: str | None = None,
        annotations: dict[str, str] | None = None,
        priority: int | None = None,
    ) -> None:
        labels = {GROUP_LABEL: group} if group else {}
        spec = self._spec(cpu, gpus, scheduler, node)
        pod = pod_manifest(
            name, labels, spec if priority is None else {**spec, "priority": priority}
        )
        pod["metadata"]["annotations"] = annotations or {}
        self._server.apply(pod)

    def _spec(self, cpu: int, gpus: int, scheduler: str, node: str | None) -> Json:
        requests = {"cpu": f"{cpu}m", "memory": "512Mi" if cpu < 1000 else "2Gi"}
        if gpus:
            requests["nvidia.com/gpu"] = str(gpus)
        spec: Json = {
            "schedulerName": scheduler,
            "priority": self._dice.choice((0, 0, 10, 100)),
            "containers": [{"name": "main", "resources": {"requests": requests}}],
        }
        return {**spec, "nodeName": node} if node else spec

    def _pods(self) -> list[Raw]:
        return self._server.store.list(POD)

    def _has_room(self) -> bool:
        return len(self._pods()) < PODS_MAX

    def _any_pod(self) -> Raw | None:
        pods = self._pods()
        return self._dice.choice(pods) if pods else None

    def _any_group(self) -> Raw | None:
        groups = self._server.store.list(_GROUP)
        return self._dice.choice(groups) if groups else None

    def _any_node(self) -> Raw | None:
        nodes = self._server.store.list(_NODE)
        return self._dice.choice(nodes) if nodes else None

    def _name(self, prefix: str) -> str:
        return f"{prefix}{self._next()}"

    def _next(self) -> int:
        self._serial += 1
        return self._serial
