"""Commands that are withdrawn: before, during and after their first attempt."""

import asyncio

import pytest

from schemas.observations import CommandEnded
from streams.sink.sink import SinkSettings
from tests.contracts.fake_api_server import LOST, Fault
from tests.unit.streams.sink_world import acting, applied, bind, evict


def test_withdrawn_before_it_started() -> None:
    """A command that waits for a slot is withdrawn without any call."""

    async def scene() -> None:
        async with acting(SinkSettings(calls_max=1)) as world:
            world.api.add_pod("a")
            world.api.add_pod("b")
            world.api.gate = asyncio.Event()
            world.sink.on_decision([bind("a", number="7.0"), bind("b", number="7.1")])
            await world.until(lambda: world.api.in_flight)
            world.sink.on_decision([], withdrawn=["7.1"])
            world.api.gate.set()
            expected = [
                applied("7.0"),
                CommandEnded(command_id="7.1", uid="uid-b", outcome="Withdrawn"),
            ]
            assert expected == await world.answered(2)
            assert [("bind", "a")] == world.api.calls

    asyncio.run(scene())


def test_withdrawn_in_flight_answers_its_outcome() -> None:
    """A bind whose request is under way when the withdrawal comes ends as it ends."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.gate = asyncio.Event()
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.in_flight)
            world.sink.on_decision([], withdrawn=["7.0"])
            world.api.gate.set()
            assert [applied()] == await world.answered()

    asyncio.run(scene())


@pytest.mark.parametrize("happens", [True, False])
def test_withdrawn_after_a_lost_answer_asks_the_pod(happens: bool) -> None:
    """After a lost answer the pod itself says whether the withdrawal came in time."""

    async def scene() -> None:
        async with acting(SinkSettings(retry_s=60)) as world:
            world.api.add_pod("a")
            world.api.fail("bind", Fault(LOST, happens=happens))
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.calls and not world.api.in_flight)
            await asyncio.sleep(0.01)
            world.sink.on_decision([], withdrawn=["7.0"])
            expected = "Applied" if happens else "Withdrawn"
            assert [expected] == [result.outcome for result in await world.answered()]
            assert 1 == world.api.count("bind")

    asyncio.run(scene())


def test_withdrawal_ends_the_wait_for_a_budget() -> None:
    """An eviction that a budget holds back is withdrawn at once: nothing is in flight."""

    async def scene() -> None:
        async with acting(SinkSettings(retry_s=60)) as world:
            world.api.add_pod("a", node="n1")
            world.api.budgets.add(("default", "a"))
            world.sink.on_decision([evict(deadline_us=10**12)])
            await world.until(lambda: world.api.calls and not world.api.in_flight)
            await asyncio.sleep(0.01)
            world.sink.on_decision([], withdrawn=["8.0"])
            expected = CommandEnded(command_id="8.0", uid="uid-a", outcome="Withdrawn")
            assert [expected] == await world.answered()

    asyncio.run(scene())
