"""Simulated time: one clock for the whole world, and event loops that run on it.

Nothing here ever waits. `Clock.advance` moves time and fires what is due; a `VirtualLoop` takes one
turn when its process is given one, so a process that gets no turns is a suspended one.
"""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

#: 2026-01-01T00:00:00Z in microseconds since 1970.
START_US = 1_767_225_600_000_000


class Clock:
    """The true time of the world, microseconds since 1970, and what happens at given moments."""

    def __init__(self) -> None:
        self.now_us = START_US
        self._due: list[tuple[int, int, Callable[[], None]]] = []
        self._serial = count()

    def seconds(self) -> float:
        """Seconds since the world began."""
        return (self.now_us - START_US) / 1_000_000

    def at(self, us: int, happen: Callable[[], None]) -> None:
        """Call `happen` when time reaches `us`; of equal moments the first given goes first."""
        heapq.heappush(self._due, (us, next(self._serial), happen))

    def advance(self, us: int) -> None:
        """Move time on by `us`, firing what falls due on the way at its own moment."""
        end = self.now_us + us
        while self._due and self._due[0][0] <= end:
            moment, _, happen = heapq.heappop(self._due)
            self.now_us = max(self.now_us, moment)
            happen()
        self.now_us = end


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is the world's, moved one turn at a time."""

    def __init__(self, clock: Clock, wrong_us: int = 0) -> None:
        self._world_clock = clock
        #: How far the wall clock of this process is off.
        self.wrong_us = wrong_us
        super().__init__()
        self.set_exception_handler(lambda _loop, _context: None)

    def time(self) -> float:
        """Seconds since the world began."""
        return self._world_clock.seconds()

    def is_idle(self) -> bool:
        """Nothing is ready to run before time moves on or a turn of another process."""
        return not self._ready  # type: ignore[attr-defined]

    def turn(self) -> None:
        """Run what is ready now, once; never waits."""
        self.call_soon(self.stop)
        self.run_forever()


class ProcessTime:
    """What a process sees instead of the module `time`: its own wall clock, the world's steps."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def time_ns(self) -> int:
        """The wall clock of the process that asks."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        return (self._clock.now_us + loop.wrong_us) * 1_000

    def monotonic(self) -> float:
        """Seconds since the world began."""
        return self._clock.seconds()

    def monotonic_ns(self) -> int:
        """Nanoseconds since the world began."""
        return (self._clock.now_us - START_US) * 1_000
