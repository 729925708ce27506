"""The time that the sequencer stamps: the wall clock at take-over, then the monotonic clock; never
back, never a leap.

Called by the runner of the sequencer: made at take-over, anew after somebody else's record that is
ahead of it, and asked for each stamp. Must not read a clock itself: both clocks are handed in, so
that tests and `simulate` have theirs.

Three cases at take-over, with L the last record's timestamp and W the wall clock; `e` is the time
elapsed since:
- W is at or a little after L: time is W + e.
- W is before L (the log is ahead): time is L + e/2 until the wall clock has caught up. It runs
  slowly, never stops.
- W is after L by more than `leap_us_max`: the leap is refused and `alarm` says so; time is L + 2e
  until it meets the wall clock. So a wrong wall clock fires no deadline at once, and a log that
  really lay still that long heals.
"""

from typing import Final

#: A process setting, not policy: it changes what is stamped, and the stamp is history.
LEAP_US_MAX: Final = 3_600_000_000


class Timekeeper:
    """Time since one take-over, in microseconds since 1970. `alarm` is a line for the log, or
    None.
    """

    def __init__(
        self, last_us: int, wall_us: int, monotonic_us: int, leap_us_max: int = LEAP_US_MAX
    ) -> None:
        self._last_us = last_us
        self._wall_us = wall_us
        self._start_us = monotonic_us
        self._refused = last_us > 0 and wall_us - last_us > leap_us_max
        self.alarm: str | None = None
        if self._refused:
            self.alarm = (
                f"the wall clock is {(wall_us - last_us) // 1_000_000} s after the last record,"
                f" more than {leap_us_max // 1_000_000} s: time runs on at double speed"
                " until it meets the clock"
            )
        elif wall_us < last_us:
            self.alarm = (
                f"the last record is {(last_us - wall_us) / 1e6:.3f} s ahead of the wall clock:"
                " time runs at half speed until the clock has caught up"
            )

    def now_us(self, monotonic_us: int) -> int:
        """The time to stamp at `monotonic_us`; at least the last record's, and never less than an
        earlier answer.
        """
        elapsed_us = max(0, monotonic_us - self._start_us)
        wall_us = self._wall_us + elapsed_us
        if self._refused:
            return min(wall_us, self._last_us + 2 * elapsed_us)
        return max(wall_us, self._last_us + elapsed_us // 2)

    def until_us(self, deadline_us: int, monotonic_us: int) -> int:
        """Microseconds to wait from `monotonic_us` until `now_us` may reach `deadline_us`; 0 when
        it has.

        Never longer than needed; at double or half speed the caller may have to wait again.
        """
        missing_us = max(0, deadline_us - self.now_us(monotonic_us))
        return (missing_us + 1) // 2 if self._refused else missing_us
