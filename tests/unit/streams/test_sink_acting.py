"""When the sink acts: only with the Lease, and again after a restart."""

import asyncio
import gc
import weakref

import pytest

from schemas.envelope import BindPod
from schemas.labels import COMMAND_ID
from streams.sink.api import Response
from streams.sink.sink import SinkSettings
from tests.contracts.fake_api_server import LOST, FakeApiServer, Fault
from tests.unit.streams.sink_world import INTERNAL, World, acting, applied, bind


def test_nothing_is_called_before_activation() -> None:
    """A standby takes decisions in, keeps what is open, and calls nobody."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("a")
            world.api.add_pod("b")
            world.sink.on_decision([bind("a", number="7.0"), bind("b", number="7.1")])
            world.sink.on_decision([], ended=["7.0"])
            await asyncio.sleep(0.02)
            assert [] == world.api.calls
            assert ["7.1"] == list(world.sink.open_commands)
            world.sink.activate()
            assert [applied("7.1", name="b")] == await world.answered()
            assert [("bind", "b")] == world.api.calls

    asyncio.run(scene())


def test_a_standby_keeps_nothing_of_what_has_ended() -> None:
    """It takes in every command that others carry out; one that has ended leaves nothing behind."""

    async def scene() -> None:
        async with acting() as world:
            world.lease = False
            queued = weakref.ref(command := bind("a", number="7.0"))
            world.sink.on_decision([command])
            world.sink.deactivate()
            taken = weakref.ref(command := bind("b", number="7.1"))
            world.sink.on_decision([command])
            del command
            world.sink.on_decision([], ended=["7.0", "7.1"])
            await asyncio.sleep(0.02)
            gc.collect()
            assert (None, None) == (queued(), taken())

    asyncio.run(scene())


def test_losing_the_lease_stops_new_calls_and_lets_one_in_flight_end() -> None:
    """With one call in flight the Lease goes: that one is answered, the rest is not even tried."""

    async def scene() -> None:
        async with acting(SinkSettings(calls_max=1)) as world:
            world.api.add_pod("a")
            world.api.add_pod("b")
            world.api.gate = asyncio.Event()
            world.sink.on_decision([bind("a", number="7.0"), bind("b", number="7.1")])
            await world.until(lambda: world.api.in_flight)
            world.sink.deactivate()
            world.api.gate.set()
            await world.sink.drain()
            await asyncio.sleep(0.02)
            assert [applied("7.0")] == world.results
            assert [("bind", "a")] == world.api.calls

    asyncio.run(scene())


def test_an_expired_lease_stops_calls_even_before_anybody_noticed() -> None:
    """`may_act` is asked before every call: that the Lease has expired is enough."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.lease = False
            world.sink.on_decision([bind()])
            await asyncio.sleep(0.02)
            assert [] == world.api.calls
            world.sink.deactivate()
            world.lease = True
            world.sink.activate()
            assert [applied()] == await world.answered()

    asyncio.run(scene())


def test_lease_lost_between_two_attempts() -> None:
    """A bind in back-off is not retried without the Lease; the next holder ends it, bound once."""

    async def scene() -> None:
        async with acting(SinkSettings(retry_s=0.005)) as world:
            world.api.add_pod("a")
            world.api.fail("bind", Fault(LOST, happens=True))
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.calls and not world.api.in_flight)
            world.sink.deactivate()
            await asyncio.sleep(0.03)
            assert [] == world.results
            async with acting(active=False) as successor:
                successor.api.pods = world.api.pods
                successor.sink.restore(world.sink.open_commands.values())
                successor.sink.activate()
                (result,) = await successor.answered()
                assert ("Applied", "7.0") == (result.outcome, result.command_id)

    asyncio.run(scene())


def test_restart_answers_open_commands_whatever_the_predecessor_did() -> None:
    """After a restart every open bind is answered: done before, done now, or too late."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("done", node="n1", annotations={COMMAND_ID: "7.0"})
            world.api.add_pod("open")
            opened = [
                bind("done", number="7.0"),
                bind("open", number="7.1"),
                bind("gone", number="7.2"),
            ]
            world.sink.restore(opened)
            world.sink.activate()
            await world.answered(3)
            outcomes = {result.command_id: result.outcome for result in world.results}
            assert {"7.0": "Applied", "7.1": "Applied", "7.2": "Stale"} == outcomes

    asyncio.run(scene())


@pytest.mark.parametrize("done", [True, False])
def test_restart_with_a_withdrawn_command_asks_the_pod(done: bool) -> None:
    """A withdrawn command that a predecessor may have begun is read, never sent."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod(
                "a", node="n1" if done else None, annotations={COMMAND_ID: "7.0"} if done else {}
            )
            world.sink.restore([bind()])
            world.sink.on_decision([], withdrawn=["7.0"])
            world.sink.activate()
            expected = "Applied" if done else "Withdrawn"
            assert [expected] == [result.outcome for result in await world.answered()]
            assert [("read_pod", "a")] == world.api.calls

    asyncio.run(scene())


def test_a_command_is_answered_once_though_decisions_repeat_it() -> None:
    """A command delivered twice, or still open after its answer, is carried out once."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.sink.on_decision([bind()])
            await world.answered()
            world.sink.on_decision([bind()])
            world.sink.deactivate()
            world.sink.activate()
            await asyncio.sleep(0.02)
            assert [applied()] == world.results
            assert 1 == world.api.count("bind")
            world.sink.on_decision([], ended=["7.0"])
            assert {} == world.sink.open_commands

    asyncio.run(scene())


def test_what_has_ended_is_not_retried() -> None:
    """The core saw the end of a command in back-off: nothing is sent or published any more."""

    async def scene() -> None:
        async with acting(SinkSettings(retry_s=0.01)) as world:
            world.api.add_pod("a")
            world.api.fail("bind", INTERNAL)
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.calls and not world.api.in_flight)
            world.sink.on_decision([], ended=["7.0"])
            await asyncio.sleep(0.03)
            assert ([], 1) == (world.results, len(world.api.calls))

    asyncio.run(scene())


def test_act_reads_to_the_end_first_and_lets_calls_end() -> None:
    """Under the Lease: read everything, then act; when cancelled, calls in flight end first."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("a")
            world.api.gate = asyncio.Event()

            async def read_to_end() -> None:
                assert not world.sink.active
                world.sink.on_decision([bind()])

            under_lease = asyncio.create_task(world.sink.act(read_to_end))
            await world.until(lambda: world.api.in_flight)
            under_lease.cancel()
            await asyncio.sleep(0.01)
            assert (False, False) == (world.sink.active, under_lease.done())
            world.api.gate.set()
            await asyncio.wait([under_lease])
            assert [applied()] == world.results

    asyncio.run(scene())


def test_leaving_waits_for_calls_but_not_for_the_log() -> None:
    """With the log away a deposed sink still comes to rest; the result is published later."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.refusals = 10**9
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.calls and not world.api.in_flight)
            world.sink.deactivate()
            async with asyncio.timeout(1):
                await world.sink.drain()
            assert [] == world.results
            world.refusals = 0
            assert [applied()] == await world.answered()

    asyncio.run(scene())


def test_leaving_does_not_wait_for_a_call_that_never_began() -> None:
    """A sink that fails cancels its calls; one of the same turn never ran, and the Lease was neither kept nor left."""

    async def scene() -> None:
        world = World(FakeApiServer())
        sink = world.build()

        class Failing(FakeApiServer):
            async def bind(self, command: BindPod) -> Response:
                await asyncio.sleep(0.01)
                sink.on_decision([bind("b", number="8.0")])  # begins a call in this very turn
                raise ValueError("broken")

        world.api = Failing()
        sink = world.build()
        sink.on_decision([bind()])

        async def read_to_end() -> None:
            """Nothing to read."""

        running = asyncio.ensure_future(asyncio.gather(sink.run(), return_exceptions=True))
        acting = asyncio.create_task(sink.act(read_to_end))
        (failure,) = await running
        assert isinstance(failure, ExceptionGroup)
        acting.cancel()
        await asyncio.wait([acting], timeout=2)
        assert acting.cancelled()

    asyncio.run(scene())
