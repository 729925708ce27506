"""Pauses before a log that did not answer is asked again."""

from streams.retry import RETRY_S, RETRY_S_MAX, retry_s


def test_pauses_double_up_to_the_longest() -> None:
    """From 0.2 s to 5 s: a broker that restarts is found soon, one that is away is not pestered."""
    assert [0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0] == [retry_s(failures) for failures in range(7)]
    assert (0.2, 5.0) == (RETRY_S, RETRY_S_MAX)


def test_a_log_that_is_away_for_days_is_still_asked() -> None:
    """2 ** 1024 is more than a float holds: after 85 minutes without a broker that ended the service."""
    assert 5.0 == retry_s(1_200) == retry_s(1_000_000)
