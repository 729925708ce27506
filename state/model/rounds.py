"""Index of the evictions that made room for somebody who has not been bound since. Kept by `State`."""

from state.model.indexes import mark_under
from state.model.rows import Preempted


class Rounds:
    """`of`: uid of a pod, or gang, to the keys of what was evicted for it."""

    def __init__(self) -> None:
        self.of: dict[str, dict[str, None]] = {}

    def changed(self, key: str, old: Preempted | None, new: Preempted | None) -> None:
        """What is remembered of a victim came, changed or went."""
        for note, there in ((old, False), (new, True)):
            for each in claimants_of(note) if note is not None else ():
                mark_under(self.of, each, key, there)


def claimants_of(note: Preempted) -> tuple[str, ...]:
    """The pod, or the gangs, for which the victim left; empty: they are bound."""
    return (note.for_pod,) if note.for_pod else note.for_gangs
