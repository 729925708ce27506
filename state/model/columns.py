"""Columns: what nodes have and what is used of it, as integer arrays by axis and node ordinal. Derived from rows.

Also the touch log: which ordinals changed, so that a class's scores are brought up to date by looking only there.
"""

import heapq

import numpy as np
import numpy.typing as npt

from state.model.limits import SCORE_BLOCK, TOUCH_LOG_MAX

Ints = npt.NDArray[np.int64]

#: Free cards of a node without a device report: the kubelet counts there, cards don't limit.
UNCOUNTED_CARDS = 1 << 40


class TouchLog:
    """Ordinals in the order in which they changed; readers remember a position and ask for what came since."""

    __slots__ = ("_count", "_entries", "base")

    def __init__(self) -> None:
        self._entries: Ints = np.zeros(2 * TOUCH_LOG_MAX, dtype=np.int64)
        self._count = 0
        self.base = 0

    @property
    def end(self) -> int:
        """The position after the newest entry."""
        return self.base + self._count

    def append(self, node_ord: int) -> None:
        """One more change."""
        if self._count == len(self._entries):
            self._entries[:TOUCH_LOG_MAX] = self._entries[TOUCH_LOG_MAX:]
            self._count -= TOUCH_LOG_MAX
            self.base += TOUCH_LOG_MAX
        self._entries[self._count] = node_ord
        self._count += 1

    def since(self, position: int) -> Ints | None:
        """The changes after `position`, as a view; None: forgotten, look at everything."""
        return None if position < self.base else self._entries[position - self.base : self._count]


class Columns:
    """`total[axis, ord]` and `used[axis, ord]`, one axis a resource; `cards_free[ord]` whole, healthy, unused cards."""

    __slots__ = (
        "axes",
        "capacity",
        "cards_free",
        "freed",
        "names",
        "open",
        "respecified",
        "total",
        "touched",
        "used",
    )

    def __init__(self) -> None:
        self.axes: dict[str, int] = {}
        self.capacity = 2 * SCORE_BLOCK
        self.total: Ints = np.zeros((4, self.capacity), dtype=np.int64)
        self.used: Ints = np.zeros((4, self.capacity), dtype=np.int64)
        self.cards_free: Ints = np.zeros(self.capacity, dtype=np.int64)
        self.open: npt.NDArray[np.bool_] = np.zeros(
            self.capacity, dtype=np.bool_
        )  # no cordon, no taint
        self.names: list[str] = []  # by ordinal; "" is a free ordinal
        self.freed: list[int] = []  # heap of ordinals that may be free
        self.touched = TouchLog()  # room changed
        self.respecified = TouchLog()  # labels, taints or amounts changed, or the node came or went
        for name in ("cpu", "memory", "pods"):
            self.axis(name)

    def axis(self, name: str) -> int:
        """The axis of a resource, made on first use (may replace the arrays: take it before them)."""
        found = self.axes.get(name)
        if found is None:
            found = self.axes[name] = len(self.axes)
            if found >= len(self.total):
                more = np.zeros((len(self.total), self.capacity), dtype=np.int64)
                self.total, self.used = np.vstack((self.total, more)), np.vstack((self.used, more))
        return found

    def make_room(self, count: int) -> None:
        """Lets ordinals below `count` exist."""
        while self.capacity < count:
            self.total = np.hstack((self.total, np.zeros_like(self.total)))
            self.used = np.hstack((self.used, np.zeros_like(self.used)))
            self.cards_free = np.hstack((self.cards_free, np.zeros_like(self.cards_free)))
            self.open = np.hstack((self.open, np.zeros_like(self.open)))
            self.capacity *= 2
        while len(self.names) < count:
            heapq.heappush(self.freed, len(self.names))
            self.names.append("")

    def free_ord(self) -> int:
        """The lowest ordinal that no node has."""
        while self.freed and self.names[self.freed[0]]:
            heapq.heappop(self.freed)
        return self.freed[0] if self.freed else len(self.names)

    def release(self, node_ord: int) -> None:
        """The node of this ordinal is gone."""
        self.names[node_ord] = ""
        self.open[node_ord] = False
        heapq.heappush(self.freed, node_ord)
        self.respecify(node_ord)

    def free_everywhere(self, resource: str) -> int:
        """What all nodes together have left of a resource; a node that is over its capacity counts as 0."""
        axis = self.axes.get(resource)
        if axis is None:
            return 0
        return int(np.maximum(self.total[axis] - self.used[axis], 0).sum())

    def touch(self, node_ord: int) -> None:
        """Room on a node changed."""
        self.touched.append(node_ord)

    def charge(self, request: dict[int, int], cards: int, ords: list[int], sign: int) -> None:
        """Uses room for one pod on each of `ords` (a node may stand there often), or gives it back."""
        if len(ords) == 1:
            (node_ord,) = ords
            for axis, amount in request.items():
                self.used[axis, node_ord] += sign * amount
            if cards and self.cards_free.item(node_ord) < UNCOUNTED_CARDS:
                self.cards_free[node_ord] -= sign * cards
            self.touch(node_ord)
            return
        at, counts = np.unique(np.array(ords, dtype=np.int64), return_counts=True)
        for axis, amount in request.items():
            self.used[axis, at] += sign * amount * counts
        if cards:
            counted = self.cards_free[at] < UNCOUNTED_CARDS
            self.cards_free[at[counted]] -= sign * cards * counts[counted]
        for node_ord in at.tolist():
            self.touch(node_ord)

    def respecify(self, node_ord: int) -> None:
        """A node must be looked at anew by every mask."""
        self.respecified.append(node_ord)
        self.touched.append(node_ord)
