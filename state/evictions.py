"""Sends evictions, whoever asked for them, and remembers those that made room: for limits, and to see futile rounds.

Called by `state.cycle` for what administrators asked for, by `state.preemption` for victims.
"""

from collections.abc import Iterator
from typing import Final

from msgspec.structs import replace

from state.model.limits import FUTILE_WINDOW_US, MINUTE_US
from state.model.rows import Eviction, OpenCommand, Pod, Preempted
from state.model.state import State
from state.model.trial import Trial

_PREEMPT: Final = "preempt-"
_SEQUENCE_LENGTH: Final = len(_PREEMPT) + 21


def send_evictions(trial: Trial) -> None:
    """Sends the command of each eviction that an administrator asked for, once the pod has no other command open."""
    evictions: dict[str, Eviction] = trial.state.tables["evictions"]
    for key in sorted(evictions):
        if not evictions[key].command and not key.startswith(_PREEMPT):
            _send(trial, key, evictions[key])


def preempt(trial: Trial, victim: Pod, claimant: str, name: str) -> None:
    """Asks for the eviction of a victim that makes room for the unit `name`, whose first owner or pod is `claimant`."""
    key = f"{_PREEMPT}{trial.sequence:020d}-{victim.uid}"
    reason = f"PreemptionByScheduler: makes room for {name}"
    trial.put("evictions", key, Eviction(id=key, reason=reason, uid=victim.uid))
    note = Preempted(
        at_us=trial.now_us,
        claimant=claimant,
        namespace=victim.namespace,
        node=victim.node or victim.assumed,
        owner=f"{victim.namespace}/{victim.owner or victim.uid}",
    )
    trial.put("preempted", key, note)


def send_preemptions(trial: Trial) -> bool:
    """Sends what `preempt` asked for, once the pod has no other command open. A victim that nobody needs to leave any
    more stays: its claimant found other room meanwhile or is gone, or the bind of the victim itself came to nothing.
    What was sent by then is withdrawn. Whether there is one that stays for sure.
    """
    state, spared = trial.state, False
    evictions: dict[str, Eviction] = state.tables["evictions"]
    for key in sorted(evictions):
        eviction = evictions[key]
        if eviction.withdrawn or not key.startswith(_PREEMPT):
            continue
        pod = state.pods.get(eviction.uid)
        needed = pod is None or pod.deleted_us or _is_claimed(state, pod)
        if eviction.command:
            if not needed:
                trial.withdrawn.append(eviction.command)
                trial.put("evictions", key, replace(eviction, withdrawn=True))
        elif needed:
            _send(trial, key, eviction)
        else:
            trial.put("evictions", key, None)
            trial.put("preempted", key, None)
            spared = True
    return spared


def _is_claimed(state: State, victim: Pod) -> bool:
    """Whether room on the victim's node is kept for somebody more important."""
    priority = state.class_of(victim).priority
    there = state.pods_on.get(victim.node or victim.assumed, ())
    return any(
        state.pods[uid].nominated and state.class_of(state.pods[uid]).priority > priority
        for uid in there
    )


def forget_old(trial: Trial) -> None:
    """Forgets evictions that no limit and no count of futile rounds asks for any more."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    old = []
    for key in sorted(preempted):
        if preempted[key].at_us + FUTILE_WINDOW_US > trial.now_us:
            break
        old.append(key)
    for key in old:
        trial.put("preempted", key, None)


def forgotten_at(trial: Trial) -> int:
    """When the next one of them is forgotten; 0: there is none."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    return preempted[min(preempted)].at_us + FUTILE_WINDOW_US if preempted else 0


def last_minute(trial: Trial) -> Iterator[Preempted]:
    """The victims of the last minute, the newest first."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    for key in sorted(preempted, reverse=True):
        if preempted[key].at_us + MINUTE_US <= trial.now_us:
            return
        yield preempted[key]


def asked_before(trial: Trial) -> dict[str, None]:
    """Uids of the victims that are remembered. Who of them is not leaving was spared: its eviction was refused."""
    return {key[_SEQUENCE_LENGTH:]: None for key in trial.state.tables["preempted"]}


def count_rounds(trial: Trial) -> dict[tuple[str, str, str], int]:
    """How many victims are remembered, by claimant, owner and node."""
    counts: dict[tuple[str, str, str], int] = {}
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    for note in preempted.values():
        key = note.claimant, note.owner, note.node
        counts[key] = counts.get(key, 0) + 1
    return counts


def _send(trial: Trial, key: str, eviction: Eviction) -> None:
    state = trial.state
    pod = state.pods.get(eviction.uid)
    if pod is None or pod.deleted_us:  # nothing is left to ask for
        trial.put("evictions", key, None)
        return
    if pod.command:
        return
    assert state.policy is not None
    opened = OpenCommand(
        kind="EvictPod",
        name=pod.name,
        namespace=pod.namespace,
        uid=pod.uid,
        deadline_us=trial.now_us + state.policy.evictions.budgetDeadline,
        reason=eviction.reason,
    )
    command = trial.open(opened)
    trial.put("evictions", key, replace(eviction, command=command))
    trial.put("pods", pod.uid, replace(pod, command=command))
