"""What producers saw, past tense: one model a kind.

An observation carries identity (uid, rv), and only the fields that matter for scheduling, as integers in base
units: cpu in milli, memory in bytes, every other resource as it is; time in microseconds since 1970.
`epoch` is set on an observation that is part of a list (`SyncStarted` ... `SyncFinished` with the same epoch).
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt

VERSION = 1


class Observed(BaseModel):
    """Settings shared by all observations: immutable, no coercion, no unknown field."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


Amounts = dict[str, NonNegativeInt]


class Toleration(Observed):
    """One toleration. `key` empty with Exists tolerates everything; `effect` empty means all effects."""

    key: str = ""
    operator: Literal["Exists", "Equal", "Lt", "Gt"] = "Equal"
    value: str = ""
    effect: Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"] = ""


class Taint(Observed):
    """One taint of a node."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class SelectorRequirement(Observed):
    """One node selector requirement (matchExpressions or matchFields)."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Observed):
    """One term of required node affinity: requirements are ANDed, terms ORed; an empty term matches nothing."""

    expressions: tuple[SelectorRequirement, ...] = ()
    fields: tuple[SelectorRequirement, ...] = ()


class PodSpec(Observed):
    """The part of a pod that decides where it may go; equal bytes mean one *pod class*.

    `requests` is the effective request: containers, sidecars, init containers and overhead (KEP-753), without the
    pod itself (resource `pods`). `invalid` says why the request can never be met (then it is never placed).
    `unsupported` names fields of the pod that ask for something Lockstep does not decide yet; such a pod waits.
    """

    scheduler_name: str
    priority: int = 0
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    requests: Amounts
    invalid: str | None = None
    unsupported: tuple[str, ...] = ()
    node_selector: dict[str, str] = {}
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()


class Allocation(Observed):
    """What a pod holds of one device, as its device-allocated annotation says. Amounts under full resource names."""

    type: str
    minor: NonNegativeInt
    resources: Amounts


class PodObserved(Observed):
    """A pod, as the API server shows it.

    `annotations` holds only those of the dialects in `schemas.labels`, without the device allocation and the
    command id, which have fields of their own. `deleted_us` is the deletionTimestamp (the pod is terminating),
    `started_us` when the kubelet took the pod in (status.startTime): it is written once. `scheduling_group` names a
    PodGroup of Kubernetes itself (spec.schedulingGroup), or one of a Workload as `WORKLOAD/PODGROUP[/REPLICA]`
    (spec.workloadRef).
    """

    kind: Literal["PodObserved"] = "PodObserved"
    uid: str
    rv: NonNegativeInt
    namespace: str
    name: str
    created_us: NonNegativeInt
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    spec: PodSpec
    node: str | None = None
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    gates: tuple[str, ...] = ()
    started_us: int | None = None
    deleted_us: int | None = None
    allocations: tuple[Allocation, ...] = ()
    command_id: str | None = None
    owner: str | None = None
    scheduling_group: str | None = None
    epoch: str | None = None


class NodeObserved(Observed):
    """A node. `allocatable` in base units, with `pods`."""

    kind: Literal["NodeObserved"] = "NodeObserved"
    uid: str
    rv: NonNegativeInt
    name: str
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: Amounts
    epoch: str | None = None


class PodGroupStatus(Observed):
    """What stands in a PodGroup's status, whoever wrote it; `scheduled` is Koordinator's only.

    Only one of Kubernetes has `condition` (whether it was placed), `condition_us` (since when), `message`, `reason`.
    """

    phase: str = ""
    occupied_by: str = ""
    scheduled: NonNegativeInt = 0
    running: NonNegativeInt = 0
    succeeded: NonNegativeInt = 0
    failed: NonNegativeInt = 0
    schedule_start_us: NonNegativeInt = 0
    condition: Literal["", "True", "False", "Unknown"] = ""
    condition_us: NonNegativeInt = 0
    message: str = ""
    reason: str = ""


class PodGroupObserved(Observed):
    """A PodGroup of any API group (`group`). `status` null: it has none yet, or it is none of ours.

    `disruption` `all`: its pods are preempted together or not at all. `unsupported`: fields that no rule decides yet.
    """

    kind: Literal["PodGroupObserved"] = "PodGroupObserved"
    uid: str
    rv: NonNegativeInt
    group: str
    namespace: str
    name: str
    created_us: NonNegativeInt
    min_member: NonNegativeInt
    schedule_timeout_us: int | None = None
    min_resources: Amounts | None = None
    annotations: dict[str, str] = {}
    disruption: Literal["single", "all"] = "single"
    status: PodGroupStatus | None = None
    unsupported: tuple[str, ...] = ()
    epoch: str | None = None


class WorkloadObserved(Observed):
    """A Workload of Kubernetes 1.35. `pod_groups`: minimum by name; 0: policy basic, whose pods wait for nobody."""

    kind: Literal["WorkloadObserved"] = "WorkloadObserved"
    uid: str
    rv: NonNegativeInt
    namespace: str
    name: str
    created_us: NonNegativeInt
    pod_groups: dict[str, NonNegativeInt]
    annotations: dict[str, str] = {}
    epoch: str | None = None


class QuotaObserved(Observed):
    """An ElasticQuota of either API group. Amounts may be negative in a stored object: they are kept and shown."""

    kind: Literal["QuotaObserved"] = "QuotaObserved"
    uid: str
    rv: NonNegativeInt
    group: str
    namespace: str
    name: str
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    min: dict[str, int] = {}
    max: dict[str, int] = {}
    epoch: str | None = None


class LabelRequirement(Observed):
    """One requirement of a label selector; `matchLabels` are requirements, too (`In` with one value)."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class BudgetObserved(Observed):
    """A PodDisruptionBudget.

    `selector`: its requirements are ANDed; none selects every pod of the namespace, None selects no pod.
    `disruptions_allowed` is 0 while the status is older than the spec, as for the eviction API.
    """

    kind: Literal["BudgetObserved"] = "BudgetObserved"
    uid: str
    rv: NonNegativeInt
    namespace: str
    name: str
    selector: tuple[LabelRequirement, ...] | None = None
    disruptions_allowed: NonNegativeInt = 0
    epoch: str | None = None


class DeviceEntry(Observed):
    """One device of a node."""

    type: str
    minor: NonNegativeInt
    id: str = ""
    healthy: bool = True
    resources: Amounts = {}
    labels: dict[str, str] = {}
    topology: dict[str, str | int] = {}


class DeviceObserved(Observed):
    """The devices of the node called `name`.

    `source` is `object` for a Device object (`rv` orders it) and `agent` for the node's own agent, whose version is
    (`boot_id`, `rv` as counter); the agent wins over the object while it reports.
    """

    kind: Literal["DeviceObserved"] = "DeviceObserved"
    uid: str
    rv: NonNegativeInt
    name: str
    source: Literal["object", "agent"] = "object"
    boot_id: str = ""
    devices: tuple[DeviceEntry, ...] = ()
    epoch: str | None = None


class NamespaceObserved(Observed):
    """A namespace and its labels."""

    kind: Literal["NamespaceObserved"] = "NamespaceObserved"
    uid: str
    rv: NonNegativeInt
    name: str
    labels: dict[str, str] = {}
    epoch: str | None = None


class PriorityClassObserved(Observed):
    """A PriorityClass."""

    kind: Literal["PriorityClassObserved"] = "PriorityClassObserved"
    uid: str
    rv: NonNegativeInt
    name: str
    value: int
    global_default: bool = False
    preemption_policy: Literal["PreemptLowerPriority", "Never"] = "PreemptLowerPriority"
    epoch: str | None = None


class ObjectGone(Observed):
    """An object of `resource` (`plural.group`) was deleted; `rv` is the version of its deletion."""

    kind: Literal["ObjectGone"] = "ObjectGone"
    resource: str
    uid: str
    rv: NonNegativeInt
    namespace: str = ""
    name: str


class SyncStarted(Observed):
    """A producer lists `resource` anew at `list_rv`; `epoch` is unique. `cold`: it had no memory of the last list.

    `whole`: no object that can be read is only said to be still there. `heard`: sequence of the last decision that it
    had read when it asked for the list, so that the list shows at least what was applied by then; None: it reads none.
    """

    kind: Literal["SyncStarted"] = "SyncStarted"
    resource: str
    producer: str
    epoch: str
    list_rv: NonNegativeInt
    cold: bool
    whole: bool = False
    heard: NonNegativeInt | None = None


class StillThere(Observed):
    """An object of an open list whose projection this producer has published before, unchanged."""

    kind: Literal["StillThere"] = "StillThere"
    resource: str
    epoch: str
    uid: str
    rv: NonNegativeInt


class SyncFinished(Observed):
    """The list `epoch` is complete: what it did not name, and is not newer than `list_rv`, is gone."""

    kind: Literal["SyncFinished"] = "SyncFinished"
    resource: str
    epoch: str
    list_rv: NonNegativeInt


class KindAbsent(Observed):
    """The API server does not know `resource` (its CRD is missing)."""

    kind: Literal["KindAbsent"] = "KindAbsent"
    resource: str
    producer: str


class FoundPod(Observed):
    """What the sink found when it read the pod of a refused or uncertain bind."""

    uid: str
    rv: NonNegativeInt
    node: str | None = None
    phase: Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"] = "Pending"
    deleted_us: int | None = None
    allocations: tuple[Allocation, ...] = ()
    command_id: str | None = None


class CommandEnded(Observed):
    """The end of a `BindPod` or `EvictPod`. `status`: HTTP; `found`: what a read showed after a conflict.

    `uid`: the command's pod. A log that lost its end gives ids a second time: of another pod the result tells nothing.
    """

    kind: Literal["CommandEnded"] = "CommandEnded"
    command_id: str
    uid: str = ""
    outcome: Literal["Applied", "Stale", "Refused", "Withdrawn"]
    status: int = 0
    message: str = ""
    found: FoundPod | None = None


class PolicyChanged(Observed):
    """Replaces the named fields of the policy in force (`schemas.policy`). `id` is unique: applied once."""

    kind: Literal["PolicyChanged"] = "PolicyChanged"
    id: str
    spec: dict[str, Any]


class EvictRequested(Observed):
    """An administrator asks for the eviction of a pod. `uid` empty: whichever has that name now."""

    kind: Literal["EvictRequested"] = "EvictRequested"
    id: str
    namespace: str
    name: str
    uid: str = ""
    reason: str
    requester: str = ""


class ProbeRequested(Observed):
    """Asks the pipeline for a sign of life: the decision that folds it lists `id` under `requests`."""

    kind: Literal["ProbeRequested"] = "ProbeRequested"
    id: str


class MessageRejected(Observed):
    """The sequencer could not take the message at (`topic`, `offset`); it stands in its place in the journal."""

    kind: Literal["MessageRejected"] = "MessageRejected"
    topic: str
    offset: NonNegativeInt
    reason: str
    detail: str


Observation = Annotated[
    PodObserved
    | NodeObserved
    | PodGroupObserved
    | WorkloadObserved
    | QuotaObserved
    | BudgetObserved
    | DeviceObserved
    | NamespaceObserved
    | PriorityClassObserved
    | ObjectGone
    | SyncStarted
    | StillThere
    | SyncFinished
    | KindAbsent
    | CommandEnded
    | PolicyChanged
    | EvictRequested
    | ProbeRequested
    | MessageRejected,
    Field(discriminator="kind"),
]


class IntakeMessage(Observed):
    """One message of an intake topic: a burst of observations of one producer, in order.

    Positions count messages, so a message is taken whole into one journal record.
    """

    version: Literal[1] = 1
    producer: str
    observations: tuple[Observation, ...] = Field(min_length=1, max_length=100)
