"""What the journal says was seen: the core's twins of `schemas.observations`, decoded straight from the bytes.

`spec`, `labels` and `annotations` of a pod stay raw bytes: equal bytes mean an equal thing, so the core parses each
distinct one once. A test holds that these types accept what the wire's models accept.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw, Struct

EMPTY = Raw(b"{}")

Natural = Annotated[int, Meta(ge=0)]
Phase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]
Preemption = Literal["PreemptLowerPriority", "Never"]


class TaintSeen(Struct, forbid_unknown_fields=True, frozen=True, gc=False, omit_defaults=True):
    """One taint."""

    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    key: str
    value: str = ""


class DeviceHeld(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """What a pod holds of one device."""

    minor: Natural
    resources: dict[str, Natural]
    type: str


class PodSeen(
    Struct, forbid_unknown_fields=True, frozen=True, gc=False, tag="PodObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    namespace: str
    name: str
    created_us: Natural
    spec: Raw
    labels: Raw = EMPTY
    annotations: Raw = EMPTY
    node: str | None = None
    phase: Phase = "Pending"
    gates: tuple[str, ...] = ()
    started_us: int | None = None
    deleted_us: int | None = None
    allocations: tuple[DeviceHeld, ...] = ()
    command_id: str | None = None
    owner: str | None = None
    scheduling_group: str | None = None
    epoch: str | None = None


class NodeSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="NodeObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    name: str
    allocatable: dict[str, Natural]
    labels: dict[str, str] = {}
    taints: tuple[TaintSeen, ...] = ()
    unschedulable: bool = False
    epoch: str | None = None


class GroupStatus(
    Struct, forbid_unknown_fields=True, frozen=True, gc=False, kw_only=True, omit_defaults=True
):
    """A PodGroup's status; times are in whole seconds. `scheduled` is Koordinator's only; `condition`, its time,
    `message` and `reason` are all that one of Kubernetes has.
    """

    condition: Literal["", "True", "False", "Unknown"] = ""
    condition_us: Natural = 0
    failed: Natural = 0
    message: str = ""
    occupied_by: str = ""
    phase: str = ""
    reason: str = ""
    running: Natural = 0
    schedule_start_us: Natural = 0
    scheduled: Natural = 0
    succeeded: Natural = 0


class PodGroupSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="PodGroupObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    group: str
    namespace: str
    name: str
    created_us: Natural
    min_member: Natural
    schedule_timeout_us: int | None = None
    min_resources: dict[str, Natural] | None = None
    annotations: dict[str, str] = {}
    disruption: Literal["single", "all"] = "single"
    status: GroupStatus | None = None
    unsupported: tuple[str, ...] = ()
    epoch: str | None = None


class WorkloadSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="WorkloadObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    namespace: str
    name: str
    created_us: Natural
    pod_groups: dict[str, Natural]
    annotations: dict[str, str] = {}
    epoch: str | None = None


class QuotaSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="QuotaObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    group: str
    namespace: str
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    epoch: str | None = None


class LabelNeed(
    Struct, forbid_unknown_fields=True, frozen=True, gc=False, kw_only=True, omit_defaults=True
):
    """One requirement of a label selector."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class BudgetSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="BudgetObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    namespace: str
    name: str
    selector: tuple[LabelNeed, ...] | None = None
    disruptions_allowed: Natural = 0
    epoch: str | None = None


class Device(
    Struct, forbid_unknown_fields=True, frozen=True, gc=False, kw_only=True, omit_defaults=True
):
    """One device of a node."""

    healthy: bool = True
    id: str = ""
    labels: dict[str, str] = {}
    minor: Natural
    resources: dict[str, Natural] = {}
    topology: dict[str, str | int] = {}
    type: str


class DeviceSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="DeviceObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    name: str
    source: Literal["object", "agent"] = "object"
    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    epoch: str | None = None


class NamespaceSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="NamespaceObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    name: str
    labels: dict[str, str] = {}
    epoch: str | None = None


class PriorityClassSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="PriorityClassObserved", tag_field="kind"
):
    uid: str
    rv: Natural
    name: str
    value: int
    global_default: bool = False
    preemption_policy: Preemption = "PreemptLowerPriority"
    epoch: str | None = None


class GoneSeen(
    Struct, forbid_unknown_fields=True, frozen=True, gc=False, tag="ObjectGone", tag_field="kind"
):
    resource: str
    uid: str
    rv: Natural
    name: str
    namespace: str = ""


class SyncStartSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="SyncStarted", tag_field="kind"
):
    resource: str
    producer: str
    epoch: str
    list_rv: Natural
    cold: bool
    whole: bool = False
    heard: Natural | None = None


class StillThereSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="StillThere", tag_field="kind"
):
    resource: str
    epoch: str
    uid: str
    rv: Natural


class SyncFinishSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="SyncFinished", tag_field="kind"
):
    resource: str
    epoch: str
    list_rv: Natural


class KindAbsentSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="KindAbsent", tag_field="kind"
):
    resource: str
    producer: str


class PodFound(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """What the sink read after a conflict."""

    uid: str
    rv: Natural
    node: str | None = None
    phase: Phase = "Pending"
    deleted_us: int | None = None
    allocations: tuple[DeviceHeld, ...] = ()
    command_id: str | None = None


class CommandEndSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="CommandEnded", tag_field="kind"
):
    command_id: str
    outcome: Literal["Applied", "Stale", "Refused", "Withdrawn"]
    uid: str = ""
    status: int = 0
    message: str = ""
    found: PodFound | None = None


class PolicyChangeSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="PolicyChanged", tag_field="kind"
):
    id: str
    spec: dict[str, Any]


class EvictRequestSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="EvictRequested", tag_field="kind"
):
    id: str
    namespace: str
    name: str
    reason: str
    uid: str = ""
    requester: str = ""


class ProbeRequestSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="ProbeRequested", tag_field="kind"
):
    id: str


class RejectionSeen(
    Struct, forbid_unknown_fields=True, frozen=True, tag="MessageRejected", tag_field="kind"
):
    topic: str
    offset: Natural
    reason: str
    detail: str


#: What says that an object is there.
ObjectSeen = (
    PodSeen
    | NodeSeen
    | PodGroupSeen
    | WorkloadSeen
    | QuotaSeen
    | BudgetSeen
    | DeviceSeen
    | NamespaceSeen
    | PriorityClassSeen
)
Seen = (
    ObjectSeen
    | GoneSeen
    | SyncStartSeen
    | StillThereSeen
    | SyncFinishSeen
    | KindAbsentSeen
    | CommandEndSeen
    | PolicyChangeSeen
    | EvictRequestSeen
    | ProbeRequestSeen
    | RejectionSeen
)


class RecordBody(Struct, forbid_unknown_fields=True, frozen=True, gc=False):
    """The fields of a journal record's bytes."""

    sequence: Annotated[int, Meta(ge=1)]
    prev: str
    timestamp_us: Natural
    observations: tuple[Seen, ...] = ()
    positions: dict[str, Natural] = {}
    version: Literal[1] = 1


class Record(Struct, frozen=True, gc=False):
    """One accepted journal record: its fields, its bytes (they enter the digest) and their hash."""

    sequence: int
    timestamp_us: int
    observations: tuple[Seen, ...]
    positions: dict[str, int]
    data: bytes
    hash: str
