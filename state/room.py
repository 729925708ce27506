"""A node as it would be once some pods have left it: what preemption plans on, and who is spared.

Called by `state.preemption` and `state.evictions`.
"""

from state.model.rows import Pod
from state.model.scores import ClassScores
from state.model.state import State
from state.model.trial import Trial


def comes_free(trial: Trial, pod: Pod) -> bool:
    """Whether the pod leaves its node, and not in vain for so long that its room is not to be counted on."""
    state = trial.state
    assert state.policy is not None
    since_us = trial.now_us - state.policy.preemption.nominatedFor
    if pod.deleted_us:
        return pod.deleted_us > since_us
    notes = (state.tables["preempted"].get(key) for key in state.evicted.get(pod.uid, ()))
    return state.is_leaving(pod) and all(note is None or note.at_us > since_us for note in notes)


class Room:
    """A node as it would be: `free` by axis, victims it could give up, and those it gives up, for members put on it.

    Room of `leaving` pods counts as free, and so does what is kept for `displaced` ones.
    """

    def __init__(
        self,
        state: State,
        name: str,
        *,
        leaving: list[Pod],
        displaced: list[Pod],
        victims: list[Pod],
    ) -> None:
        self.name = name
        self.state = state
        self.displaced = displaced
        self.victims = victims  # the least important first
        self.taken: dict[str, Pod] = {}
        self.gone: dict[str, None] = {pod.uid: None for pod in leaving}
        self.cards_claimed = 0
        self._asked: dict[int, None] = {}  # axes that members put here ask for
        columns, node_ord = state.columns, state.nodes[name].ord
        free = columns.total[:, node_ord] - columns.used[:, node_ord]
        self.free: list[int] = free.tolist()
        for pod in (*leaving, *displaced):
            self._give(pod, +1)
        if state.devices_of(name) is not None:
            self.cards_claimed = len(state.free_cards(name)) - state.cards_left(name)
            self.cards_claimed -= sum(state.class_of(pod).cards for pod in displaced)

    def _give(self, pod: Pod, sign: int) -> None:
        """The node gets the pod's room back, or loses it."""
        axes = self.state.columns.axes
        for resource, amount in self.state.class_of(pod).requests:
            self.free[axes[resource]] += sign * amount

    def fits(self, scores: ClassScores) -> bool:
        """Whether a pod of the class fits as things are."""
        if any(self.free[axis] < amount for axis, amount in scores.request.items()):
            return False
        cards = scores.podclass.cards
        if not cards:
            return True
        if self.state.devices_of(self.name) is None:
            return scores.podclass.by_kubelet
        return len(self.state.free_cards(self.name, self.gone)) - self.cards_claimed >= cards

    def put(self, scores: ClassScores) -> None:
        """One member is put here."""
        for axis, amount in scores.request.items():
            self.free[axis] -= amount
            self._asked[axis] = None
        if self.state.devices_of(self.name) is not None:
            self.cards_claimed += scores.podclass.cards

    def claim(self, pod: Pod) -> None:
        """Room is kept here for the pod already."""
        axes = self.state.columns.axes
        for resource, _ in self.state.class_of(pod).requests:
            self._asked[axes[resource]] = None

    def take(self, victim: Pod) -> None:
        """One more victim."""
        self.taken[victim.uid] = victim
        self.gone[victim.uid] = None
        self._give(victim, +1)

    def give_back(self, victim: Pod) -> None:
        """It is none after all."""
        del self.taken[victim.uid], self.gone[victim.uid]
        self._give(victim, -1)

    def spare(self, victim: Pod) -> None:
        """Keeps a victim, if what was put here still fits."""
        self.give_back(victim)
        if any(self.free[axis] < 0 for axis in self._asked) or not self._cards_suffice():
            self.take(victim)

    def _cards_suffice(self) -> bool:
        if not self.cards_claimed:
            return True
        return len(self.state.free_cards(self.name, self.gone)) >= self.cards_claimed
