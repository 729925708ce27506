"""The time that is stamped."""

from streams.timekeeper import Timekeeper

HOUR = 3_600_000_000


def test_normal_take_over_follows_wall_and_then_monotonic_clock() -> None:
    """A wall clock a little after the last record is the start; from there only the monotonic clock
    counts.
    """
    keeper = Timekeeper(last_us=1_000, wall_us=5_000, monotonic_us=77)
    assert None is keeper.alarm
    assert [keeper.now_us(77), keeper.now_us(200)] == [5_000, 5_123]


def test_log_ahead_of_the_wall_clock_runs_at_half_speed_until_caught_up() -> None:
    """Time goes on from the last record, slower than the clock, and meets it without a step."""
    keeper = Timekeeper(last_us=1_000, wall_us=0, monotonic_us=0)
    assert keeper.alarm is not None
    assert [keeper.now_us(at) for at in (0, 1_000, 2_000, 3_000)] == [1_000, 1_500, 2_000, 3_000]


def test_leap_is_refused_at_the_bound_and_one_past_it() -> None:
    """Exactly the bound is taken at once; a microsecond more is refused, alarmed, and approached at
    double speed.
    """
    last = 10 * HOUR
    allowed = Timekeeper(last, last + HOUR, 0)
    refused = Timekeeper(last, last + HOUR + 1, 0)
    assert (None, last + HOUR) == (allowed.alarm, allowed.now_us(0))
    assert refused.alarm is not None
    assert [last, last + 2_000] == [refused.now_us(0), refused.now_us(1_000)]
    assert last + 3 * HOUR + 1 == refused.now_us(2 * HOUR)


def test_first_record_of_a_log_takes_the_wall_clock() -> None:
    """An empty log has no last record to leap from."""
    keeper = Timekeeper(last_us=0, wall_us=99 * HOUR, monotonic_us=0)
    assert (keeper.alarm, keeper.now_us(0)) == (None, 99 * HOUR)


def test_monotonic_clock_that_steps_back_does_not_take_time_back() -> None:
    """A monotonic reading before the take-over counts as the take-over."""
    assert Timekeeper(0, 5_000, 100).now_us(50) == 5_000


def test_wait_for_a_deadline() -> None:
    """The wait is what is missing, half of it at double speed, nothing when the deadline has
    passed.
    """
    keeper = Timekeeper(0, 5_000, 0)
    assert [keeper.until_us(6_000, 0), keeper.until_us(6_000, 2_000)] == [1_000, 0]
    assert Timekeeper(HOUR, 9 * HOUR, 0).until_us(HOUR + 1_000, 0) == 500
