"""What is remembered for a pod class: which nodes it may use, how good each is. A cache, not part of a snapshot."""

import numpy as np
import numpy.typing as npt

from state.model.columns import Columns, Ints
from state.model.limits import SCORE_BLOCK
from state.model.podclass import PodClass

#: `reason` of an ordinal: the class may use the node, or why never (0 must stay "may").
MAY, MISMATCH, TAINTED, NO_NODE, KEPT = 0, 1, 2, 3, 4


class ClassScores:
    """`reason[ord]`, `score[ord]` (-1: not feasible now), `best[block]`, as of two positions of the touch logs."""

    __slots__ = (
        "amounts",
        "axes",
        "best",
        "capacity",
        "podclass",
        "reason",
        "request",
        "score",
        "spec_at",
        "touch_at",
    )

    def __init__(self, podclass: PodClass, columns: Columns) -> None:
        self.podclass = podclass
        self.axes = [columns.axis(name) for name, _ in podclass.requests]
        self.request = dict(
            zip(self.axes, (amount for _, amount in podclass.requests), strict=True)
        )
        self.amounts: Ints = np.array([amount for _, amount in podclass.requests], dtype=np.int64)
        self.capacity = 0  # nothing scored yet
        self.reason: npt.NDArray[np.int8] = np.zeros(0, dtype=np.int8)
        self.score: Ints = np.zeros(0, dtype=np.int64)
        self.best: Ints = np.zeros(0, dtype=np.int64)
        self.spec_at = -1
        self.touch_at = -1

    def resize(self, capacity: int) -> None:
        """Forgets everything and fits `capacity` ordinals."""
        self.capacity = capacity
        self.reason = np.full(capacity, NO_NODE, dtype=np.int8)
        self.score = np.full(capacity, -1, dtype=np.int64)
        self.best = np.full(capacity // SCORE_BLOCK, -1, dtype=np.int64)
        self.spec_at = self.touch_at = -1
