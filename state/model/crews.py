"""Members by gang, and how many of them have a node: derived from pods, kept by `state.model.state`."""

from typing import cast

from state.model.indexes import mark_under
from state.model.rows import Pod


class Crews:
    """`members` by gang; `assumed`: with a node that the API server doesn't know of yet; `bound`: by its word."""

    def __init__(self, pods: dict[str, Pod]) -> None:
        self._pods = pods
        self.members: dict[str, dict[str, None]] = {}
        self.assumed: dict[str, int] = {}
        self.bound: dict[str, int] = {}
        self._first: dict[str, str] = {}  # a cache

    def first(self, gang: str) -> Pod:
        """The gang's oldest member; it must have one."""
        first = self._first.get(gang)
        if first is None:
            members = (self._pods[uid] for uid in self.members[gang])
            first = self._first[gang] = min(members, key=_age).uid
        return self._pods[first]

    def changed(self, gang: str, old: Pod | None, new: Pod | None) -> None:
        """A member came (no `old`), went (no `new`), or changed and stayed."""
        for counts, was, now in (
            (self.assumed, old and old.assumed, new and new.assumed),
            (self.bound, old and old.node, new and new.node),
        ):
            if bool(was) != bool(now):
                counts[gang] = counts.get(gang, 0) + (1 if now else -1)
                if not counts[gang]:
                    del counts[gang]
        pod = cast(Pod, new or old)
        if old is None or new is None:
            mark_under(self.members, gang, pod.uid, new is not None)
        first = self._first.get(gang)
        if first is not None and (
            first == pod.uid or (new is not None and _age(new) < _age(self._pods[first]))
        ):
            del self._first[gang]


def _age(pod: Pod) -> tuple[int, str]:
    return pod.created_us, pod.uid
