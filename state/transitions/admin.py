"""An administrator changed the policy, asked for an eviction, or asked for a sign of life."""

from heapq import nsmallest
from typing import Any, cast

from state.model.decision import Answer
from state.model.gangs import refresh_gang, refresh_replicas
from state.model.limits import APPLIED_KEPT, KUBERNETES, KUBERNETES_GROUPS
from state.model.lists import ask_resync
from state.model.policy import merge, reads_kubernetes
from state.model.rows import Applied, Eviction, PolicyRow
from state.model.seen import EvictRequestSeen, PolicyChangeSeen, ProbeRequestSeen
from state.model.trial import Trial


def on_policy_changed(trial: Trial, seen: PolicyChangeSeen) -> None:
    """Replaces the named fields of the policy, once an id."""
    if not _first_time(trial, seen.id):
        return
    row = trial.state.tables["policy"].get("policy")
    base: dict[str, Any] = cast(PolicyRow, row).spec if row is not None else {}
    before = reads_kubernetes(trial.state.policy)
    trial.put("policy", "policy", PolicyRow(spec=merge(base, seen.spec)))
    trial.wake = True
    if reads_kubernetes(trial.state.policy) != before:
        _reread_kubernetes(trial)


def _reread_kubernetes(trial: Trial) -> None:
    """What Kubernetes itself declares counts from now on, or no longer; what was missed of it is listed again."""
    if reads_kubernetes(trial.state.policy):
        for resource in KUBERNETES_GROUPS:
            ask_resync(trial, resource)
    groups = trial.state.podgroups
    for uid in sorted(groups):
        if groups[uid].group == KUBERNETES:
            refresh_gang(trial, f"{groups[uid].namespace}/{groups[uid].name}")
    for workload in sorted(trial.state.replicas.of):
        refresh_replicas(trial, workload)


def on_evict_requested(trial: Trial, seen: EvictRequestSeen) -> None:
    """Notes the eviction; the cycle sends the command when the pod has no other one open."""
    if not _first_time(trial, seen.id):
        return
    state = trial.state
    uids = state.pods_named.get(f"{seen.namespace}/{seen.name}", {})
    found = sorted(uid for uid in uids if seen.uid in ("", uid))
    living = [uid for uid in found if not state.pods[uid].deleted_us]
    if not living:
        message = f"pod {seen.namespace}/{seen.name} is not there to evict"
        trial.requests.append(Answer(kind="EvictionRejected", id=seen.id, message=message))
        return
    newest = max(living, key=lambda uid: (state.pods[uid].created_us, uid))
    trial.put("evictions", seen.id, Eviction(id=seen.id, reason=seen.reason, uid=newest))


def on_probe_requested(trial: Trial, seen: ProbeRequestSeen) -> None:
    """Answers with the probe's id."""
    trial.requests.append(Answer(kind="ProbeFolded", id=seen.id))


def _first_time(trial: Trial, identity: str) -> bool:
    applied = cast(dict[str, Applied], trial.state.tables["applied"])
    if identity in applied:
        return False
    trial.put("applied", identity, Applied(sequence=trial.sequence))
    # By sequence and id, not by the order of the table: a State from a checkpoint has another one.
    surplus = len(applied) - APPLIED_KEPT
    for oldest in nsmallest(surplus, applied, key=lambda each: (applied[each].sequence, each)):
        trial.put("applied", oldest, None)
    return True
