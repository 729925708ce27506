"""Journal record, decision and checkpoint manifest: what stands on the topics that Lockstep itself writes."""

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from schemas.observations import Amounts, Observation, Observed

#: Upper limits of one journal record (design: at most 500 observations and 256 KiB).
RECORD_OBSERVATIONS_MAX = 500
RECORD_BYTES_MAX = 256 * 1024
#: A publisher packs at most so much into one intake message; a larger message is dead-lettered.
INTAKE_OBSERVATIONS_MAX = 100
INTAKE_BYTES_MAX = 128 * 1024
#: `prev` of record 1 and `previous_digest` of decision 1.
GENESIS_HASH = "0" * 64


class JournalRecord(Observed):
    """One journal entry. `prev` is the SHA-256 (hex) of the bytes of the record before it.

    `positions` holds, for each intake topic, the offset of the last message taken in so far (absent: none yet).
    A record without observations is a *tick*.
    """

    version: Literal[1] = 1
    sequence: PositiveInt
    prev: str
    timestamp_us: NonNegativeInt
    observations: tuple[Observation, ...] = ()
    positions: dict[str, NonNegativeInt] = {}


class BindPod(Observed):
    """Bind the pod `uid` to `node`. `annotations` go with the Binding."""

    kind: Literal["BindPod"] = "BindPod"
    id: str
    namespace: str
    name: str
    uid: str
    node: str
    annotations: dict[str, str] = {}


class EvictPod(Observed):
    """Evict the pod `uid` through the eviction subresource. `deadline_us`: when a budget's refusal becomes final."""

    kind: Literal["EvictPod"] = "EvictPod"
    id: str
    namespace: str
    name: str
    uid: str
    reason: str
    deadline_us: NonNegativeInt = 0


class PatchStatus(Observed):
    """Write a status. For a pod (`resource` pods): the condition `PodScheduled=False` with `reason` and `message`; for
    a PodGroup of Kubernetes the condition that says whether it was placed.

    Has no result. The last one of an object wins; `fields` is what is written, of any other object the whole status.
    """

    kind: Literal["PatchStatus"] = "PatchStatus"
    id: str
    resource: str
    namespace: str
    name: str
    uid: str
    fields: dict[str, Any]


class EmitEvent(Observed):
    """Make an Event about an object; its name is the command's id. Has no result, and is tried only by who acts now."""

    kind: Literal["EmitEvent"] = "EmitEvent"
    id: str
    resource: str
    namespace: str
    name: str
    uid: str
    reason: str
    message: str


Command = Annotated[BindPod | EvictPod | PatchStatus | EmitEvent, Field(discriminator="kind")]


class Change(Observed):
    """One row of State after the decision; `row` null means that the row is gone."""

    table: str
    key: str
    row: dict[str, Any] | None


class DiagnosisChanged(Observed):
    """Why the pod (or gang) `key` waits now; `code` null: it waits no longer."""

    key: str
    code: str | None
    message: str = ""
    details: dict[str, Any] = {}


class Request(Observed):
    """What a decision asks of, or answers to, whoever follows decisions.

    `ResyncRequested`: informers list `resource` anew, whole. `EvictionRejected`: the eviction asked for as `id` can't
    be, `message` says why. `ProbeFolded`: the probe `id` has been folded.
    """

    kind: Literal["ResyncRequested", "EvictionRejected", "ProbeFolded"]
    id: str = ""
    message: str = ""
    resource: str = ""


class DecisionRecord(Observed):
    """What the core decided on one journal record. Bytes are canonical, `digest` is appended last by the encoder.

    `digest` = SHA-256 over previous digest, record bytes, and these bytes without `digest`.
    """

    version: Literal[1] = 1
    sequence: PositiveInt
    record_hash: str
    previous_digest: str
    timestamp_us: NonNegativeInt
    changes: tuple[Change, ...] = ()
    commands: tuple[Command, ...] = ()
    withdrawn: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    diagnoses: tuple[DiagnosisChanged, ...] = ()
    requests: tuple[Request, ...] = ()
    next_deadline_us: NonNegativeInt = 0
    work_left: bool = False
    digest: str


class CheckpointManifest(Observed):
    """Chunk 0 of a checkpoint: what the state chunks are, and where to go on from.

    Usable only if `digest` equals that of the decision with `sequence`, and the chunks hash to `state_hash`.
    """

    version: Literal[1] = 1
    sequence: PositiveInt
    record_hash: str
    digest: str
    timestamp_us: NonNegativeInt
    state_hash: str
    state_bytes: NonNegativeInt
    chunks: PositiveInt
    journal_offset: NonNegativeInt
    decisions_offset: NonNegativeInt
    positions: dict[str, NonNegativeInt]
    open_commands: tuple[Command, ...] = ()
    #: Hash of the log's first record, for when retention has removed it; empty: written before it was kept here.
    log_id: str = ""


class PodRow(Observed):
    """Row of the table `pods` and item of the report of `simulate`."""

    namespace: str
    name: str
    uid: str
    phase: str
    node: str | None
    assumed_node: str | None
    nominated_node: str | None
    quota: str | None
    gang: str | None
    devices: tuple[dict[str, Any], ...]
    diagnosis: dict[str, Any] | None


class NodeRow(Observed):
    """Row of the table `nodes`."""

    name: str
    allocatable: Amounts
    used: Amounts
    reserved: Amounts = {}
    devices: tuple[dict[str, Any], ...]


class GpuRow(Observed):
    """Row of the table `gpus`: one GPU of one node."""

    node: str
    minor: int
    healthy: bool
    total: Amounts
    used: Amounts
    pods: tuple[str, ...]


class GangRow(Observed):
    """Row of the table `gangs`."""

    namespace: str
    name: str
    phase: str
    mode: str
    min_member: int
    members: int
    assumed: int
    bound: int
    group: tuple[str, ...] | None
    diagnosis: dict[str, Any] | None


class QuotaRow(Observed):
    """Row of the table `quotas`. Stored and shown; not enforced yet."""

    name: str
    namespace: str
    tree: str
    parent: str
    min: dict[str, int]
    max: dict[str, int]
    request: Amounts
    used: Amounts
    runtime: Amounts
