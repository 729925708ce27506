"""What PodGroups show: after each cycle the status of those that changed, and an Event when what they lack is another.

What was last written is part of the PodGroup's row, so nothing is written twice, not even after a restart. A status
that somebody else overwrites is put right once for each change of our own, and by every list that finishes: there is
no fight. An Event is told once for each change of the diagnosis code. Must not decide what a phase is:
`state.rules.phase` does. Called by `state.machine` only.
"""

from typing import Any, Final

from msgspec.structs import replace

from state.model.diagnoses import Diagnosis
from state.model.limits import KUBERNETES
from state.model.policy import reads_kubernetes
from state.model.rows import Pod, PodGroup
from state.model.seen import GroupStatus
from state.model.state import State
from state.model.trial import Trial
from state.rules.condition import UNTOLD, condition
from state.rules.phase import KOORDINATOR, Group, Members, settled, timed_out

#: Statuses and Events of one decision: more of them are left to the next one, which is asked for at once.
STATUSES_MAX: Final = 1_000
_NEW: Final = GroupStatus()
#: The reason of the Event about a group that is left as it is (`state.rules.phase.timed_out`), and its message.
TIMEOUT: Final = "Timeout"
_LATE: Final = Diagnosis(
    code=TIMEOUT,
    message="scheduling began more than 48 hours after the group was made: its status is left as it is",
)


def write_statuses(trial: Trial) -> None:
    """Commands what this record changed, and goes on with a pass over all PodGroups if one is due.

    A pass begins when a list has finished (what it showed may differ from what we wrote), when the policy changed, or
    when more changed than one decision takes.
    """
    state = trial.state
    assert state.policy is not None
    new_policy = any(trial.moved("policy"))
    if not state.policy.gangs.writeStatus:
        if new_policy:
            _forget_all(trial)
        return
    if not state.synced():
        return  # members may be missing; a pass follows when the last list has finished
    touched = _touched(trial)
    listed = any(trial.moved("syncs"))
    if listed or new_policy or len(touched) > STATUSES_MAX:
        trial.listed = listed or (trial.listed and trial.statuses != "")
        _pass(trial, "")
        return
    for key in sorted(touched):
        _write(trial, key, listed=False)
    if trial.statuses:
        _pass(trial, trial.statuses)


def counted(state: State, key: str) -> Members:
    """The gang's members, by what the API server says of each uid."""
    pods = [state.pods[uid] for uid in state.members.get(key, ())]
    phases = [pod.phase for pod in pods]
    first = state.crews.first(key) if phases else None
    owner = first.owner.partition("/")[2] if first is not None else ""
    return Members(
        failed=phases.count("Failed"),
        occupied_by=f"{first.namespace}/{owner}" if first is not None and owner else "",
        ours=any(map(state.is_ours, pods)),
        pods=len(phases),
        running=phases.count("Running"),
        scheduled=state.crews.bound.get(key, 0),
        succeeded=phases.count("Succeeded"),
    )


def rule_of(group: PodGroup) -> Group:
    """What the rule asks of the PodGroup."""
    return Group(api_group=group.group, created_us=group.created_us, min_member=group.min_member)


def status_before(group: PodGroup) -> GroupStatus:
    """What the next status follows from: our last one, else what we found; that a group was placed is the last word."""
    if group.status is not None and group.status.condition == "True":
        return group.status
    return group.written or group.status or _NEW


def _touched(trial: Trial) -> dict[str, None]:
    """Gangs of which a PodGroup changed, or a member came, went, or changed in what a status or an Event says."""
    state = trial.state
    keys: dict[str, None] = {}
    for old, new in trial.moved("podgroups"):
        group = new or old
        keys[f"{group.namespace}/{group.name}"] = None
    for old, new in trial.moved("pods"):
        if old is None or new is None or _facts(old) != _facts(new):
            for pod in (old, new):
                if pod is not None and (key := state.gang_key(pod)) in state.groups_named:
                    keys[key] = None
    return keys


def _facts(pod: Pod) -> tuple[Any, ...]:
    told = (pod.diagnosis.code, pod.diagnosis.message) if pod.diagnosis is not None else None
    return pod.phase, bool(pod.node), told, pod.labels, pod.annotations, pod.scheduling_group


def _pass(trial: Trial, after: str) -> None:
    """Works out all statuses from the gang after `after` on, as many as one decision takes."""
    state, first = trial.state, len(trial.commands)
    trial.statuses = ""
    for key in sorted(state.groups_named):
        if key <= after:
            continue
        _write(trial, key, listed=trial.listed)
        if len(trial.commands) - first >= STATUSES_MAX:
            trial.statuses, trial.work_left = key, True
            return
    trial.listed = False


def _write(trial: Trial, key: str, *, listed: bool) -> None:
    """Works out what the gang's PodGroups show; `listed`: what stands in them has just been listed."""
    state = trial.state
    members = counted(state, key)
    diagnosis = _diagnosis(state, key)
    for uid in _newest(state, key):
        group = state.podgroups[uid]
        before = status_before(group)
        row, late = group, group.group != KUBERNETES and timed_out(rule_of(group), before)
        if not late or group.written is None:
            after = _status_after(group, before, members, diagnosis, trial.now_us)
            if after is not None:
                row, commanded = _next_row(group, after, listed=listed)
                if commanded:
                    _command(trial, row, after)
        row = _told(trial, row, _LATE if late else diagnosis)
        if row != group:
            trial.put("podgroups", uid, row)


def _status_after(
    group: PodGroup, before: GroupStatus, members: Members, diagnosis: Diagnosis | None, now_us: int
) -> GroupStatus | None:
    """By the rule of the PodGroup's API group. None: of one of Kubernetes nothing was ever said by us, nor is now."""
    if group.group != KUBERNETES:
        return settled(rule_of(group), before, members, now_us)
    placed = members.ours and members.scheduled >= max(group.min_member, 1)
    after = condition(before, diagnosis, placed=placed, now_us=now_us)
    return None if after is before and group.written is None else after


def _next_row(group: PodGroup, after: GroupStatus, *, listed: bool) -> tuple[PodGroup, bool]:
    """The PodGroup's row when `after` is to stand in its status, and whether that must be commanded."""
    there = after == (group.status or _NEW)
    if after != group.written:
        under_way = group.written is not None and not group.arrived
        arrived = there and not under_way
        return replace(group, arrived=arrived, mended=False, written=after), not arrived
    if there:
        return replace(group, arrived=True), False
    if listed:
        return replace(group, arrived=False), True
    if group.arrived and not group.mended:
        return replace(group, arrived=False, mended=True), True
    return group, False


def _command(trial: Trial, group: PodGroup, status: GroupStatus) -> None:
    """The whole status: whatever stands there is replaced by it. Of a PodGroup of Kubernetes its condition."""
    fields: dict[str, Any] = (
        _condition_fields(status) if group.group == KUBERNETES else _phase_fields(group, status)
    )
    trial.command(
        "PatchStatus",
        fields={name: fields[name] for name in sorted(fields)},
        name=group.name,
        namespace=group.namespace,
        resource=f"podgroups.{group.group}",
        uid=group.uid,
    )


def _condition_fields(status: GroupStatus) -> dict[str, Any]:
    return {
        "message": status.message,
        "reason": status.reason,
        "since_us": status.condition_us,
        "status": status.condition,
    }


def _phase_fields(group: PodGroup, status: GroupStatus) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "failed": status.failed,
        "phase": status.phase,
        "running": status.running,
        "succeeded": status.succeeded,
    }
    if status.occupied_by:
        fields["occupiedBy"] = status.occupied_by
    if group.group == KOORDINATOR:
        fields["scheduled"] = status.scheduled
    if status.schedule_start_us:
        fields["start_us"] = status.schedule_start_us
    return fields


def _diagnosis(state: State, key: str) -> Diagnosis | None:
    """Why the gang waits: the diagnosis of its first member that has one."""
    told = (uid for uid in state.members.get(key, ()) if state.pods[uid].diagnosis is not None)
    first = min(told, default=None)
    return None if first is None else state.pods[first].diagnosis


def _told(trial: Trial, group: PodGroup, diagnosis: Diagnosis | None) -> PodGroup:
    """Tells an Event about the group when its diagnosis has another code than was told last; a late one is the last."""
    if group.told == TIMEOUT or (diagnosis is not None and diagnosis.code in (*UNTOLD, group.told)):
        return group
    if diagnosis is None:
        return replace(group, told="")
    trial.command(
        "EmitEvent",
        message=diagnosis.message,
        name=group.name,
        namespace=group.namespace,
        reason=str(diagnosis.code),
        resource=f"podgroups.{group.group}",
        uid=group.uid,
    )
    return replace(group, told=str(diagnosis.code))


def _forget_all(trial: Trial) -> None:
    """Somebody else writes the statuses from now on: what we wrote says nothing any more."""
    trial.statuses = ""
    groups = trial.state.podgroups
    for uid in sorted(groups):
        row = replace(groups[uid], arrived=False, mended=False, told="", written=None)
        if row != groups[uid]:
            trial.put("podgroups", uid, row)


def _newest(state: State, key: str) -> list[str]:
    """The uids of the gang's PodGroups that get a status from us, one an API group: of two namesakes the newer."""
    found: dict[str, PodGroup] = {}
    for uid in state.groups_named.get(key, ()):
        group = state.podgroups[uid]
        if group.group == KUBERNETES and not reads_kubernetes(state.policy):
            continue
        known = found.get(group.group)
        if known is None or (known.rv, known.uid) < (group.rv, group.uid):
            found[group.group] = group
    return [found[name].uid for name in sorted(found)]
