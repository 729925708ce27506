"""The machine: `decide` works out what one record changes, `apply` is the only writer of State.

`step` is both at once, without undoing and redoing: the decider's and the replay's way; a test holds that it equals
`decide` then `apply`. An exception in here stops the caller: a journal record is never skipped.
"""

from typing import Any

from state.cycle import Cycle
from state.digest import seal
from state.model.decision import Decision, DiagnosisChange, Head, Tail
from state.model.diagnoses import Code
from state.model.limits import LIST_PATIENCE_US
from state.model.rows import DECODERS, Position
from state.model.seen import (
    BudgetSeen,
    CommandEndSeen,
    DeviceSeen,
    EvictRequestSeen,
    GoneSeen,
    KindAbsentSeen,
    NamespaceSeen,
    NodeSeen,
    PodGroupSeen,
    PodSeen,
    PolicyChangeSeen,
    PriorityClassSeen,
    ProbeRequestSeen,
    QuotaSeen,
    Record,
    RejectionSeen,
    StillThereSeen,
    SyncFinishSeen,
    SyncStartSeen,
    WorkloadSeen,
)
from state.model.state import State
from state.model.trial import Trial
from state.statuses import write_statuses
from state.transitions import admin, objects, pods, results, sync

VERSION = 1

_TRANSITIONS: dict[type[Any], Any] = {
    BudgetSeen: objects.on_budget_seen,
    CommandEndSeen: results.on_command_ended,
    DeviceSeen: objects.on_device_seen,
    EvictRequestSeen: admin.on_evict_requested,
    GoneSeen: objects.on_gone_seen,
    KindAbsentSeen: sync.on_kind_absent,
    RejectionSeen: sync.on_message_rejected,
    NamespaceSeen: objects.on_namespace_seen,
    NodeSeen: objects.on_node_seen,
    PodGroupSeen: objects.on_podgroup_seen,
    PodSeen: pods.on_pod_seen,
    PolicyChangeSeen: admin.on_policy_changed,
    PriorityClassSeen: objects.on_priority_class_seen,
    ProbeRequestSeen: admin.on_probe_requested,
    QuotaSeen: objects.on_quota_seen,
    StillThereSeen: sync.on_still_there,
    SyncFinishSeen: sync.on_sync_finished,
    SyncStartSeen: sync.on_sync_started,
    WorkloadSeen: objects.on_workload_seen,
}
_NULL = b"null"


def decide(state: State, record: Record) -> Decision:
    """What follows from `record`. State is afterwards as it was before."""
    trial = _fold(state, record)
    decision = _seal(trial, record)
    trial.drop()
    return decision


def step(state: State, record: Record) -> Decision:
    """`decide`, then `apply` of its result, in one go."""
    trial = _fold(state, record)
    decision = _seal(trial, record)
    _move(state, decision)
    return decision


def apply(state: State, decision: Decision) -> None:
    """Writes the decision's rows. It must be the next one."""
    assert decision.sequence == state.sequence + 1, (
        f"decision {decision.sequence} after {state.sequence}"
    )
    assert decision.previous_digest == state.digest, (
        f"decision {decision.sequence} is of another chain"
    )
    for change in decision.changes:
        data = bytes(change.row)
        row = None if data == _NULL else DECODERS[change.table].decode(data)
        if change.table == "pods" and row is not None:
            row = state.intern_pod(row)
        state.put(change.table, change.key, row)
    _move(state, decision)


def _fold(state: State, record: Record) -> Trial:
    assert record.sequence == state.sequence + 1, f"record {record.sequence} after {state.sequence}"
    assert record.timestamp_us >= state.timestamp_us, f"record {record.sequence} goes back in time"
    trial = Trial(state, record.sequence, record.timestamp_us)
    for topic, offset in record.positions.items():
        trial.put("positions", topic, Position(offset=offset))
    for seen in record.observations:
        _TRANSITIONS[type(seen)](trial, seen)
    sync.ask_again(trial)
    if state.policy is not None:
        Cycle(trial).run()
        write_statuses(trial)
    trial.close()
    return trial


def _seal(trial: Trial, record: Record) -> Decision:
    state = trial.state
    changes, diagnosed = trial.changes()
    for uid, diagnosis in diagnosed:
        _patch_condition(trial, uid, diagnosis)
    diagnoses = tuple(diagnosis for _, diagnosis in diagnosed)
    head = Head(changes=changes, commands=tuple(trial.commands), diagnoses=diagnoses)
    tail = Tail(
        ended=tuple(trial.ended),
        next_deadline_us=_next_deadline(state, trial.now_us),
        previous_digest=state.digest,
        record_hash=record.hash,
        requests=tuple(trial.requests),
        sequence=record.sequence,
        timestamp_us=record.timestamp_us,
        version=VERSION,
        withdrawn=tuple(trial.withdrawn),
        work_left=trial.work_left,
    )
    digest, data = seal(state.digest, record.data, head, tail)
    return Decision(
        sequence=record.sequence,
        record_hash=record.hash,
        previous_digest=state.digest,
        timestamp_us=record.timestamp_us,
        changes=changes,
        commands=head.commands,
        withdrawn=tail.withdrawn,
        ended=tail.ended,
        diagnoses=diagnoses,
        requests=tail.requests,
        next_deadline_us=tail.next_deadline_us,
        work_left=trial.work_left,
        digest=digest,
        data=data,
    )


def _patch_condition(trial: Trial, uid: str, diagnosis: DiagnosisChange) -> None:
    """The pod condition `PodScheduled=False` for a diagnosis that the API server doesn't write itself."""
    if diagnosis.code in (None, Code.GATED, Code.SYNCING):
        return
    if uid not in trial.state.waiting and uid not in trial.state.holding:
        return
    pod = trial.state.pods[uid]
    trial.command(
        "PatchStatus",
        fields={
            "message": f"{diagnosis.code}: {diagnosis.message}",
            "reason": "Unschedulable",
            "since_us": trial.now_us,
            "status": "False",
            "type": "PodScheduled",
        },
        name=pod.name,
        namespace=pod.namespace,
        resource="pods",
        uid=uid,
    )


def _next_deadline(state: State, now_us: int) -> int:
    """The earliest moment at which something is due without any news; 0: none."""
    due = [state.pods[uid].backoff_us for uid in state.backing_off]
    due += [state.pods[uid].held_until_us for uid in state.holding]
    due += [state.pods[uid].nominated_until_us for uid in state.nominated]
    due += [state.gangs[key].rest_until_us for key in state.resting]
    head = state.head()
    due += [head.next_us] if head is not None else []
    due += [entry.asked_us + LIST_PATIENCE_US for entry in state.lists.values() if entry.asked_us]
    syncs = state.syncs.values()
    waits = [since_us for row in syncs for since_us in (row.doubted_us, row.unseen_us) if since_us]
    due += [since_us + LIST_PATIENCE_US for since_us in waits]
    due.append(state.cycle_row().retry_us)
    return min((moment for moment in due if moment > now_us), default=0)


def _move(state: State, decision: Decision) -> None:
    state.sequence = decision.sequence
    state.record_hash = decision.record_hash
    state.digest = decision.digest
    state.timestamp_us = decision.timestamp_us
