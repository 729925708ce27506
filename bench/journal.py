"""Journal records for benchmarks, as the sequencer would write them. Deterministic: the same arguments, the same bytes.

Shapes are those of the comparison suite (performance page, section 2): node 4 CPU, 32 Gi, 110 pods; pod 100m, 500 Mi.
"""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

from schemas.codec import encode
from schemas.policy import full_policy
from schemas.topics import RESOURCES

Json = dict[str, Any]
START_US: Final = 1_767_225_600_000_000
OBSERVATIONS_A_RECORD: Final = 100
RECORD_US: Final = 10_000
MIB: Final = 1 << 20


class Journal:
    """Appends records to a chain."""

    def __init__(self) -> None:
        self.sequence, self._prev = 0, "0" * 64
        self._positions: dict[str, int] = {}

    def record(self, topic: str, observations: list[Json]) -> bytes:
        """The bytes of the next record."""
        self.sequence += 1
        self._positions[topic] = self._positions.get(topic, -1) + 1
        data = encode(
            {
                "observations": observations,
                "positions": dict(self._positions),
                "prev": self._prev,
                "sequence": self.sequence,
                "timestamp_us": START_US + self.sequence * RECORD_US,
                "version": 1,
            }
        )
        self._prev = hashlib.sha256(data).hexdigest()
        return data

    def opening(self, nodes: int, **policy: Any) -> Iterator[bytes]:
        """Genesis with the default policy and these changes to it, a sync of every resource, and the nodes."""
        genesis = {"kind": "PolicyChanged", "id": "genesis", "spec": full_policy(policy)}
        yield self.record("admin", [genesis])
        for resource, topic in RESOURCES.items():
            yield self.record(
                topic, [{"kind": "KindAbsent", "resource": resource, "producer": "bench"}]
            )
        for batch in batches([node(number) for number in range(nodes)]):
            yield self.record("nodes", batch)


def batches(items: list[Json]) -> Iterator[list[Json]]:
    """Records' worth of observations."""
    for first in range(0, len(items), OBSERVATIONS_A_RECORD):
        yield items[first : first + OBSERVATIONS_A_RECORD]


def node(number: int, cpu: int = 4_000) -> Json:
    """A node of the comparison suite."""
    name = f"node-{number:06}"
    return {
        "kind": "NodeObserved",
        "uid": f"uid-{name}",
        "rv": 1,
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "allocatable": {"cpu": cpu, "memory": 32 * 1024 * MIB, "pods": 110},
    }


def pod(number: int, shape: int = 0, **fields: Any) -> Json:
    """A pending pod; each shape asks for a little more than the one before."""
    name = f"pod-{number:07}"
    requests = {"cpu": 100 + shape, "memory": (500 + shape) * MIB}
    return {
        "kind": "PodObserved",
        "uid": f"uid-{name}",
        "rv": 10 + number,
        "namespace": "bench",
        "name": name,
        "created_us": START_US,
        "labels": {"app": f"app-{shape}"},
        "spec": {"scheduler_name": "lockstep", "requests": requests},
        **fields,
    }


def podgroup(name: str, min_member: int) -> Json:
    """A PodGroup of Koordinator's API group."""
    return {
        "kind": "PodGroupObserved",
        "uid": f"uid-group-{name}",
        "rv": 1,
        "group": "scheduling.sigs.k8s.io",
        "namespace": "bench",
        "name": name,
        "created_us": START_US,
        "min_member": min_member,
    }


def member(name: str, gang: str, *, cpu: int, mib: int, priority: int = 0) -> Json:
    """A pending pod of the PodGroup `gang`; empty: of none."""
    spec = {"scheduler_name": "lockstep", "requests": {"cpu": cpu, "memory": mib * MIB}}
    return {
        "kind": "PodObserved",
        "uid": f"uid-{name}",
        "rv": 1,
        "namespace": "bench",
        "name": name,
        "created_us": START_US,
        "labels": {"pod-group.scheduling.sigs.k8s.io": gang} if gang else {},
        "spec": {**spec, "priority": priority} if priority else spec,
    }
