"""What earlier evictions say about the next: whose was refused, and how often the owner of a victim put it back.

An eviction counts against its claimant until that is bound, or nobody waits any more for whom it was made. Called by
`state.preemption` for victims, by `state.cycle` to forget.
"""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from state.model.limits import FUTILE_WINDOW_US
from state.model.rounds import claimants_of
from state.model.rows import Pod, Preempted
from state.model.state import FINISHED, State
from state.model.trial import Trial

#: Keys of victims of one plan begin alike, up to the uid.
PREEMPT: Final = "preempt-"
SEQUENCE_LENGTH: Final = len(PREEMPT) + 21


class Claim(Struct, frozen=True):
    """Who needs room. `name`: for people; `claimant`: owner or uid, to count futile rounds by; `priority`: above it
    nobody is evicted; `gangs`: who starts together, empty for a single pod; `needy`: those for whose minimum; `own`:
    gangs of which nobody is evicted; `pod`: uid of a single pod.
    """

    name: str
    claimant: str
    priority: int
    gangs: tuple[str, ...] = ()
    needy: tuple[str, ...] = ()
    own: tuple[str, ...] = ()
    pod: str = ""


class Futility:
    """What is known when a plan is made. `why`: what has barred a victim."""

    def __init__(self, trial: Trial) -> None:
        state = trial.state
        assert state.policy is not None
        self.why = ""
        self._max = state.policy.evictions.futileMax
        self._asked = _asked_before(trial)
        self._rounds = _count_rounds(state)

    def bars(self, claim: Claim, pod: Pod) -> bool:
        """Whether its eviction was refused, or its owner's pods were evicted there for the claimant as often as policy
        allows.
        """
        if pod.uid in self._asked:
            self._say(f"the eviction of {pod.namespace}/{pod.name} was refused")
            return True
        return 0 < self._max <= self._rounds_of(claim, pod) and self._say_rounds(claim, pod)

    def exceeds(self, claim: Claim, leaving: Iterable[Pod]) -> bool:
        """Whether so many who leave would be more than policy allows. The first round may be of any size."""
        if not self._max or not self._rounds:
            return False
        more: dict[tuple[str, str], list[Pod]] = {}
        for pod in leaving:
            more.setdefault((owner_of(pod), pod.node or pod.assumed), []).append(pod)
        return any(
            rounds and rounds + len(pods) > self._max and self._say_rounds(claim, pods[0])
            for pods in more.values()
            for rounds in (self._rounds_of(claim, pods[0]),)
        )

    def _rounds_of(self, claim: Claim, pod: Pod) -> int:
        return self._rounds.get((claim.claimant, owner_of(pod), pod.node or pod.assumed), 0)

    def _say_rounds(self, claim: Claim, pod: Pod) -> bool:
        rounds, node = self._rounds_of(claim, pod), pod.node or pod.assumed
        self._say(f"{rounds} pods of {owner_of(pod)} left {node} for it, and were put back")
        return True

    def _say(self, why: str) -> None:
        self.why = self.why or why


def claimant_of(pod: Pod) -> str:
    """As who a single pod counts: a pod that its owner puts back goes on with its owner's count."""
    return f"{pod.namespace}/{pod.owner}" if pod.owner else pod.uid


def forget_old(trial: Trial) -> None:
    """Forgets evictions that no limit and no count asks for any more."""
    preempted: dict[str, Preempted] = trial.state.tables["preempted"]
    heirs: dict[str, str] | None = None
    for key in sorted(preempted):
        note = preempted[key]
        if note.at_us + FUTILE_WINDOW_US > trial.now_us:
            return
        if note.until_us > trial.now_us:
            continue
        heirs = _heirs(trial.state) if heirs is None else heirs
        heir = (
            _heir_of(trial.state, note, heirs)
            if _is_gone(trial.state, key[SEQUENCE_LENGTH:])
            else None
        )
        kept = None
        if heir is not None:
            until_us = trial.now_us + FUTILE_WINDOW_US
            kept = replace(note, for_pod=heir, until_us=until_us)
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
    kept: dict[tuple[str, ...], bool] = {}
    preempted: dict[str, Preempted] = state.tables["preempted"]
    for uid, note in ((key[SEQUENCE_LENGTH:], note) for key, note in preempted.items()):
        claimants = claimants_of(note)
        if claimants not in kept:
            kept[claimants] = not claimants or _is_kept(state, note)
        if not kept[claimants] and _is_gone(state, uid):
            key = note.claimant, note.owner, note.node
            counts[key] = counts.get(key, 0) + 1
    return counts


def _is_gone(state: State, victim: str) -> bool:
    """Whether the victim has left, or does; else its eviction was refused."""
    pod = state.pods.get(victim)
    return pod is None or state.is_leaving(pod)


def _is_kept(state: State, note: Preempted) -> bool:
    """Whether room is still kept for whom the victim left."""
    if note.for_pod:
        return note.for_pod in state.nominated
    return any(
        uid in state.nominated for gang in note.for_gangs for uid in state.members.get(gang, ())
    )


def _heirs(state: State) -> dict[str, str]:
    """As who waiting pods with an owner count -> uid of the first of them."""
    found: dict[str, str] = {}
    for uid in sorted(state.waiting):
        pod = state.pods[uid]
        if pod.owner:
            found.setdefault(claimant_of(pod), uid)
    return found


def _heir_of(state: State, note: Preempted, heirs: dict[str, str]) -> str | None:
    """Who waits for the room still: the uid of the pod, or of another of its owner; empty: its gangs; None: nobody."""
    if not note.for_pod:
        gangs = note.for_gangs
        waits = any(uid in state.waiting for gang in gangs for uid in state.members.get(gang, ()))
        return "" if waits else None
    pod = state.pods.get(note.for_pod)
    if pod is not None and not (pod.node or pod.deleted_us or pod.phase in FINISHED):
        return note.for_pod
    return heirs.get(note.claimant)


def owner_of(pod: Pod) -> str:
    """As what a victim counts: who puts it back, or it alone."""
    return f"{pod.namespace}/{pod.owner or pod.uid}"
