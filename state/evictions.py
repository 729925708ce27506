"""Sends evictions, whoever asked for them, and remembers those that made room: for limits, and for `state.futility`.

Called by `state.cycle` for what administrators asked for, by `state.preemption` for victims.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from state.companions import leaves_whole
from state.futility import PREEMPT, SEQUENCE_LENGTH, Claim, owner_of
from state.model.limits import MINUTE_US
from state.model.rows import Eviction, OpenCommand, Pod, Preempted
from state.model.state import State, place_of
from state.model.trial import Trial
from state.room import Room, comes_free


def send_evictions(trial: Trial) -> None:
    """Sends the command of each eviction that an administrator asked for, once the pod has no other command open."""
    evictions: dict[str, Eviction] = trial.state.tables["evictions"]
    for key in sorted(evictions):
        if not evictions[key].command and not key.startswith(PREEMPT):
            _send(trial, key, evictions[key])


def preempt(trial: Trial, victim: Pod, claim: Claim) -> None:
    """Asks for the eviction of a victim that makes room for the claimant."""
    key = f"{PREEMPT}{trial.sequence:020d}-{victim.uid}"
    gang = trial.state.gang_key(victim)
    reason = f"PreemptionByScheduler: makes room for {claim.name}"
    trial.put("evictions", key, Eviction(id=key, reason=reason, uid=victim.uid))
    note = Preempted(
        at_us=trial.now_us,
        claimant=claim.claimant,
        for_gangs=claim.needy,
        for_pod=claim.pod,
        gang=gang if leaves_whole(trial.state, gang) else "",
        namespace=victim.namespace,
        node=victim.node or victim.assumed,
        owner=owner_of(victim),
    )
    trial.put("preempted", key, note)


def send_preemptions(trial: Trial) -> bool:
    """Sends what `preempt` asked for, once the pod has no other command open. A victim that nobody needs to leave any
    more stays: its claimant found other room meanwhile or is gone, others make enough room, or the bind of the victim
    itself came to nothing. What was sent by then is withdrawn. Whether there is one that stays for sure.
    """
    state, spared = trial.state, False
    evictions: dict[str, Eviction] = state.tables["evictions"]
    open_ones = [
        key for key in sorted(evictions) if key.startswith(PREEMPT) and not evictions[key].withdrawn
    ]
    needless = _needless(trial, {key: evictions[key].uid for key in open_ones})
    for key in open_ones:
        eviction = evictions[key]
        if eviction.command:
            if eviction.uid in needless:
                trial.withdrawn.append(eviction.command)
                trial.put("evictions", key, replace(eviction, withdrawn=True))
        elif eviction.uid not in needless:
            _send(trial, key, eviction)
        else:
            trial.put("evictions", key, None)
            trial.put("preempted", key, None)
            spared = True
    return spared


def _needless(trial: Trial, asked: dict[str, str]) -> dict[str, None]:
    """Who of these victims (eviction -> uid) may stay, for nobody more important needs their room, the most important
    first; of gangs that leave as a whole only all of them.
    """
    state = trial.state
    found: dict[str, None] = {}
    victims_on: dict[str, list[Pod]] = {}
    for uid in asked.values():
        pod = state.pods.get(uid)
        if pod is None or pod.deleted_us:
            continue
        if place_of(pod) and _is_claimed(state, pod):
            victims_on.setdefault(pod.node or pod.assumed, []).append(pod)
        else:
            found[uid] = None
    for name, victims in victims_on.items():
        for pod in _spared(trial, name, victims) if name in state.nodes else ():
            found[pod.uid] = None
    disrupted = _disrupted(trial, found)
    for key, uid in asked.items():
        if uid in found and place_of(state.pods[uid]) and _gang_of(trial, key) in disrupted:
            del found[uid]
    return found


def _disrupted(trial: Trial, spared: dict[str, None]) -> dict[tuple[str, str], None]:
    """Gangs that leave as a whole, by plan, of which somebody has left or can't be spared: the others must follow."""
    found: dict[tuple[str, str], None] = {}
    for key in trial.state.tables["preempted"]:
        gang, uid = _gang_of(trial, key), key[SEQUENCE_LENGTH:]
        if gang is not None and uid not in spared:
            pod = trial.state.pods.get(uid)
            if pod is None or trial.state.is_leaving(pod):
                found[gang] = None
    return found


def _gang_of(trial: Trial, key: str) -> tuple[str, str] | None:
    """The plan by which a victim leaves, and its gang, if that leaves as a whole; None: it leaves alone."""
    note: Preempted | None = trial.state.tables["preempted"].get(key)
    return (key[:SEQUENCE_LENGTH], note.gang) if note is not None and note.gang else None


def _spared(trial: Trial, name: str, victims: list[Pod]) -> list[Pod]:
    """Victims without whose leaving there is room enough for all that the node is kept for; who leaves in vain for so
    long that nobody counts on it is no help, and is asked on.
    """
    state = trial.state
    victims = [pod for pod in victims if comes_free(trial, pod)]
    there = [state.pods[uid] for uid in sorted(state.pods_on[name])]
    going = {pod.uid: None for pod in victims}
    others = [pod for pod in there if not pod.nominated and pod.uid not in going]
    leaving = [pod for pod in others if comes_free(trial, pod) and not _is_withdrawn(state, pod)]
    room = Room(state, name, leaving=leaving, displaced=[], victims=[])
    for pod in there:
        if pod.nominated:
            room.claim(pod)
    for pod in victims:
        room.take(pod)
    for pod in sorted(victims, key=lambda pod: (-state.class_of(pod).priority, *_age(pod))):
        room.spare(pod)
    return [pod for pod in victims if pod.uid not in room.taken]


def _is_withdrawn(state: State, pod: Pod) -> bool:
    """Whether it is to stay, though the eviction may have been carried out by then."""
    evictions: dict[str, Eviction] = state.tables["evictions"]
    asked = [evictions[key] for key in state.evicted.get(pod.uid, ())]
    return not pod.deleted_us and bool(asked) and all(each.withdrawn for each in asked)


def _age(pod: Pod) -> tuple[int, str]:
    return pod.started_us or pod.created_us, pod.uid


def _is_claimed(state: State, victim: Pod) -> bool:
    """Whether room on the victim's node is kept for somebody more important."""
    priority = state.class_of(victim).priority
    there = state.pods_on.get(victim.node or victim.assumed, ())
    return any(
        state.pods[uid].nominated and state.class_of(state.pods[uid]).priority > priority
        for uid in there
    )


def _last_minute(trial: Trial) -> Iterator[Preempted]:
    """The victims of the last minute, the newest first."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    for key in sorted(preempted, reverse=True):
        if preempted[key].at_us + MINUTE_US <= trial.now_us:
            return
        yield preempted[key]


def limited_until(trial: Trial, victims: list[Pod]) -> int | None:
    """When policy's limits may allow so many evictions; 0: never, None: now."""
    assert trial.state.policy is not None
    rules = trial.state.policy.evictions
    limits = {
        "": rules.perMinute,
        "node": rules.perNodePerMinute,
        "namespace": rules.perNamespacePerMinute,
    }
    if not victims or not any(limits.values()):
        return None
    counts: dict[tuple[str, str], int] = {}
    for victim in victims:
        node = victim.node or victim.assumed
        for key in (("", ""), ("node", node), ("namespace", victim.namespace)):
            counts[key] = counts.get(key, 0) + 1

    def is_over() -> bool:
        return any(limits[kind] and n > limits[kind] for (kind, _), n in counts.items())

    if is_over():
        return 0
    oldest_us = trial.now_us
    for note in _last_minute(trial):
        oldest_us = note.at_us
        for key in (("", ""), ("node", note.node), ("namespace", note.namespace)):
            if key in counts:
                counts[key] += 1
    return oldest_us + MINUTE_US if is_over() else None


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
