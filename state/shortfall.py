"""What pods lack on each node: the nodes where the least is missing, and what would have to come free there.

Works on copies: members of a unit are put on nodes on paper, beyond what is free, and what that is too much is what
others would have to give back. Reads only. Called by `state.explain`.
"""

import numpy as np
from msgspec import Struct

from state.candidates import refresh
from state.model.columns import UNCOUNTED_CARDS, Ints
from state.model.diagnoses import Code
from state.model.limits import REQUEST_MAX
from state.model.scores import KEPT, MISMATCH, NO_NODE, TAINTED, ClassScores
from state.model.state import State
from state.rules.filters import unmatched, untolerated

#: Nodes that are too small, kept for others, or closed to a pod come after those that could come free for it.
_FITTING, _SMALL, _KEPT, _TAINTED, _MISMATCH, _NONE = 0, 1, 2, 3, 4, 5
_RANKS = ((KEPT, _KEPT), (TAINTED, _TAINTED), (MISMATCH, _MISMATCH), (NO_NODE, _NONE))
_CODES = {
    _KEPT: Code.KEPT_FOR_HEAD,
    _TAINTED: Code.TAINTED,
    _MISMATCH: Code.NODE_SELECTOR_MISMATCH,
}


class Lack(Struct, frozen=True):
    """What a pod wants of something on a node, what is free there, and how much more must be."""

    have: int
    missing: int
    want: int


class NearNode(Struct, frozen=True, kw_only=True):
    """A node and what speaks against a pod there: the code that counts, then all of it.

    `small`: not even the empty node would do. `cards`: whole GPUs that its device report counts.
    """

    cards: Lack | None
    code: str
    node: str
    resources: dict[str, Lack]
    small: bool
    taints: list[str]
    unmatched: list[str]


class Freed(Struct, frozen=True):
    """What must come free on a node."""

    cards: int
    node: str
    resources: dict[str, int]


class Shortfall:
    """Nodes as they are, and what was put on them on paper. Make it when the classes' axes are known."""

    def __init__(self, state: State) -> None:
        self.state = state
        columns = state.columns
        self._free: Ints = columns.total - columns.used
        self._claimed: Ints = np.zeros_like(self._free)
        self._cards_claimed: Ints = np.zeros(columns.capacity, dtype=np.int64)
        self._whole_cards: Ints | None = None

    def nearest(self, scores: ClassScores, count: int) -> list[NearNode]:
        """The nodes where a pod of the class lacks the least, of equals those of the lower ordinal."""
        weights, ranks = self._weights(scores), self._ranks(scores)
        order = np.lexsort((weights, ranks))[:count].tolist()
        return [self._near(scores, each) for each in order if ranks.item(each) != _NONE]

    def cheapest(self, scores: ClassScores) -> tuple[int, int] | None:
        """(weight, ordinal) of the node where one more pod of the class needs the least; None: no node is large enough.

        The weight: what is missing of each resource in thousandths of what is asked for, rounded up, in all.
        """
        ords = (self._ranks(scores) == _FITTING).nonzero()[0]
        if not len(ords):
            return None
        weights = self._weights(scores).take(ords)
        best = int(weights.argmin())
        return weights.item(best), ords.item(best)

    def put(self, scores: ClassScores, node_ord: int) -> None:
        """One pod of the class is put there."""
        for axis, amount in scores.request.items():
            self._claimed[axis, node_ord] += amount
        if self.state.devices_of(self.state.columns.names[node_ord]) is not None:
            self._cards_claimed[node_ord] += scores.podclass.cards

    def freed(self) -> list[Freed]:
        """What must come free for all that was put, node by node in the order of their ordinals."""
        columns = self.state.columns
        touched = np.flatnonzero(self._claimed.sum(axis=0)).tolist()
        found = []
        for node_ord in touched:
            amounts = {
                name: over
                for name, axis in sorted(columns.axes.items())
                if (claimed := self._claimed.item(axis, node_ord))
                and (over := claimed - self._free.item(axis, node_ord)) > 0
            }
            cards = self._cards_claimed.item(node_ord)
            cards = max(cards - columns.cards_free.item(node_ord), 0) if cards else 0
            if amounts or cards:
                found.append(Freed(cards, columns.names[node_ord], amounts))
        return found

    # -- by node ---------------------------------------------------------------------------------------------

    def _ranks(self, scores: ClassScores) -> Ints:
        """By ordinal: could come free for one more pod, too small, or why the class may never use it."""
        refresh(self.state, scores)
        columns, cards = self.state.columns, scores.podclass.cards
        small = np.zeros(columns.capacity, dtype=np.bool_)
        for axis, amount in scores.request.items():
            small |= self._claimed[axis] + amount > columns.total[axis]
        if cards:
            small |= self._cards_claimed + cards > self._cards_of(scores)
        ranks: Ints = np.where(small, _SMALL, _FITTING).astype(np.int64)
        for reason, rank in _RANKS:
            ranks[scores.reason == reason] = rank
        return ranks

    def _weights(self, scores: ClassScores) -> Ints:
        weights: Ints = np.zeros(self.state.columns.capacity, dtype=np.int64)
        for axis, amount in scores.request.items():
            weights += _share(_more(self._claimed[axis], self._free[axis], amount), amount)
        cards = scores.podclass.cards
        if cards:
            free = self._cards_free(scores)
            weights += _share(_more(self._cards_claimed, free, cards), cards)
        return weights

    def _cards_free(self, scores: ClassScores) -> Ints:
        """Free cards by ordinal; without a device report, all that are asked for, or none."""
        free = self.state.columns.cards_free
        if scores.podclass.by_kubelet:
            return free
        return np.where(free >= UNCOUNTED_CARDS, 0, free)

    def _cards_of(self, scores: ClassScores) -> Ints:
        """The same of an empty node."""
        if self._whole_cards is None:
            columns = self.state.columns
            self._whole_cards = columns.cards_free.copy()
            for node_ord in range(len(columns.names)):
                name = columns.names[node_ord]
                if name and self.state.devices_of(name) is not None:
                    whole = self.state.free_cards(name, leaving=self.state.pods)
                    self._whole_cards[node_ord] = len(whole)
        if scores.podclass.by_kubelet:
            return self._whole_cards
        return np.where(self._whole_cards >= UNCOUNTED_CARDS, 0, self._whole_cards)

    def _near(self, scores: ClassScores, node_ord: int) -> NearNode:
        state = self.state
        node = state.nodes[state.columns.names[node_ord]]
        rank = self._ranks(scores).item(node_ord)
        lacks: dict[str, Lack] = {}
        for (name, amount), axis in zip(scores.podclass.requests, scores.axes, strict=True):
            free = self._free.item(axis, node_ord) - self._claimed.item(axis, node_ord)
            if free < amount:
                lacks[name] = _lack(amount, free)
        cards = None
        if scores.podclass.cards:
            free = self._cards_free(scores).item(node_ord) - self._cards_claimed.item(node_ord)
            cards = _lack(scores.podclass.cards, free)
        code = Code.INSUFFICIENT_RESOURCES if lacks else Code.NO_DEVICE
        return NearNode(
            cards=cards if cards is not None and cards.missing else None,
            code=_CODES.get(rank, code),
            node=node.name,
            resources=lacks,
            small=rank == _SMALL,
            taints=untolerated(scores.podclass, node),
            unmatched=unmatched(scores.podclass, node),
        )


def _lack(want: int, free: int) -> Lack:
    return Lack(have=max(free, 0), missing=max(want - free, 0), want=want)


def _more(claimed: Ints, free: Ints, amount: int) -> Ints:
    """How much more must come free when `amount` is added to what is claimed; a node that holds too much counts only
    where something is claimed.
    """
    more: Ints = np.maximum(claimed + amount - free, 0)
    more -= np.where(claimed > 0, np.maximum(claimed - free, 0), 0)
    return more


def _share(missing: Ints, amount: int) -> Ints:
    """`missing` in thousandths of `amount`, rounded up."""
    thousandths: Ints = np.minimum(missing, REQUEST_MAX) * 1_000
    thousandths += amount - 1
    thousandths //= amount
    return thousandths
