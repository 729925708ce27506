"""What the journal says was seen: the core's twins of `schemas.observations`, decoded straight from the bytes.

`spec`, `labels` and `annotations` of a pod stay raw bytes: equal bytes mean an equal thing, so the core parses each
distinct one once. A test holds that these types accept what the wire's models accept.
"""

from typing import Any

from msgspec import Raw, Struct

EMPTY = Raw(b"{}")


class Taint(Struct, frozen=True, omit_defaults=True):
    """One taint."""

    effect: str
    key: str
    value: str = ""


class Allocation(Struct, frozen=True):
    """What a pod holds of one device."""

    minor: int
    resources: dict[str, int]
    type: str


class PodSeen(Struct, frozen=True, tag="PodObserved", tag_field="kind"):
    uid: str
    rv: int
    namespace: str
    name: str
    created_us: int
    spec: Raw
    labels: Raw = EMPTY
    annotations: Raw = EMPTY
    node: str | None = None
    phase: str = "Pending"
    gates: tuple[str, ...] = ()
    deleted_us: int | None = None
    allocations: tuple[Allocation, ...] = ()
    command_id: str | None = None
    owner: str | None = None
    epoch: str | None = None


class NodeSeen(Struct, frozen=True, tag="NodeObserved", tag_field="kind"):
    uid: str
    rv: int
    name: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    epoch: str | None = None


class PodGroupSeen(Struct, frozen=True, tag="PodGroupObserved", tag_field="kind"):
    uid: str
    rv: int
    group: str
    namespace: str
    name: str
    created_us: int
    min_member: int
    schedule_timeout_us: int | None = None
    min_resources: dict[str, int] | None = None
    annotations: dict[str, str] = {}
    epoch: str | None = None


class QuotaSeen(Struct, frozen=True, tag="QuotaObserved", tag_field="kind"):
    uid: str
    rv: int
    group: str
    namespace: str
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    epoch: str | None = None


class DeviceEntry(Struct, frozen=True, omit_defaults=True):
    """One device of a node."""

    minor: int
    type: str
    healthy: bool = True
    id: str = ""
    labels: dict[str, str] = {}
    resources: dict[str, int] = {}
    topology: dict[str, str | int] = {}


class DeviceSeen(Struct, frozen=True, tag="DeviceObserved", tag_field="kind"):
    uid: str
    rv: int
    name: str
    source: str = "object"
    boot_id: str = ""
    devices: tuple[DeviceEntry, ...] = ()
    epoch: str | None = None


class NamespaceSeen(Struct, frozen=True, tag="NamespaceObserved", tag_field="kind"):
    uid: str
    rv: int
    name: str
    labels: dict[str, str] = {}
    epoch: str | None = None


class PriorityClassSeen(Struct, frozen=True, tag="PriorityClassObserved", tag_field="kind"):
    uid: str
    rv: int
    name: str
    value: int
    global_default: bool = False
    preemption_policy: str = "PreemptLowerPriority"
    epoch: str | None = None


class GoneSeen(Struct, frozen=True, tag="ObjectGone", tag_field="kind"):
    resource: str
    uid: str
    rv: int
    name: str
    namespace: str = ""


class SyncStarted(Struct, frozen=True, tag_field="kind"):
    resource: str
    producer: str
    epoch: str
    list_rv: int
    cold: bool


class StillThere(Struct, frozen=True, tag_field="kind"):
    resource: str
    epoch: str
    uid: str
    rv: int


class SyncFinished(Struct, frozen=True, tag_field="kind"):
    resource: str
    epoch: str
    list_rv: int


class KindAbsent(Struct, frozen=True, tag_field="kind"):
    resource: str
    producer: str


class FoundPod(Struct, frozen=True):
    """What the sink read after a conflict."""

    uid: str
    rv: int
    node: str | None = None
    phase: str = "Pending"
    deleted_us: int | None = None
    allocations: tuple[Allocation, ...] = ()
    command_id: str | None = None


class CommandEnded(Struct, frozen=True, tag_field="kind"):
    command_id: str
    outcome: str
    status: int = 0
    message: str = ""
    found: FoundPod | None = None


class PolicyChanged(Struct, frozen=True, tag_field="kind"):
    id: str
    spec: dict[str, Any]


class EvictRequested(Struct, frozen=True, tag_field="kind"):
    id: str
    namespace: str
    name: str
    reason: str
    uid: str = ""
    requester: str = ""


class ProbeRequested(Struct, frozen=True, tag_field="kind"):
    id: str


class MessageRejected(Struct, frozen=True, tag_field="kind"):
    topic: str
    offset: int
    reason: str
    detail: str


Seen = (
    PodSeen
    | NodeSeen
    | PodGroupSeen
    | QuotaSeen
    | DeviceSeen
    | NamespaceSeen
    | PriorityClassSeen
    | GoneSeen
    | SyncStarted
    | StillThere
    | SyncFinished
    | KindAbsent
    | CommandEnded
    | PolicyChanged
    | EvictRequested
    | ProbeRequested
    | MessageRejected
)


class RecordBody(Struct, frozen=True):
    """The fields of a journal record's bytes."""

    sequence: int
    prev: str
    timestamp_us: int
    observations: tuple[Seen, ...] = ()
    positions: dict[str, int] = {}
    version: int = 1


class Record(Struct, frozen=True):
    """One accepted journal record: its fields, its bytes (they enter the digest) and their hash."""

    sequence: int
    timestamp_us: int
    observations: tuple[Seen, ...]
    positions: dict[str, int]
    data: bytes
    hash: str
