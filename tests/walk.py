"""A random walk through a small cluster's life: what producers, sink and administrator may say, step by step.

One seed, one walk: the generator has a random source of its own, and chooses only from sorted things. It plays the
API server badly on purpose: news comes twice, late or in part, results before or after the pod's own update.
"""

import random
from typing import Any

from schemas.topics import RESOURCES
from state.model.decision import Decision
from state.model.state import place_of
from tests.builders import (
    GIB,
    START_US,
    Core,
    Json,
    absent,
    budget,
    cards,
    ended,
    gone,
    node,
    pod,
    podgroup,
    workload,
)

PODGROUPS = "podgroups.scheduling.sigs.k8s.io"
BUDGETS = "poddisruptionbudgets.policy"
NATIVE_PODGROUPS = "podgroups.scheduling.k8s.io"
WORKLOADS = "workloads.scheduling.k8s.io"
GANG_LABEL = "pod-group.scheduling.sigs.k8s.io"


class Walk:
    """Holds a Core, the truth of a cluster, and the commands that nobody has answered yet.

    `native`: gangs of Kubernetes itself, too, which policy reads now and then.
    """

    def __init__(self, seed: int, *, native: bool = False) -> None:
        self.random = random.Random(seed)
        self.native = native
        on = {"kubernetesWorkloads": True, "enablePreemption": True}
        gangs = {"gangs": on} if native else {}
        self.core = Core(cycle={"placementsMax": 4}, **gangs)
        self.rv, self.born = 10, 0
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}  # uid -> observation
        self.groups: dict[str, Json] = {}
        self.natives: dict[
            str, Json
        ] = {}  # PodGroups of Kubernetes by name, Workloads by `WORKLOAD/`
        self.budgets: dict[str, Json] = {}
        self.coming: list[tuple[list[Json], str]] = []  # the rest of lists that were begun
        self.epochs = 0
        self.said: list[Json] = []  # old news to be said again
        self.open: dict[str, Json] = {}  # command id -> what it is
        self.excused: dict[str, None] = {}  # nodes on which reality may exceed capacity

    def step(self) -> list[Decision]:
        """One more thing happens; the decisions on it."""
        moves = (
            (self.add_pod, 6),
            (self.add_gang, 4),
            (self.change_pod, 3),
            (self.end_pod, 8),
            (self.foreign_pod, 1),
            (self.change_node, 3),
            (self.lose_node, 1),
            (self.device, 1),
            (self.answer, 9),
            (self.old_news, 2),
            (self.evict, 2),
            (self.relist, 1),
            (self.regroup, 2),
            (self.budget, 1),
            (self.absent, 1),
            (self.policy, 1),
            (self.wait, 2),
        )
        names = [move for move, weight in moves for _ in range(weight)]
        if self.coming and self.random.random() < 0.5:
            observations, topic = self.coming.pop(0)
        else:
            observations, topic = self.random.choice(names)()
        return [self.take(observations, topic), *self.finish_work()]

    def take(self, observations: list[Json], topic: str) -> Decision:
        """Folds one record; notes the commands that came of it."""
        for item in observations:
            row = self.core.state.pods.get(item.get("uid", ""))
            known = "" if row is None or row.nominated else place_of(row)
            if item.get("node") and known != item["node"]:
                self.excused[item["node"]] = None  # bound by somebody else, or behind our back
        self.said.extend(item for item in observations if item["kind"].endswith("Observed"))
        del self.said[:-40]
        advance = self.random.choice((1_000, 1_000_000, 20_000_000))
        decision = self.core.see(*observations, topic=topic, advance_us=advance)
        for command in decision.commands:
            if command.kind in ("BindPod", "EvictPod"):
                self.open[command.id] = {
                    "kind": command.kind,
                    "uid": command.uid,
                    "node": command.node,
                }
        return decision

    def finish_work(self) -> list[Decision]:
        """Ticks until no work is left, or sometimes not yet."""
        decisions: list[Decision] = []
        while self.core.decisions[-1].work_left and self.random.random() < 0.8:
            decisions.append(self.take([], "admin"))
        return decisions

    # -- moves: each returns observations and their topic --------------------------------------------------

    def next_rv(self) -> int:
        self.rv += self.random.randint(1, 3)
        return self.rv

    def new_pod(self, **fields: Any) -> Json:
        self.born += 1
        spec: Json = {"priority": self.random.choice((0, 0, 0, 5))}
        spec["requests"] = {"cpu": self.random.choice((700, 700, 1_900)), "memory": GIB}
        if self.random.random() < 0.1:
            spec["requests"]["nvidia.com/gpu"] = self.random.randint(1, 2)
        if self.random.random() < 0.1:
            spec["node_selector"] = {"zone": self.random.choice("ab")}
        fields["spec"] = {**spec, **fields.get("spec", {})}
        created = START_US + self.born // 3
        made = pod(f"p{self.born}", rv=self.next_rv(), created_us=created, **fields)
        self.pods[made["uid"]] = made
        return made

    def add_pod(self) -> tuple[list[Json], str]:
        gates = ("wait",) if self.random.random() < 0.1 else ()
        return [self.new_pod(gates=gates) for _ in range(self.random.randint(1, 3))], "pods"

    def add_gang(self) -> tuple[list[Json], str]:
        if self.native and self.random.random() < 0.7:
            return self.add_native_gang(), "pods"
        name = f"g{self.random.randint(0, 5)}"
        count = self.random.randint(1, 4)
        labels = {GANG_LABEL: name}
        made = [self.new_pod(labels=labels) for _ in range(count)]
        if self.random.random() < 0.5:
            made.append(self.group(name))
        self.random.shuffle(made)
        return made, "pods"

    def add_native_gang(self) -> list[Json]:
        """Pods of a PodGroup of Kubernetes, or of a replica of a Workload, which may come before them or never."""
        replica = f"w{self.random.randint(0, 1)}/{self.random.choice('ab')}"
        group = f"g{self.random.randint(0, 2)}"
        name = self.random.choice((group, group, replica, f"{replica}/{self.random.randint(0, 1)}"))
        low = {"priority": self.random.choice((0, 0, -5))}  # somebody's victims
        count = self.random.randint(1, 3)
        made = [self.new_pod(scheduling_group=name, spec=low) for _ in range(count)]
        if self.random.random() < 0.7:
            made.append(self.declare(name))
        self.random.shuffle(made)
        return made

    def declare(self, gang: str) -> Json:
        """What declares that gang, new or changed."""
        name, slash, _ = gang.partition("/")
        minimum = self.random.randint(0, 2)
        if slash:
            made = workload(name, self.next_rv(), a=minimum, b=self.random.randint(0, 3))
        else:
            fields = {"group": "scheduling.k8s.io", "status": self.native_status()}
            fields["disruption"] = self.random.choice(("single", "all"))
            made = podgroup(name, minimum, self.next_rv(), **fields)
        old = self.natives.get(name + slash)
        made["uid"] = old["uid"] if old is not None else f"uid-native-{name}-{self.rv}"
        self.natives[name + slash] = made
        return made

    def native_status(self) -> Json | None:
        """None, or a condition that somebody wrote."""
        if self.random.random() < 0.7:
            return None
        said = self.random.choice(("True", "False", "Unknown"))
        return {"condition": said, "reason": "Somebody", "condition_us": START_US}

    def undeclare(self) -> list[Json]:
        """A PodGroup of Kubernetes or a Workload goes."""
        if not self.natives:
            return []
        key = self.random.choice(sorted(self.natives))
        uid = self.natives.pop(key)["uid"]
        resource = WORKLOADS if "/" in key else NATIVE_PODGROUPS
        return [gone(resource, key.rstrip("/"), rv=self.next_rv(), uid=uid)]

    def group(self, name: str) -> Json:
        fields: Json = {}
        if self.random.random() < 0.3:
            fields["annotations"] = {
                "gang.scheduling.koordinator.sh/groups": f'["default/g0","default/{name}"]'
            }
        made = podgroup(name, self.random.randint(0, 5), rv=self.next_rv(), **fields)
        made["uid"] = self.groups.get(name, {"uid": f"uid-{name}-{self.rv}"})["uid"]
        self.groups[name] = made
        return made

    def regroup(self) -> tuple[list[Json], str]:
        if self.native and self.random.random() < 0.5:
            again = [self.declare(self.random.choice(sorted(self.natives) or ["g0"]))]
            return (again if self.random.random() < 0.6 else self.undeclare()), "podgroups"
        name = f"g{self.random.randint(0, 5)}"
        if self.random.random() < 0.7 or name not in self.groups:
            return [self.group(name)], "podgroups"
        uid = self.groups.pop(name)["uid"]
        return [gone(PODGROUPS, name, rv=self.next_rv(), uid=uid)], "podgroups"

    def budget(self) -> tuple[list[Json], str]:
        """A PodDisruptionBudget comes, changes or goes."""
        name = f"b{self.random.randint(0, 2)}"
        old = self.budgets.get(name)
        if old is not None and self.random.random() < 0.3:
            del self.budgets[name]
            return [gone(BUDGETS, name, rv=self.next_rv(), uid=old["uid"])], "budgets"
        need = {"key": GANG_LABEL, "operator": "In", "values": ("g0", "g1")}
        selector = self.random.choice((None, (), (need,), ({"key": "x", "operator": "Exists"},)))
        made = budget(name, self.random.randint(0, 2), rv=self.next_rv(), selector=selector)
        made["uid"] = old["uid"] if old is not None else f"uid-{name}-{self.rv}"
        self.budgets[name] = made
        return [made], "budgets"

    def some_pod(self) -> Json | None:
        return self.pods[self.random.choice(sorted(self.pods))] if self.pods else None

    def change_pod(self) -> tuple[list[Json], str]:
        found = self.some_pod()
        if found is None:
            return [], "pods"
        changed = {**found, "rv": self.next_rv()}
        change = self.random.choice(("gates", "labels", "phase", "deleted", "resize"))
        if change == "gates":
            changed["gates"] = ()
        elif change == "labels":
            changed["labels"] = {**found.get("labels", {}), "x": str(self.rv)}
        elif change == "phase" and found.get("node"):
            changed["phase"] = self.random.choice(("Running", "Succeeded", "Failed"))
            changed.setdefault("started_us", START_US + self.rv)
        elif change == "deleted":
            changed["deleted_us"] = self.core.journal.now_us
        elif change == "resize" and found.get("node"):
            spec = changed["spec"]
            changed["spec"] = {**spec, "requests": {**spec["requests"], "cpu": 1_000}}
            self.excused[found["node"]] = None
        self.pods[found["uid"]] = changed
        return [changed], "pods"

    def end_pod(self) -> tuple[list[Json], str]:
        found = self.some_pod()
        if found is None:
            return [], "pods"
        if self.random.random() < 0.5:
            del self.pods[found["uid"]]
            return [gone("pods", found["name"], rv=self.next_rv())], "pods"
        phase = self.random.choice(("Succeeded", "Failed"))
        self.pods[found["uid"]] = {**found, "rv": self.next_rv(), "phase": phase}
        return [self.pods[found["uid"]]], "pods"

    def foreign_pod(self) -> tuple[list[Json], str]:
        name = f"n{self.random.randint(0, 5)}"
        return [self.new_pod(node=name, spec={"scheduler_name": "other"})], "pods"

    def change_node(self) -> tuple[list[Json], str]:
        name = f"n{self.random.randint(0, 3)}"
        old = self.nodes.get(name)
        fields: Json = {"labels": {"zone": self.random.choice("ab")}}
        if self.random.random() < 0.1:
            fields["taints"] = ({"key": "k", "effect": "NoSchedule"},)
        cpu, gpus = self.random.choice((3_000, 5_000, 9_000)), self.random.choice((0, 2, 4))
        made = node(name, cpu, rv=self.next_rv(), gpus=gpus, **fields)
        if old is None:
            made["uid"] = f"uid-{name}-{self.rv}"
        else:
            made["uid"] = old["uid"]
            self.excused[name] = None
        self.nodes[name] = made
        return [made], "nodes"

    def lose_node(self) -> tuple[list[Json], str]:
        if not self.nodes or self.random.random() < 0.5:
            return [], "nodes"
        name = self.random.choice(sorted(self.nodes))
        uid = self.nodes.pop(name)["uid"]
        self.excused[name] = None
        return [gone("nodes", name, rv=self.next_rv(), uid=uid)], "nodes"

    def device(self) -> tuple[list[Json], str]:
        name = f"n{self.random.randint(0, 5)}"
        unhealthy = tuple(minor for minor in range(4) if self.random.random() < 0.2)
        return [cards(name, 4, rv=self.next_rv(), unhealthy=unhealthy)], "devices"

    def answer(self) -> tuple[list[Json], str]:
        if not self.open:
            return [], "results"
        command_id = self.random.choice(sorted(self.open))
        command = self.open[command_id]
        if self.random.random() < 0.8:
            del self.open[command_id]  # else it is answered again some day
        found = self.pods.get(command["uid"])
        if found is None:
            return [ended(command_id, "Stale", status=404)], "results"
        outcome = self.random.choice(("Applied", "Applied", "Applied", "Refused", "Withdrawn"))
        said: list[Json] = [ended(command_id, outcome, status=403 if outcome == "Refused" else 0)]
        if outcome == "Applied" and command["kind"] == "BindPod" and not found.get("node"):
            bound = {**found, "rv": self.next_rv(), "node": command["node"], "phase": "Running"}
            self.pods[command["uid"]] = bound
            said = self.random.choice(([bound, *said], [*said, bound], [bound], said))
        return said, "results"

    def old_news(self) -> tuple[list[Json], str]:
        return ([self.random.choice(self.said)] if self.said else []), "pods"

    def evict(self) -> tuple[list[Json], str]:
        found = self.some_pod()
        if found is None:
            return [], "admin"
        request = {
            "kind": "EvictRequested",
            "id": f"evict-{self.rv}",
            "namespace": "default",
            "name": found["name"],
            "reason": "test",
        }
        return [request], "admin"

    def relist(self) -> tuple[list[Json], str]:
        """A resource is listed: in one record or in several, whole or in few words, or after a reset."""
        resource = self.random.choice(("pods", "pods", "nodes", PODGROUPS, BUDGETS))
        topic = RESOURCES[resource]
        known = {"pods": self.pods, "nodes": self.nodes, BUDGETS: self.budgets}
        objects = known.get(resource, self.groups)
        reset, cold = self.random.random() < 0.1, self.random.random() < 0.6
        rv = max(self.rv - 30, 0) if reset else self.next_rv()
        self.epochs += 1
        named = {"resource": resource, "epoch": f"epoch-{self.epochs}"}
        start = {"kind": "SyncStarted", "producer": "walk", "list_rv": rv, "cold": cold or reset}
        said: list[Json] = [{**named, **start}]
        for key in sorted(objects):
            found = objects[key]
            if start["cold"] or self.random.random() < 0.5:
                said.append({**found, "epoch": named["epoch"]})
            else:
                said.append({**named, "kind": "StillThere", "uid": found["uid"], "rv": found["rv"]})
        said.append({**named, "kind": "SyncFinished", "list_rv": rv})
        if self.random.random() < 0.5:
            return said, topic
        pieces = self.random.randint(1, 4)
        size = len(said) // pieces + 1
        self.coming += [(said[first : first + size], topic) for first in range(0, len(said), size)]
        return self.coming.pop(0)

    def absent(self) -> tuple[list[Json], str]:
        """The PodGroups' kind is gone, and all of them with it."""
        if self.random.random() < 0.8:
            return [], "podgroups"
        self.groups = {}
        return [absent(PODGROUPS)], "podgroups"

    def policy(self) -> tuple[list[Json], str]:
        change: Json = {"cycle": {"placementsMax": self.random.randint(1, 6)}}
        if self.native:
            change["gangs"] = {"kubernetesWorkloads": self.random.random() < 0.7}
        return [{"kind": "PolicyChanged", "id": f"policy-{self.rv}", "spec": change}], "admin"

    def wait(self) -> tuple[list[Json], str]:
        return [], "admin"
