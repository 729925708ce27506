"""What earlier evictions say about the next: whose was refused, and how often the owner of a victim put it back.

An eviction counts against its claimant until that is bound, or nobody waits any more for whom it was made. Called by
`state.preemption` for victims, by `state.cycle` to forget.
"""

from msgspec.structs import replace

from state.model.limits import FUTILE_WINDOW_US
from state.model.rounds import claimants_of
from state.model.rows import Pod, Preempted
from state.model.state import FINISHED, State
from state.model.trial import Trial

#: Keys of victims of one plan begin alike, up to the uid.
PREEMPT = "preempt-"
SEQUENCE_LENGTH = len(PREEMPT) + 21


class Futility:
    """What is known when a plan is made. `why`: what has barred a victim."""

    def __init__(self, trial: Trial) -> None:
        state = trial.state
        assert state.policy is not None
        self.why = ""
        self._max = state.policy.evictions.futileMax
        self._asked = _asked_before(trial)
        self._rounds = _count_rounds(state)

    def bars(self, claimant: str, pod: Pod) -> bool:
        """Whether its eviction was refused, or its owner's pods were evicted there for the claimant as often as policy
        allows.
        """
        rounds = self._rounds_of(claimant, pod)
        if pod.uid in self._asked:
            self._say(f"the eviction of {pod.namespace}/{pod.name} was refused")
        elif 0 < self._max <= rounds:
            self._say_rounds(pod, rounds)
        else:
            return False
        return True

    def within(self, claimant: str, victims: list[Pod]) -> list[Pod]:
        """Of these possible victims on one node as many of each owner as policy allows still; where none of it was
        evicted there for the claimant yet, all.
        """
        if not self._max or not self._rounds:
            return victims
        left: dict[str, int] = {}
        found = []
        for pod in victims:
            owner, rounds = _owner_of(pod), self._rounds_of(claimant, pod)
            if rounds and not left.setdefault(owner, self._max - rounds):
                self._say_rounds(pod, rounds)
                continue
            if rounds:
                left[owner] -= 1
            found.append(pod)
        return found

    def _rounds_of(self, claimant: str, pod: Pod) -> int:
        return self._rounds.get((claimant, _owner_of(pod), pod.node or pod.assumed), 0)

    def _say_rounds(self, pod: Pod, rounds: int) -> None:
        node = pod.node or pod.assumed
        self._say(f"{rounds} pods of {_owner_of(pod)} left {node} for it, and were put back")

    def _say(self, why: str) -> None:
        self.why = self.why or why


def claimant_of(pod: Pod) -> str:
    """As who a single pod counts: a pod that its owner puts back goes on with its owner's count."""
    return f"{pod.namespace}/{pod.owner}" if pod.owner else pod.uid


def forget_old(trial: Trial) -> None:
    """Forgets evictions that no limit and no count asks for any more."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    for key in sorted(preempted):
        note = preempted[key]
        if note.at_us + FUTILE_WINDOW_US > trial.now_us:
            return
        if note.until_us > trial.now_us:
            continue
        heir = _heir_of(trial.state, note)
        kept = None
        if heir is not None:
            kept = replace(note, pod=heir, until_us=trial.now_us + FUTILE_WINDOW_US)
        trial.put("preempted", key, kept)


def asked_again_at(trial: Trial) -> int:
    """When the next victim whose eviction was refused may be asked for again; 0: there is none."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    ends = (note.at_us + FUTILE_WINDOW_US for note in preempted.values())
    return min((end_us for end_us in ends if end_us > trial.now_us), default=0)


def _asked_before(trial: Trial) -> dict[str, None]:
    """Uids of the victims of the last hour. Who of them is not leaving was spared: its eviction was refused."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    since_us = trial.now_us - FUTILE_WINDOW_US
    return {key[SEQUENCE_LENGTH:]: None for key in preempted if preempted[key].at_us > since_us}


def _count_rounds(state: State) -> dict[tuple[str, str, str], int]:
    """How many victims left in vain, by claimant, owner and node: whom room is kept for still may come in."""
    counts: dict[tuple[str, str, str], int] = {}
    kept: dict[str, bool] = {}
    preempted: dict[str, Preempted] = state.tables["preempted"]
    for note in preempted.values():
        claim = note.pod or note.claimant
        if claim not in kept:
            kept[claim] = _is_kept(state, note)
        if note.claimant and not kept[claim]:
            key = note.claimant, note.owner, note.node
            counts[key] = counts.get(key, 0) + 1
    return counts


def _is_kept(state: State, note: Preempted) -> bool:
    """Whether room is still kept for whom the victim left."""
    if note.pod:
        return note.pod in state.nominated
    gangs = claimants_of(note)
    return any(uid in state.nominated for gang in gangs for uid in state.members.get(gang, ()))


def _heir_of(state: State, note: Preempted) -> str | None:
    """Who waits for the room still: the uid of the pod, or of another of its owner; empty: its gangs; None: nobody."""
    if not note.pod:
        gangs = claimants_of(note)
        waits = any(uid in state.waiting for gang in gangs for uid in state.members.get(gang, ()))
        return "" if waits else None
    pod = state.pods.get(note.pod)
    if pod is not None and not (pod.node or pod.deleted_us or pod.phase in FINISHED):
        return note.pod
    if note.claimant == note.pod:
        return None
    pods = (state.pods[uid] for uid in state.waiting)
    return min((pod.uid for pod in pods if claimant_of(pod) == note.claimant), default=None)


def _owner_of(pod: Pod) -> str:
    return f"{pod.namespace}/{pod.owner or pod.uid}"
