"""Room and LeastAllocated score of nodes for a pod class, by array and one by one; both give the same integers.

Score of a feasible node: the mean of (allocatable - used - request) * 100 / allocatable over cpu and memory, each
division rounded down; -1 where the class may not go or has no room.
"""

import numpy as np

from state.model.columns import UNCOUNTED_CARDS, Columns, Ints
from state.model.scores import MAY, ClassScores

_SCORED = (0, 1)  # axes of cpu and memory


def score_nodes(columns: Columns, scores: ClassScores, ords: Ints, count: Ints | int = 1) -> Ints:
    """The score of each of `ords` for one more pod of the class: the last of `count` that are put there."""
    podclass = scores.podclass
    fits = scores.reason.take(ords) == MAY
    if podclass.cards:
        cards = columns.cards_free.take(ords)
        fits &= cards >= podclass.cards * count
        if not podclass.by_kubelet:
            fits &= cards < UNCOUNTED_CARDS
    sums: Ints = np.zeros(len(ords), dtype=np.int64)
    request = scores.request
    for axis in _SCORED:
        whole = columns.total[axis].take(ords)
        left = whole - columns.used[axis].take(ords)
        if axis in request:
            left -= request[axis] * count
            fits &= left >= 0
        sums += _share(left, whole)
    for axis, amount in request.items():
        if axis not in _SCORED:
            left = columns.total[axis].take(ords) - columns.used[axis].take(ords)
            fits &= left >= amount * count
    sums //= len(_SCORED)
    sums[~fits] = -1
    return sums


def score_node(columns: Columns, scores: ClassScores, node_ord: int, count: int = 1) -> int:
    """The score of one node; the same integer as `score_nodes` gives."""
    podclass = scores.podclass
    if scores.reason.item(node_ord) != MAY:
        return -1
    if podclass.cards:
        free = columns.cards_free.item(node_ord)
        if free < podclass.cards * count or (free >= UNCOUNTED_CARDS and not podclass.by_kubelet):
            return -1
    total, used = columns.total.item, columns.used.item
    shares = {}
    for axis, amount in scores.request.items():
        left = total(axis, node_ord) - used(axis, node_ord) - amount * count
        if left < 0:
            return -1
        shares[axis] = left
    points = 0
    for axis in _SCORED:
        whole = total(axis, node_ord)
        left = shares[axis] if axis in shares else whole - used(axis, node_ord)
        points += max(left, 0) * 100 // whole if whole > 0 else 0
    return points // len(_SCORED)


def _share(left: Ints, whole: Ints) -> Ints:
    """`left` in percent of `whole`, rounded down; 0 where either is not positive. May change `left`."""
    np.maximum(left, 0, out=left)
    left *= 100
    left //= np.maximum(whole, 1)
    left *= whole > 0
    return left
