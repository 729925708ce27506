"""Room that is kept for a pod while others leave: whose it is, and when it is given up."""

import pytest

from state import invariants
from tests.builders import START_US, Core, cards, ended, gone, node, pod
from tests.unit.state.test_gangs import bind_ids
from tests.unit.state.test_preemption import rest

PREEMPTED = {"priority": 10}


def claimed(**policy: object) -> Core:
    """A pod that was nominated for the room of a less important one."""
    core = Core(**policy)
    core.see(node("n", 100), pod("low", 100, node="n"))
    core.see(pod("high", 100, spec=PREEMPTED))
    assert ("n", "Preempting") == (core.pod("high").nominated, core.code("high"))
    return core


def evictions(core: Core) -> list[str]:
    """Ids of the evictions so far."""
    return [c.id for d in core.decisions for c in d.commands if c.kind == "EvictPod"]


def test_room_that_comes_free_goes_to_who_claimed_it() -> None:
    """An older pod of the lower priority does not get it."""
    core = claimed()
    core.see(pod("older", 100, created_us=1))
    core.see(ended(evictions(core)[0]))
    core.see(gone("pods", "low"))
    assert {"high": "n"} == core.binds()
    invariants.check(core.state)


def test_a_claim_dies_with_its_pod() -> None:
    """The claimant is deleted before the victim has gone: the next pod gets the room, without an eviction."""
    core = claimed()
    core.see(gone("pods", "high"), pod("next", 100))
    core.see(ended(evictions(core)[0]))
    core.see(gone("pods", "low"))
    assert {"next": "n"} == core.binds()
    assert 1 == len(evictions(core))


def test_a_claim_that_is_over_is_not_made_anew() -> None:
    """A victim that takes longer than `nominatedFor` to leave is not waited for any more, nor asked again."""
    core = claimed(preemption={"nominatedFor": "60s"})
    core.see(ended(evictions(core)[0]))
    assert core.pod("high").nominated_until_us == core.decisions[-1].next_deadline_us
    core.see(advance_us=60_000_000)
    assert ("", 1) == (core.pod("high").nominated, len(evictions(core)))
    core.see(gone("pods", "low"))
    assert {"high": "n"} == core.binds()


def test_a_claim_ends_when_the_node_is_closed_to_it() -> None:
    """Cordoned while the victim leaves: the claimant takes another node when there is one."""
    core = claimed()
    core.see(node("n", 100, rv=2, unschedulable=True))
    assert "" == core.pod("high").nominated
    core.see(node("m", 100))
    assert {"high": "m"} == core.binds()
    invariants.check(core.state)


@pytest.mark.parametrize("status", [403, 429])
def test_evictions_that_are_refused_are_not_asked_for_without_end(status: int) -> None:
    """The API server forbids them, or a budget does: nobody asks for the same one again, and it is told."""
    core = claimed()
    core.see(ended(evictions(core)[0], "Refused", status=status))
    core.see(node("other", 10))
    assert 1 == len(evictions(core))
    assert "EvictionFutile" == core.code("high")
    invariants.check(core.state)


def test_room_elsewhere_ends_the_claim() -> None:
    """A node joins while the victim leaves."""
    core = claimed()
    core.see(node("m", 100))
    assert {"high": "m"} == core.binds()
    assert "" == core.pod("high").nominated


def test_a_claim_ends_when_somebody_else_binds_the_claimant_there() -> None:
    """Without a device allocation: the card that was kept for it is nobody's then (found by simulation, seed 7007)."""
    core, gpu = Core(), {"requests": {"cpu": 100, "nvidia.com/gpu": 1}}
    core.see(node("n", gpus=1), cards("n", 1), pod("low", spec=gpu))
    core.see(pod("high", spec={**gpu, **PREEMPTED}))
    core.see(ended("3.0"), pod("low", node="n", rv=2, spec=gpu))
    core.see(ended(evictions(core)[0]))
    core.see(gone("pods", "low"), pod("high", node="n", rv=2, spec={**gpu, **PREEMPTED}))
    invariants.check(core.state)
    assert (1, 1) == (core.state.cards_left("n"), core.state.columns.cards_free[0])


def test_an_eviction_that_nobody_needs_any_more_is_withdrawn() -> None:
    """The claimant goes while a budget still holds the victim: the sink is asked to leave it, once, and it stays."""
    core = claimed()
    (eviction,) = evictions(core)
    assert (eviction,) == core.see(gone("pods", "high")).withdrawn
    assert () == core.see().withdrawn
    core.see(ended(eviction, "Withdrawn"))
    assert ("n", "") == (core.pod("low").node, core.pod("low").command)
    core.see(pod("again", 100, spec=PREEMPTED))  # a later claim may have it after all
    assert 2 == len(evictions(core))
    invariants.check(core.state)


def test_room_elsewhere_withdraws_the_eviction() -> None:
    """A node joins, the claimant goes there: the victim is left alone."""
    core = claimed()
    decision = core.see(node("m", 100))
    assert ({"high": "m"}, tuple(evictions(core))) == (core.binds(), decision.withdrawn)


def test_an_eviction_that_was_done_before_it_could_be_withdrawn_is_done() -> None:
    """The sink answers `Applied`: the pod is leaving, and its room is anybody's."""
    core = claimed()
    core.see(gone("pods", "high"), pod("next", 100))
    core.see(ended(evictions(core)[0]))
    core.see(gone("pods", "low"))
    assert {"next": "n"} == core.binds()


@pytest.mark.parametrize("report", [False, True], ids=["cpu", "cards"])
def test_of_two_evictions_on_a_node_the_one_that_is_not_needed_is_withdrawn(report: bool) -> None:
    """Two claimants, a victim for each; one claimant goes: one victim stays, of equals that which started first."""
    core = Core()
    core.see(node("n", 200, gpus=2), *([cards("n", 2)] if report else []))
    requests = {"cpu": 1, "nvidia.com/gpu": 1} if report else {"cpu": 100}
    for index in (0, 1):
        core.see(pod(f"low{index}", created_us=START_US + index, spec={"requests": requests}))
    core.see(*[ended(command) for command in bind_ids(core).values()], topic="results")
    core.see(*[pod(f"high{i}", spec={**PREEMPTED, "requests": requests}) for i in (0, 1)])
    asked = {c.name: c.id for d in core.decisions for c in d.commands if c.kind == "EvictPod"}
    assert (asked["low0"],) == core.see(gone("pods", "high0")).withdrawn
    assert () == core.see().withdrawn
    core.see(ended(asked["low0"], "Withdrawn"), ended(asked["low1"]))
    core.see(gone("pods", "low1"))
    rest(core)
    assert ("n", "n") == (core.pod("low0").node, core.binds()["high1"])


def test_small_victims_stay_where_a_later_one_makes_room_for_all() -> None:
    """Each claimant finds the least that it needs; the last one's victim is as large as two, so that one may stay."""
    core = Core()
    sizes = {"a": 200, "b": 100, "c": 100}
    core.see(node("n", 400), *[pod(name, cpu, node="n") for name, cpu in sizes.items()])
    core.see(*[pod(f"high{index}", 100, spec=PREEMPTED) for index in range(3)])
    assert 2 == len(evictions(core))
    invariants.check(core.state)


def test_a_victim_that_finished_is_not_evicted_and_makes_no_room_twice() -> None:
    """It gave its room back when it finished: the next claimant's victim is needed."""
    core = Core()
    core.see(node("n", 200), pod("done", 100, node="n"), pod("low", 100, node="n"))
    core.see(pod("high0", 100, spec=PREEMPTED, created_us=START_US - 1))
    (asked,) = evictions(core)
    victim = core.state.pods[core.state.commands[asked].uid].name
    finished = pod(victim, 100, node="n", phase="Succeeded", rv=2)
    assert (asked,) == core.see(finished, pod("high1", 100, spec=PREEMPTED)).withdrawn
    rest(core)
    assert 2 == len(evictions(core))
