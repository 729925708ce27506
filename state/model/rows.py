"""Rows of State: one frozen value a thing, replaced whole, never edited. Fields stand in the order of the alphabet.

A row holds what must survive a restart; whatever can be worked out from rows (sums, indexes, columns) is kept by
`state.model.state` and never written down. Values without cycles, so the garbage collector need not walk them
(`gc=False`): a restart with 50,000 pods takes half the time.
"""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from state.model.diagnoses import Diagnosis
from state.model.limits import NODES_MAX
from state.model.seen import EMPTY, Device, DeviceHeld, GroupStatus, LabelNeed, TaintSeen


class Pod(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A pod, until its uid is gone. `node` is the API server's word, `assumed` the open bind's.

    `held_until_us`: `assumed` has no bind yet, it is held so long for the rest of its gang. `nominated`: victims leave
    that node, and the pod keeps their room so long. `started_us` is 0 until the kubelet has taken the pod in.
    `told_at`: since that sequence the row holds what only a result told, and no observation has shown yet; 0: nothing.
    """

    allocations: tuple[DeviceHeld, ...] = ()
    annotations: Raw = EMPTY
    assumed: str = ""
    attempts: int = 0
    backoff_us: int = 0
    command: str = ""
    created_us: int
    deleted_us: int = 0
    diagnosis: Diagnosis | None = None
    gates: tuple[str, ...] = ()
    held_until_us: int = 0
    labels: Raw = EMPTY
    name: str
    namespace: str
    node: str = ""
    nominated: str = ""
    nominated_until_us: int = 0
    owner: str = ""
    parked: bool = False
    phase: str
    rv: int
    scheduling_group: str = ""
    spec: Raw
    started_us: int = 0
    told_at: int = 0
    uid: str


def same_words(one: Pod, other: Pod) -> bool:
    """Whether two rows of a pod say the same of its gang and its quota."""
    return (one.labels, one.annotations, one.scheduling_group) == (
        other.labels,
        other.annotations,
        other.scheduling_group,
    )


class Node(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A node. `ord` is its row in the columns; a freed one is given to the next node that joins."""

    allocatable: dict[str, int] = {}
    labels: dict[str, str] = {}
    name: str
    ord: Annotated[int, Meta(ge=0, lt=NODES_MAX)]
    rv: int
    taints: tuple[TaintSeen, ...] = ()
    uid: str
    unschedulable: bool = False


class PodGroup(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A PodGroup object of one API group. `disruption` `all`: its pods are preempted together or not at all.

    `status` is what stands in it, `written` what we last commanded. `arrived`: `written` has been seen in it since.
    `mended`: it was overwritten then, and has been commanded once more. `told`: reason of the last Event about it.
    """

    annotations: dict[str, str] = {}
    arrived: bool = False
    created_us: int
    disruption: str = "single"
    group: str
    mended: bool = False
    min_member: int
    min_resources: dict[str, int] | None = None
    name: str
    namespace: str
    rv: int
    schedule_timeout_us: int = 0
    status: GroupStatus | None = None
    told: str = ""
    uid: str
    unsupported: tuple[str, ...] = ()
    written: GroupStatus | None = None


class Workload(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A Workload of Kubernetes 1.35. `pod_groups`: minimum by name; 0: policy basic."""

    annotations: dict[str, str] = {}
    created_us: int
    name: str
    namespace: str
    pod_groups: dict[str, int] = {}
    rv: int
    uid: str


class Gang(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Our unit of all-or-nothing. `source` is the PodGroup's or Workload's uid, or `pods`, or empty: not initialised.

    `satisfied`: it has been placed once (match policy once-satisfied), so later members come alone. `match` and
    `wait_us`: its own, empty and 0: the policy's. `timeouts`: wait times that ran out in a row; it holds nothing until
    `rest_until_us`.
    """

    created_us: int
    groups: tuple[str, ...] = ()
    match: str = ""
    min_member: int = 0
    mode: str = "Strict"
    name: str
    namespace: str
    rest_until_us: int = 0
    satisfied: bool = False
    source: str = ""
    timeouts: int = 0
    wait_us: int = 0


class Quota(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An ElasticQuota, stored and shown."""

    annotations: dict[str, str] = {}
    group: str
    labels: dict[str, str] = {}
    max: dict[str, int] = {}
    min: dict[str, int] = {}
    name: str
    namespace: str
    rv: int
    uid: str


class Budget(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A PodDisruptionBudget. `selector`: empty selects every pod of the namespace, None none."""

    disruptions_allowed: int = 0
    name: str
    namespace: str
    rv: int
    selector: tuple[LabelNeed, ...] | None = None
    uid: str


class Devices(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The devices of a node as one source reports them; the agent wins over the object."""

    boot_id: str = ""
    devices: tuple[Device, ...] = ()
    name: str
    rv: int
    source: str
    uid: str


class Namespace(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A namespace."""

    labels: dict[str, str] = {}
    name: str
    rv: int
    uid: str


class PriorityClass(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A PriorityClass."""

    global_default: bool = False
    name: str
    preemption_policy: str = "PreemptLowerPriority"
    rv: int
    uid: str
    value: int


class Tombstone(Struct, frozen=True, gc=False, omit_defaults=True):
    """A uid that is gone: late news of it is dropped until a list newer than `rv` has finished.

    `told`: only a result says so, and `rv` is the version that the object had; its deletion has a later one.
    """

    resource: str
    rv: int
    told: bool = False


class Sync(Struct, frozen=True, gc=False, omit_defaults=True):
    """Whether a resource has been listed. `list_rv`: newest finished list; `absent`: its CRD is missing.

    `doubted`: since that sequence what is known of it may be wrong, until a list that began later says all anew;
    `doubted_us`: the time then, or when the informers were last asked again for that list.
    `contradicted`: a list showed what the history that we know rules out, so the next whole list wins as a reset.
    `listed_at`: the sequence at which the latest of the finished lists began.
    `reset_at`: the sequence at which a reset was last finished.
    `unseen_at`: up to that sequence results told what no list could tell for or against; 0: nothing; since `unseen_us`.
    """

    absent: bool = False
    contradicted: bool = False
    doubted: int = 0
    doubted_us: int = 0
    epochs: tuple[str, ...] = ()
    list_rv: int = 0
    listed_at: int = 0
    reset_at: int = 0
    synced: bool = False
    unseen_at: int = 0
    unseen_us: int = 0


class OpenList(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A list under way. `reset`: history was reset (its version is below the highest known, or a list before it
    contradicted what was known), so its objects win.

    `asked_us`: since when everything waits for it, or when the informers were last asked to list; 0: nothing waits.
    `heard`: the last decision that its producer had read when it asked for the list; None: it reads none.
    """

    asked_us: int = 0
    cold: bool
    heard: int | None = None
    list_rv: int
    producer: str
    reset: bool = False
    resource: str
    sequence: int
    whole: bool = False

    @property
    def after(self) -> int:
        """The list shows all that was true when the decision of this sequence was made.

        It may come late, and results come by another way: its place in the journal says nothing, unless there is
        nothing else to go by.
        """
        return self.sequence - 1 if self.heard is None else self.heard


class Named(Struct, frozen=True, gc=False):
    """Uids that an open list named within one record; the key is `epoch#sequence`."""

    uids: tuple[str, ...]


class Eviction(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """An eviction asked for and not ended. `command` empty: it waits for the pod's open command to end. `withdrawn`:
    the sink was asked to leave it.
    """

    command: str = ""
    id: str
    reason: str
    uid: str
    withdrawn: bool = False


class Preempted(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A victim that made room. `claimant`: owner or uid of who claimed it, or the gangs; `for_pod`: uid of the pod,
    `for_gangs`: gangs for whose minimum, neither once they are bound; `owner`: the victim's, or its uid; `gang`: the
    victim's, if it leaves as a whole; `until_us`: when an old one is looked at again.
    """

    at_us: int
    claimant: str
    for_gangs: tuple[str, ...] = ()
    for_pod: str = ""
    gang: str = ""
    namespace: str
    node: str
    owner: str
    until_us: int = 0


class Head(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """The unit at the head of the queue that waits for room, since when, and the nodes that are kept for it.

    `name` and `uid` as in its place in the queue; at `next_us` it is looked at again.
    """

    created_us: int
    name: str
    negative_priority: int
    negative_sub_priority: int
    next_us: int
    nodes: tuple[str, ...] = ()
    since_us: int
    uid: str = ""


class OpenCommand(Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """A command without an end: what the sink must still do or find out."""

    annotations: dict[str, str] = {}
    deadline_us: int = 0
    kind: str
    name: str
    namespace: str
    node: str = ""
    reason: str = ""
    uid: str


class Position(Struct, frozen=True, gc=False):
    """The last message of an intake topic that has been taken in."""

    offset: int


class PolicyRow(Struct, frozen=True, gc=False):
    """The full policy in force, as journaled."""

    spec: dict[str, Any]


class Applied(Struct, frozen=True, gc=False):
    """A policy change or an eviction request that was taken: not again under the same id, while it is remembered."""

    sequence: int


class CycleRow(Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last cycle left over. `wake`: room came free, so parked pods must be tried, and so they are at
    `retry_us`: then limits of policy may allow more evictions.

    `statuses`: a pass over the statuses of all PodGroups is under way, and this gang (`ns/name`) was the last one;
    `listed`: it began because they had been listed.
    """

    listed: bool = False
    retry_us: int = 0
    statuses: str = ""
    wake: bool = False


Row = (
    Pod
    | Node
    | PodGroup
    | Workload
    | Gang
    | Quota
    | Budget
    | Devices
    | Namespace
    | PriorityClass
    | Tombstone
    | Sync
    | OpenList
    | Named
    | Eviction
    | Head
    | OpenCommand
    | Preempted
    | Position
    | PolicyRow
    | Applied
    | CycleRow
)

#: Table -> type of its rows, in the order in which changes are emitted and snapshots written.
TABLES: dict[str, type[Any]] = {
    "applied": Applied,
    "budgets": Budget,
    "commands": OpenCommand,
    "cycle": CycleRow,
    "devices": Devices,
    "evictions": Eviction,
    "gangs": Gang,
    "head": Head,
    "lists": OpenList,
    "named": Named,
    "namespaces": Namespace,
    "nodes": Node,
    "podgroups": PodGroup,
    "pods": Pod,
    "policy": PolicyRow,
    "positions": Position,
    "preempted": Preempted,
    "priorityclasses": PriorityClass,
    "quotas": Quota,
    "syncs": Sync,
    "tombstones": Tombstone,
    "workloads": Workload,
}
#: Table -> decoder of a row's canonical bytes; damage raises `msgspec.DecodeError`.
DECODERS: dict[str, msgspec.json.Decoder[Any]] = {
    name: msgspec.json.Decoder(row) for name, row in TABLES.items()
}
