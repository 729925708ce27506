"""The queue of one cycle: units in order, and streams of waiting groups that ask for the same.

Of a stream only the first is tried: where that one doesn't fit, no other of it does, for room only shrinks within a
cycle. So ten thousand gangs that wait alike cost one attempt. Called by `state.cycle`.
"""

import heapq

from state.line import Line, Unit
from state.model.order import OrderKey
from state.model.partners import Keys
from state.model.shapes import Entry


class Queue:
    """`next` and `tell` in turn: what to try, and whether anything came of it."""

    def __init__(self, line: Line, fresh: list[Unit]) -> None:
        self._line = line
        self._fresh = fresh[::-1]
        #: (its first group's place in line, number of the stream); streams hold the rest.
        self._heads: list[tuple[OrderKey, int]] = []
        self._streams: list[list[Entry]] = []
        self._heaps: dict[int, None] = {}  # streams of which more than the first was asked for
        self._of_stream = -1
        self.groups = {unit.gangs: None for unit in fresh if unit.gangs}

    def add(self, streams: list[list[Entry]]) -> None:
        """Groups that wait since an earlier cycle with their places, those of a stream ask for the same."""
        for stream in streams:
            first = min(stream)
            heapq.heappush(self._heads, (first[0], len(self._streams)))
            self._streams.append(stream)

    def next(self) -> Unit | None:
        """The next unit; None: no more."""
        self._of_stream = -1
        if self._heads and (not self._fresh or self._heads[0][0] < self._fresh[-1].key):
            _, number = heapq.heappop(self._heads)
            self._of_stream = number
            return self._line.group(self._take(number))
        return self._fresh.pop() if self._fresh else None

    def tell(self, moved: bool) -> None:
        """What came of the last one: a stream goes on only where its first one moved something."""
        number = self._of_stream
        if moved and number >= 0 and self._streams[number]:
            stream = self._streams[number]
            if number not in self._heaps:
                heapq.heapify(stream)
                self._heaps[number] = None
            heapq.heappush(self._heads, (stream[0][0], number))

    def _take(self, number: int) -> Keys:
        stream = self._streams[number]
        if number in self._heaps:
            return heapq.heappop(stream)[1]
        first = min(stream)
        stream.remove(first)
        return first[1]
