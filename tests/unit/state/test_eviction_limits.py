"""What holds evictions back: refusals, limits of policy, rounds that lead nowhere."""

import pytest

from tests.builders import Core, ended, gone, node
from tests.unit.state.test_preemption import (
    SECOND_US,
    evicted,
    kept,
    later,
    leave,
    rest,
    runs,
    urgent,
)


def test_where_an_eviction_is_refused_others_are_chosen() -> None:
    """Not the same pod again: that could go on for ever."""
    core = Core()
    core.see(node("n", 200), runs("x", "n"), runs("y", "n", priority=5), urgent())
    core.see(ended(evicted(core)["x"], "Refused", status=403), topic="results")
    rest(core)
    assert (["x", "y"], {"urgent": "n"}) == (list(evicted(core)), kept(core))
    core.see(ended(evicted(core)["y"], "Refused", status=403), topic="results")
    rest(core)
    assert ({}, "EvictionFutile") == (kept(core), core.code("urgent"))
    assert 2 == sum(c.kind == "EvictPod" for d in core.decisions for c in d.commands)


@pytest.mark.parametrize("limit", ["perMinute", "perNodePerMinute", "perNamespacePerMinute"])
def test_a_limit_holds_back_until_the_minute_is_over(limit: str) -> None:
    """The second claimant is told; a minute after the first eviction it goes on without other news."""
    core = Core(evictions={limit: 1})
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"))
    core.see(urgent("first"))
    core.see(urgent("second"))
    first_us = core.journal.now_us - 1_000
    assert (1, "EvictionsLimited") == (len(evicted(core)), core.code("second"))
    assert first_us + 60 * SECOND_US == core.decisions[-1].next_deadline_us
    core.see(advance_us=first_us + 60 * SECOND_US - core.journal.now_us - 1)
    assert 1 == len(evicted(core))
    core.see(advance_us=1)
    assert 2 == len(evicted(core))
    assert {"first": "n", "second": "n"} == kept(core)


def test_limits_count_by_node_and_namespace() -> None:
    """What happened elsewhere does not count."""
    core = Core(evictions={"perNodePerMinute": 1, "perNamespacePerMinute": 1})
    core.see(node("a", 100), node("b", 100), runs("x", "a"), runs("y", "b", namespace="other"))
    core.see(urgent("first"), urgent("second"))
    assert 2 == len(evicted(core))


def test_room_that_comes_free_is_taken_before_the_minute_is_over() -> None:
    """A pod that waits for the limit is placed like any other."""
    core = Core(evictions={"perMinute": 1})
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"))
    core.see(urgent("first"), urgent("second"))
    core.see(node("m", 100))
    assert ({"first": "m"}, {"second": "n"}) == (core.binds(), kept(core))
    assert 1 == len(evicted(core))


def test_more_victims_than_a_minute_allows_are_never_evicted() -> None:
    """Two at once are needed and one a minute allowed: no deadline that would come again and again."""
    core = Core(evictions={"perMinute": 1})
    core.see(node("n", 200), runs("x", "n"), runs("y", "n"), urgent(cpu=200))
    assert ({}, "EvictionsLimited") == (evicted(core), core.code("urgent"))
    assert 0 == core.decisions[-1].next_deadline_us


def _comes_back(core: Core, number: int) -> None:
    """The last victim leaves, its owner makes another that somebody binds to n first, and a claimant comes."""
    leave(core, f"r{number}")
    core.see(gone("pods", f"u{number}"))
    core.see(runs(f"r{number + 1}", "n", owner="ReplicaSet/r"))
    core.see(urgent(f"u{number + 1}", owner="Job/u"))


def test_rounds_that_lead_nowhere_end() -> None:
    """Three victims of one owner on one node for one claimant; then it says so, and another node is tried."""
    core = Core()
    core.see(node("n", 100), runs("r0", "n", owner="ReplicaSet/r"), urgent("u0", owner="Job/u"))
    for number in range(3):
        assert f"r{number}" in evicted(core)
        _comes_back(core, number)
    assert "r3" not in evicted(core)
    assert "EvictionFutile" == core.code("u3")
    assert "3 pods of default/ReplicaSet/r left n" in core.pod("u3").diagnosis.message
    core.see(node("m", 100), runs("s", "m", priority=9))
    assert "s" in evicted(core)
    assert {"u3": "m"} == kept(core)


def test_old_rounds_are_forgotten() -> None:
    """An hour later they count no more, and the claimant goes on without other news."""
    core = Core(evictions={"futileMax": 1})
    core.see(node("n", 100), runs("r0", "n", owner="ReplicaSet/r"), urgent("u0", owner="Job/u"))
    begun_us = core.journal.now_us
    _comes_back(core, 0)
    assert "EvictionFutile" == core.code("u1")
    assert begun_us + 3_600 * SECOND_US == core.decisions[-1].next_deadline_us
    later(core, 3_600)
    assert "r1" in evicted(core)
