"""The sink's evictions: disruption budgets, deadlines, pods that have moved on."""

import asyncio

import pytest

from schemas.observations import CommandEnded
from streams.sink.api import Response
from tests.contracts.fake_api_server import LOST, Fault, held_by_budget
from tests.unit.streams.sink_world import BUSY, INTERNAL, acting, applied, evict


def test_eviction_is_applied_and_told_in_an_event() -> None:
    """An accepted eviction ends Applied; an Event named by the command id carries the reason."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.sink.on_decision([evict()])
            assert [applied("8.0")] == await world.answered()
            await world.until(lambda: world.api.events)
            assert "Evicted by Lockstep: asked" == world.api.events["default", "8.0"]["message"]

    asyncio.run(scene())


def test_budget_is_waited_for_until_the_deadline() -> None:
    """A disruption budget holds the eviction back; at the deadline its message is the refusal."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.api.budgets.add(("default", "a"))
            world.sink.on_decision([evict(deadline_us=1_000)])
            await world.until(lambda: world.api.count("evict") >= 3)
            assert [] == world.results
            world.now_us = 1_000
            expected = CommandEnded(
                command_id="8.0",
                uid="uid-a",
                outcome="Refused",
                status=429,
                message="the budget needs 1 healthy pod and has 1",
            )
            assert [expected] == await world.answered()

    asyncio.run(scene())


def test_a_deadline_is_of_the_logs_time() -> None:
    """A log far ahead of the sink's clock, or far behind it, makes the budget wait neither longer nor shorter."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.api.budgets.add(("default", "a"))
            world.now_us = 5_000
            world.sink.note_time(1_000_000)
            world.sink.on_decision([evict(deadline_us=1_000_100)])
            world.now_us = 5_099
            await world.until(lambda: world.api.count("evict") >= 3)
            assert [] == world.results
            world.now_us = 5_100
            assert ["Refused"] == [result.outcome for result in await world.answered()]

    asyncio.run(scene())


def test_budget_that_allows_in_time_is_used() -> None:
    """Once the budget lets go, the eviction is applied."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.api.fail("evict", held_by_budget("not now"), held_by_budget("not now"))
            world.sink.on_decision([evict(deadline_us=10**9)])
            assert [applied("8.0")] == await world.answered()

    asyncio.run(scene())


def test_a_busy_server_is_no_budget() -> None:
    """429 without a budget's cause is throttling: retried even after the deadline."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.api.fail("evict", BUSY, BUSY, INTERNAL)
            world.now_us = 10
            world.sink.on_decision([evict(deadline_us=1)])
            assert [applied("8.0")] == await world.answered()
            assert 4 == world.api.count("evict")

    asyncio.run(scene())


def test_two_budgets_over_one_pod_end_at_the_deadline() -> None:
    """The API server answers 500 to two budgets for ever: it counts as a budget's refusal."""

    async def scene() -> None:
        async with acting() as world:
            message = "This pod has more than one PodDisruptionBudget, which is not supported."
            world.api.add_pod("a", node="n1")
            world.api.fail("evict", Response(500, "InternalError", message))
            world.sink.on_decision([evict()])
            (result,) = await world.answered()
            assert ("Refused", message) == (result.outcome, result.message)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("uid", "terminating", "outcome"),
    [(None, False, "Stale"), ("uid-other", False, "Stale"), ("uid-a", True, "Applied")],
    ids=["gone", "successor", "terminating"],
)
def test_eviction_of_a_pod_that_has_moved_on(
    uid: str | None, terminating: bool, outcome: str
) -> None:
    """A pod that is gone or replaced is Stale, one that terminates already is Applied."""

    async def scene() -> None:
        async with acting() as world:
            if uid:
                world.api.add_pod("a", uid=uid, node="n1")
            if terminating:
                metadata = world.api.pods["default", "a"]["metadata"]
                metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
                world.api.fail("evict", Response(409, "Conflict", "being deleted"))
            world.sink.on_decision([evict()])
            assert [outcome] == [result.outcome for result in await world.answered()]

    asyncio.run(scene())


def test_lost_answer_of_an_eviction_is_found_by_reading() -> None:
    """The eviction took effect but its answer was lost: the terminating pod says so."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1")
            world.api.fail("evict", Fault(LOST, happens=True))
            world.sink.on_decision([evict()])
            assert ["Applied"] == [result.outcome for result in await world.answered()]
            assert 1 == world.api.count("evict")

    asyncio.run(scene())
