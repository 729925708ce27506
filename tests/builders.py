"""Builders shared by the suites: journal records and observations in the wire's form, with few words."""

import hashlib
from typing import Any

from schemas.codec import encode
from schemas.policy import full_policy
from schemas.topics import RESOURCES
from state.machine import step
from state.model.decision import Decision
from state.model.seen import Record
from state.model.state import State
from streams.translate import to_record

GIB = 1 << 30
START_US = 1_767_225_600_000_000

Json = dict[str, Any]


class Journal:
    """Chains records as the sequencer does: dense sequences, `prev`, one intake message a record."""

    def __init__(self) -> None:
        self.sequence, self.prev, self.now_us = 0, "0" * 64, START_US
        self.positions: dict[str, int] = {}

    def record(self, *observations: Json, topic: str = "pods", advance_us: int = 1_000) -> Record:
        """The next record, decoded from its bytes."""
        self.sequence += 1
        self.now_us += advance_us
        if observations:
            self.positions[topic] = self.positions.get(topic, -1) + 1
        data = encode(
            {
                "observations": list(observations),
                "positions": dict(self.positions) if observations else {},
                "prev": self.prev,
                "sequence": self.sequence,
                "timestamp_us": self.now_us,
                "version": 1,
            }
        )
        self.prev = hashlib.sha256(data).hexdigest()
        return to_record(data)


class Core:
    """A State with its journal; every record and decision is kept."""

    def __init__(self, *, synced: bool = True, **policy: Any) -> None:
        self.state, self.journal = State(), Journal()
        self.records: list[Record] = []
        self.decisions: list[Decision] = []
        genesis = {"kind": "PolicyChanged", "id": "genesis", "spec": full_policy(policy)}
        self.see(genesis, topic="admin")
        if synced:
            self.see(*(absent(resource) for resource in RESOURCES), topic="admin")

    def see(self, *observations: Json, **options: Any) -> Decision:
        """Folds one record with these observations."""
        return self.take(self.journal.record(*observations, **options))

    def take(self, record: Record) -> Decision:
        """Folds one record."""
        decision = step(self.state, record)
        self.records.append(record)
        self.decisions.append(decision)
        return decision

    def binds(self) -> dict[str, str]:
        """Pod name -> node of every BindPod so far, the last one of each."""
        commands = [command for decision in self.decisions for command in decision.commands]
        return {command.name: command.node for command in commands if command.kind == "BindPod"}

    def pod(self, name: str) -> Any:
        """The row of the pod of that name in namespace default."""
        (uid,) = self.state.pods_named[f"default/{name}"]
        return self.state.pods[uid]

    def code(self, name: str) -> str | None:
        """The pod's diagnosis code."""
        diagnosis = self.pod(name).diagnosis
        return None if diagnosis is None else str(diagnosis.code)


def absent(resource: str) -> Json:
    """The resource counts as listed, and empty."""
    return {"kind": "KindAbsent", "resource": resource, "producer": "test"}


def node(name: str, cpu: int = 4_000, rv: int = 1, **fields: Any) -> Json:
    """A node with room; keyword arguments replace fields, `gpus` adds plain GPUs."""
    allocatable = {"cpu": cpu, "memory": 64 * GIB, "pods": 110}
    if "gpus" in fields:
        allocatable["nvidia.com/gpu"] = fields.pop("gpus")
    base = {
        "kind": "NodeObserved",
        "uid": f"uid-{name}",
        "rv": rv,
        "name": name,
        "allocatable": allocatable,
    }
    return {**base, **fields}


def pod(name: str, cpu: int = 100, rv: int = 1, **fields: Any) -> Json:
    """A pending pod of ours in namespace default; `spec` is merged into the default spec."""
    spec = {
        "scheduler_name": "lockstep",
        "requests": {"cpu": cpu, "memory": GIB},
        **fields.pop("spec", {}),
    }
    base = {
        "kind": "PodObserved",
        "uid": f"uid-{name}",
        "rv": rv,
        "namespace": "default",
        "name": name,
        "created_us": START_US,
        "spec": spec,
    }
    return {**base, **fields}


def member(name: str, gang: str, cpu: int = 100, **fields: Any) -> Json:
    """A pod of the PodGroup `gang`."""
    return pod(name, cpu, labels={"pod-group.scheduling.sigs.k8s.io": gang}, **fields)


def podgroup(name: str, min_member: int, rv: int = 1, **fields: Any) -> Json:
    """A PodGroup of Koordinator's API group."""
    base = {
        "kind": "PodGroupObserved",
        "uid": f"uid-group-{name}",
        "rv": rv,
        "group": "scheduling.sigs.k8s.io",
        "namespace": "default",
        "name": name,
        "created_us": START_US,
        "min_member": min_member,
    }
    return {**base, **fields}


def workload(name: str, rv: int = 1, **pod_groups: int) -> Json:
    """A Workload of Kubernetes 1.35: its pod groups with their minimums."""
    return {
        "kind": "WorkloadObserved",
        "uid": f"uid-workload-{name}",
        "rv": rv,
        "namespace": "default",
        "name": name,
        "created_us": START_US,
        "pod_groups": pod_groups,
    }


def budget(name: str, allowed: int, rv: int = 1, **fields: Any) -> Json:
    """A PodDisruptionBudget of every pod in namespace default; `selector` replaces that."""
    base = {
        "kind": "BudgetObserved",
        "uid": f"uid-budget-{name}",
        "rv": rv,
        "namespace": "default",
        "name": name,
        "selector": (),
        "disruptions_allowed": allowed,
    }
    return {**base, **fields}


def gone(resource: str, name: str, rv: int = 100, uid: str = "") -> Json:
    """An object was deleted."""
    return {
        "kind": "ObjectGone",
        "resource": resource,
        "uid": uid or f"uid-{name}",
        "rv": rv,
        "namespace": "default",
        "name": name,
    }


def ended(command_id: str, outcome: str = "Applied", **fields: Any) -> Json:
    """The end of a command."""
    return {"kind": "CommandEnded", "command_id": command_id, "outcome": outcome, **fields}


def cards(name: str, count: int, rv: int = 1, unhealthy: tuple[int, ...] = ()) -> Json:
    """A Device object with `count` GPUs of 80 GiB."""
    resources = {
        "koordinator.sh/gpu-core": 100,
        "koordinator.sh/gpu-memory": 80 * GIB,
        "koordinator.sh/gpu-memory-ratio": 100,
    }
    devices = [
        {
            "type": "gpu",
            "minor": minor,
            "id": f"GPU-{minor}",
            "healthy": minor not in unhealthy,
            "resources": resources,
        }
        for minor in range(count)
    ]
    return {
        "kind": "DeviceObserved",
        "uid": f"uid-device-{name}",
        "rv": rv,
        "name": name,
        "devices": devices,
    }
