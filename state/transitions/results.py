"""A command ended: the sink, or what it found, says how. The first end of a command counts, later ones are dropped."""

from msgspec.structs import replace

from state.model.diagnoses import Code, Diagnosis
from state.model.facts import merge_facts, remove_pod, store_pod
from state.model.limits import BACKOFF_DOUBLINGS_MAX
from state.model.lists import ask_later, contradict
from state.model.rows import OpenCommand, Pod, Sync
from state.model.seen import CommandEndSeen
from state.model.trial import Trial


def on_command_ended(trial: Trial, seen: CommandEndSeen) -> None:
    """Ends the command; what the pod held by it is kept, or freed exactly once."""
    state = trial.state
    command = state.commands.get(seen.command_id)
    if command is None or (seen.uid and seen.uid != command.uid):
        return
    trial.put("commands", seen.command_id, None)
    trial.ended.append(seen.command_id)
    done = command.uid if command.kind == "EvictPod" and seen.outcome == "Applied" else ""
    for key in sorted(state.tables["evictions"]):
        eviction = state.tables["evictions"][key]
        if eviction.command == seen.command_id or eviction.uid == done:
            trial.put("evictions", key, None)
            if seen.outcome == "Withdrawn" and key in state.tables["preempted"]:
                trial.put("preempted", key, None)  # it made no room
    before_reset = _issued_at(seen.command_id) < state.syncs.get("pods", _NEVER).reset_at
    if before_reset and seen.outcome in ("Applied", "Stale"):
        contradict(trial, "pods")  # it may tell of the history that is gone
    pod = state.pods.get(command.uid)
    if pod is None:
        return
    if pod.command == seen.command_id:
        # Room may have come while it was no candidate, so it is looked at anew.
        store_pod(trial, pod, replace(pod, command="", parked=False))
        pod = state.pods[pod.uid]
    if seen.outcome == "Stale" and (seen.found is None or seen.found.uid != pod.uid):
        remove_pod(trial, pod, pod.rv, told=True)
        return
    if seen.found is not None and seen.found.uid == pod.uid:
        found = merge_facts(pod, seen.found)
        if found != pod:
            store_pod(trial, pod, replace(found, told_at=trial.sequence))
        pod = state.pods[pod.uid]
    if command.kind == "BindPod":
        _end_bind(trial, seen, command, pod)
    else:
        _end_eviction(trial, seen, pod)
    _await_sight(trial, seen, state.pods[pod.uid])


def _end_eviction(trial: Trial, seen: CommandEndSeen, pod: Pod) -> None:
    trial.wake = True  # who waits for its room must hear of it, above all if it stays
    if seen.outcome == "Applied" and not pod.deleted_us:
        # Its deletion has begun, whether an observation has shown it or not.
        store_pod(trial, pod, replace(pod, deleted_us=trial.now_us, told_at=trial.sequence))


def _end_bind(trial: Trial, seen: CommandEndSeen, command: OpenCommand, pod: Pod) -> None:
    if seen.outcome == "Applied":
        bound = replace(pod, assumed="", node=pod.node or command.node, diagnosis=None)
        store_pod(trial, pod, bound if pod.node else replace(bound, told_at=trial.sequence))
        return
    if pod.node:
        return  # bound after all: reality wins, there is nothing to give back
    freed = replace(pod, allocations=(), assumed="", parked=False)
    if seen.outcome == "Refused":
        freed = _backed_off(trial, seen, freed)
    store_pod(trial, pod, freed)


def _issued_at(command_id: str) -> int:
    """The sequence of the decision that gave the command."""
    return int(command_id.partition(".")[0])


def _await_sight(trial: Trial, seen: CommandEndSeen, pod: Pod) -> None:
    """Where a list began since the command was given, it is of a time before it was done, or after it was undone."""
    if pod.told_at == trial.sequence and _issued_at(seen.command_id) < _listed_at(trial):
        ask_later(trial)


def _listed_at(trial: Trial) -> int:
    """The sequence at which the latest list of pods began."""
    begun = [row.sequence for row in trial.state.lists.values() if row.resource == "pods"]
    return max([trial.state.syncs.get("pods", _NEVER).listed_at, *begun])


_NEVER = Sync()


def _backed_off(trial: Trial, seen: CommandEndSeen, pod: Pod) -> Pod:
    policy = trial.state.policy
    assert policy is not None
    doublings = min(pod.attempts, BACKOFF_DOUBLINGS_MAX)
    wait_us = min(policy.backoff.initial << doublings, policy.backoff.max)
    until_us = trial.now_us + wait_us
    diagnosis = Diagnosis(
        code=Code.BACKING_OFF,
        details={"attempts": pod.attempts + 1, "status": seen.status, "until_us": until_us},
        message=f"the API server refused the bind ({seen.status}): {seen.message}",
    )
    return replace(
        pod, attempts=pod.attempts + 1, backoff_us=until_us, diagnosis=diagnosis, parked=True
    )
