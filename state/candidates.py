"""The best node for a pod class: brings mask and scores up to date by looking only at what changed, and picks.

Reads rows and columns; writes only the class's cache. Called by `state.cycle`.
"""

from collections.abc import Iterable

import numpy as np

from state.model.columns import Columns, Ints
from state.model.limits import RUN_MIN, SCALAR_TOUCHES_MAX, SCORE_BLOCK
from state.model.scores import KEPT, MAY, MISMATCH, NO_NODE, TAINTED, ClassScores
from state.model.state import State
from state.packing import Roominess
from state.rules.filters import node_reason
from state.rules.score import score_node, score_nodes


def pick_node(state: State, scores: ClassScores) -> int:
    """The ordinal of the node with the highest score, of equals the lowest ordinal; -1: none is feasible."""
    refresh(state, scores)
    return _best(scores)


def pick_nodes(state: State, scores: ClassScores, count: int) -> list[int]:
    """What `pick_node` would give `count` pods of the class one after another; fewer than that: no more fit."""
    refresh(state, scores)
    return (_pick_few if count < RUN_MIN else _pick_many)(state.columns, scores, count)


def _best(scores: ClassScores) -> int:
    block = int(scores.best.argmax())
    if scores.best.item(block) < 0:
        return -1
    first = block * SCORE_BLOCK
    return first + int(scores.score[first : first + SCORE_BLOCK].argmax())


def _pick_few(columns: Columns, scores: ClassScores, count: int) -> list[int]:
    """One after another, with each pick's node scored as it would be then; afterwards as it was."""
    before: dict[int, int] = {}
    picked: list[int] = []
    while len(picked) < count and (node_ord := _best(scores)) >= 0:
        picked.append(node_ord)
        if len(picked) == count:
            break
        before.setdefault(node_ord, scores.score.item(node_ord))
        _set_score(
            scores, node_ord, score_node(columns, scores, node_ord, picked.count(node_ord) + 1)
        )
    for node_ord, score in before.items():
        _set_score(scores, node_ord, score)
    return picked


def _pick_many(columns: Columns, scores: ClassScores, count: int) -> list[int]:
    """All nodes of the highest score at once.

    What is put on a node never makes it better. So picks go down by score, of equals by ordinal, and a node has its
    turn again and again until its score falls.
    """
    score = scores.score.copy()
    put = np.ones(scores.capacity, dtype=np.int64)
    picked: list[int] = []
    while len(picked) < count and (best := int(score.max())) >= 0:
        left = count - len(picked)
        ords = (score == best).nonzero()[0][:left]
        turns = np.zeros(len(ords), dtype=np.int64)
        still = np.arange(len(ords), dtype=np.int64)
        while len(still):
            turns[still] += 1
            at = ords[still]
            put[at] += 1
            score[at] = score_nodes(columns, scores, at, put[at])
            still = still[score[at] == best]
            # Who comes after enough turns of others has no second one.
            still = still[still <= turns.cumsum().searchsorted(left)]
        picked += np.repeat(ords, turns)[:left].tolist()
    return picked


def refresh(state: State, scores: ClassScores) -> None:
    """Brings reasons, scores and block maxima up to date."""
    columns = state.columns
    if scores.capacity != columns.capacity:
        scores.resize(columns.capacity)
    respecified = columns.respecified.since(scores.spec_at)
    if respecified is None or scores.spec_at < 0:
        _judge_all(state, scores)
    else:
        for node_ord in dict.fromkeys(respecified.tolist()):
            _judge_one(state, scores, node_ord)
    scores.spec_at = columns.respecified.end
    touched = columns.touched.since(scores.touch_at)
    if touched is None or scores.touch_at < 0 or len(touched) > columns.capacity:
        _score_all(state, scores)
    elif len(touched) <= SCALAR_TOUCHES_MAX:
        for node_ord in dict.fromkeys(touched.tolist()):
            _score_one(state, scores, node_ord)
    else:
        _score_some(state, scores, touched)
    scores.touch_at = columns.touched.end


def roominess(state: State, scores: ClassScores, *, emptied: bool = False) -> Roominess:
    """How many pods of the class fit now, one after another over all nodes, and on how many nodes.

    `emptied`: how many would fit if there were no pods; cards are not counted then.
    """
    refresh(state, scores)
    columns = state.columns
    ords = ((scores.reason == MAY) if emptied else (scores.score >= 0)).nonzero()[0]
    slots = np.full(len(ords), np.iinfo(np.int64).max >> 32, dtype=np.int64)
    for axis, amount in scores.request.items():
        if amount:
            free = columns.total[axis].take(ords)
            if not emptied:
                free -= columns.used[axis].take(ords)
            np.minimum(slots, free // amount, out=slots)
    if scores.podclass.cards and not emptied:
        np.minimum(slots, columns.cards_free.take(ords) // scores.podclass.cards, out=slots)
    return Roominess(slots=int(slots.sum()), nodes=int((slots > 0).sum()))


def fits_on(state: State, scores: ClassScores, node_ord: int) -> bool:
    """Whether a pod of the class fits on that node now."""
    refresh(state, scores)
    return scores.score.item(node_ord) >= 0


def count_reasons(state: State, scores: ClassScores) -> dict[str, int]:
    """Nodes by why the class can't use them now: NodeSelectorMismatch, Tainted, NoDevice, InsufficientResources."""
    refresh(state, scores)
    columns, reason = state.columns, scores.reason
    counts = {
        "NodeSelectorMismatch": int((reason == MISMATCH).sum()),
        "Tainted": int((reason == TAINTED).sum()),
        "KeptForHead": int((reason == KEPT).sum()),
    }
    open_to = (reason == 0) & (scores.score < 0)
    short = np.zeros(scores.capacity, dtype=bool)
    for axis, amount in zip(scores.axes, scores.amounts.tolist(), strict=True):
        short |= columns.total[axis] - columns.used[axis] < amount
    counts["InsufficientResources"] = int((open_to & short).sum())
    counts["NoDevice"] = int((open_to & ~short).sum())
    return {name: count for name, count in sorted(counts.items()) if count}


def most_free(state: State, scores: ClassScores) -> dict[str, dict[str, int]]:
    """For each requested resource that no usable node has enough of: what is wanted, and the most that one has free.

    Empty where no node is usable: then room is not what is lacking.
    """
    columns = state.columns
    found: dict[str, dict[str, int]] = {}
    usable = scores.reason == MAY
    if not usable.any():
        return found
    for (name, amount), axis in zip(scores.podclass.requests, scores.axes, strict=True):
        free = (columns.total[axis] - columns.used[axis])[usable]
        have = max(int(free.max()), 0)
        if have < amount:
            found[name] = {"have": have, "want": amount}
    return found


def _judge_all(state: State, scores: ClassScores) -> None:
    """Reasons of all nodes; a class that selects nothing looks one by one only at cordoned and tainted nodes."""
    columns = state.columns
    scores.reason[:] = NO_NODE
    doubtful: Iterable[int] = range(len(columns.names))
    if not scores.podclass.selective:
        scores.reason[columns.open] = MAY
        doubtful = (~columns.open[: len(columns.names)]).nonzero()[0].tolist()
    for node_ord in doubtful:
        _judge_one(state, scores, node_ord)
    for name in state.kept:
        if name in state.nodes:
            scores.reason[state.nodes[name].ord] = KEPT


def _judge_one(state: State, scores: ClassScores, node_ord: int) -> None:
    name = state.columns.names[node_ord]
    if not name:
        scores.reason[node_ord] = NO_NODE
    elif name in state.kept:
        scores.reason[node_ord] = KEPT
    else:
        scores.reason[node_ord] = node_reason(scores.podclass, state.nodes[name])


def _score_all(state: State, scores: ClassScores) -> None:
    everything = np.arange(scores.capacity, dtype=np.int64)
    scores.score[:] = score_nodes(state.columns, scores, everything)
    scores.best[:] = scores.score.reshape(-1, SCORE_BLOCK).max(axis=1)


def _score_one(state: State, scores: ClassScores, node_ord: int) -> None:
    _set_score(scores, node_ord, score_node(state.columns, scores, node_ord))


def _set_score(scores: ClassScores, node_ord: int, score: int) -> None:
    scores.score[node_ord] = score
    block = node_ord // SCORE_BLOCK
    scores.best[block] = scores.score[block * SCORE_BLOCK : (block + 1) * SCORE_BLOCK].max()


def _score_some(state: State, scores: ClassScores, touched: Ints) -> None:
    """Scores `touched` (a node may stand there twice), then the maxima of their blocks, or of all when that is less."""
    scores.score[touched] = score_nodes(state.columns, scores, touched)
    by_block = scores.score.reshape(-1, SCORE_BLOCK)
    if len(touched) >= len(by_block):
        by_block.max(axis=1, out=scores.best)
        return
    blocks = np.unique(touched // SCORE_BLOCK)
    scores.best[blocks] = by_block[blocks].max(axis=1)
