"""What holds evictions back: refusals, limits of policy, rounds that lead nowhere."""

import pytest

from tests.builders import START_US, Core, Json, ended, gone, member, node, podgroup
from tests.unit.state.test_gangs import grouped
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


def test_old_rounds_count_as_long_as_somebody_waits() -> None:
    """For the claimant, or another of its owner: hours later, too. An hour after the last one is gone they don't."""
    core = Core(evictions={"futileMax": 1})
    core.see(node("n", 100), runs("r0", "n", owner="ReplicaSet/r"), urgent("u0", owner="Job/u"))
    _comes_back(core, 0)
    assert "EvictionFutile" == core.code("u1")
    for _ in range(3):
        later(core, 3_600)
        assert (["r0"], "EvictionFutile") == (list(evicted(core)), core.code("u1"))
    core.see(gone("pods", "u1"))
    core.see(urgent("u2", owner="Job/u"))
    assert "EvictionFutile" == core.code("u2")
    core.see(gone("pods", "u2"))
    later(core, 3_600)
    assert {} == core.state.tables["preempted"]
    core.see(urgent("u3", owner="Job/u"))
    assert "r1" in evicted(core)


def test_gangs_count_rounds_as_long_as_they_wait() -> None:
    """The same for a gang: three victims in all, however long it waits."""
    core = Core(gangs={"enablePreemption": True})
    core.see(node("n", 100), runs("r0", "n", owner="ReplicaSet/r"), podgroup("g", 1))
    core.see(member("g-0", "g", spec={"priority": 10}), topic="pods")
    for number in range(3):
        core.see(ended(evicted(core)[f"r{number}"]), topic="results")
        again = runs(f"r{number + 1}", "n", owner="ReplicaSet/r")
        core.see(gone("pods", f"r{number}"), again)
        later(core, 60)
    for _ in range(3):
        later(core, 3_600)
    assert ["r0", "r1", "r2"] == list(evicted(core))
    assert "EvictionFutile" == core.code("g-0")


def test_rounds_that_led_to_a_bind_are_not_futile() -> None:
    """Six replicas of one owner evict six of another, one after the other and at once: each gets its room."""
    core = Core()
    core.see(
        node("n", 600), *(runs(f"r{number}", "n", owner="ReplicaSet/r") for number in range(6))
    )
    core.see(urgent("u0", owner="ReplicaSet/u"))
    _moves_in(core, "u0")
    core.see(*(urgent(f"u{number}", owner="ReplicaSet/u") for number in range(1, 6)))
    assert 6 == len(evicted(core))
    for number in range(1, 6):
        _moves_in(core, f"u{number}")
    assert {} == core.state.rounds.of


def _moves_in(core: Core, name: str) -> None:
    """The victims of the pod's node leave, and it is bound there."""
    leave(core, *(key for key in evicted(core) if f"uid-{key}" in core.state.pods))
    rest(core)
    core.see(urgent(name, owner="ReplicaSet/u", node=core.binds()[name], rv=2))
    rest(core)


def test_the_first_round_may_take_more_than_the_limit() -> None:
    """Four small pods of one owner make room for a large one, though three are allowed."""
    core = Core()
    small = [runs(f"r{number}", "n", owner="ReplicaSet/r") for number in range(4)]
    core.see(node("n", 400), *small, urgent("u", cpu=400))
    assert 4 == len(evicted(core))
    leave(core, *evicted(core))
    assert "u" in core.binds()


def test_a_round_does_not_go_beyond_the_limit() -> None:
    """Two victims a time and three allowed: the second round would be the fourth victim."""
    core = Core()
    core.see(node("n", 200), *_pair(0), urgent("u", cpu=200))
    assert ["r0", "s0"] == sorted(evicted(core))
    for name in ("r0", "s0"):
        core.see(ended(evicted(core)[name]), topic="results")
    core.see(gone("pods", "r0"), gone("pods", "s0"), *_pair(1))
    rest(core)
    later(core, 60)
    assert (["r0", "s0"], "EvictionFutile") == (sorted(evicted(core)), core.code("u"))


def _pair(number: int) -> list[Json]:
    return [runs(f"{name}{number}", "n", owner="ReplicaSet/r") for name in "rs"]


def test_a_refusal_is_no_round() -> None:
    """An eviction that is refused is asked for again every hour, and nobody is said to have been put back."""
    core = Core()
    core.see(node("n", 100), runs("r0", "n", owner="ReplicaSet/r"), urgent())
    for _ in range(5):
        assert "Preempting" == core.code("urgent")
        core.see(ended(evicted(core)["r0"], "Refused", status=403), topic="results")
        rest(core)
        assert "the eviction of default/r0 was refused" in core.pod("urgent").diagnosis.message
        later(core, 3_601)


def test_a_bind_of_a_partner_that_needs_nothing_ends_no_round() -> None:
    """B runs, and one more of it is seen bound after each round for A, which names it."""
    core = Core(gangs={"enablePreemption": True})
    core.see(node("n", 100), node("m", 4_000, unschedulable=True), podgroup("b", 1))
    core.see(runs("r0", "n", owner="ReplicaSet/r"), member("b-0", "b", node="m"), topic="pods")
    core.see(grouped("a", 1, "a", "b"), member("a-0", "a", spec={"priority": 10}))
    for number in range(3):
        core.see(ended(evicted(core)[f"r{number}"]), topic="results")
        again = runs(f"r{number + 1}", "n", owner="ReplicaSet/r")
        core.see(gone("pods", f"r{number}"), again, member(f"b-x{number}", "b", node="m"))
        later(core, 60)
    assert (["r0", "r1", "r2"], "EvictionFutile") == (list(evicted(core)), core.code("a-0"))


def test_a_later_round_takes_whom_it_needs() -> None:
    """One victim is left: the large one, whose room is needed, though the small one is less important."""
    core = Core(evictions={"futileMax": 2})
    core.see(node("n", 200), runs("r0", "n", 200, owner="ReplicaSet/r"), urgent("u", 150))
    core.see(ended(evicted(core)["r0"]), topic="results")
    large = runs("large", "n", 150, owner="ReplicaSet/r", started_us=START_US)
    small = runs("small", "n", 50, owner="ReplicaSet/r", started_us=START_US + 9 * SECOND_US)
    core.see(gone("pods", "r0"), large, small)
    rest(core)
    assert ["r0", "large"] == list(evicted(core))


def test_who_must_leave_with_a_victim_counts_in_its_round() -> None:
    """Three that leave together, and four are allowed: no second round."""
    core = Core(gangs={"kubernetesWorkloads": True}, evictions={"futileMax": 4})
    declared = podgroup("g", 3, group="scheduling.k8s.io", disruption="all")
    core.see(node("n", 300), declared, *_trio(0), urgent("u"))
    assert 3 == len(evicted(core))
    for name in evicted(core):
        core.see(ended(evicted(core)[name]), topic="results")
    core.see(*(gone("pods", name) for name in evicted(core)), *_trio(1))
    rest(core)
    later(core, 60)
    assert (3, "EvictionFutile") == (len(evicted(core)), core.code("u"))


def _trio(number: int) -> list[Json]:
    names = (f"{name}{number}" for name in "rst")
    return [runs(name, "n", owner="ReplicaSet/r", scheduling_group="g") for name in names]
