"""The sink's binds against an API server in memory: every outcome of design section 4."""

import asyncio

import pytest

from schemas.labels import COMMAND_ID
from schemas.observations import CommandEnded, FoundPod
from streams.sink.api import Response
from streams.sink.sink import SinkSettings
from tests.contracts.fake_api_server import LOST, Fault
from tests.unit.streams.sink_world import BUSY, INTERNAL, acting, applied, bind


def test_bind_is_one_call_that_carries_annotations_and_command_id() -> None:
    """A bind without trouble costs one request, and the pod tells which command bound it."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.sink.on_decision([bind()])
            assert [applied()] == await world.answered()
            assert [("bind", "a")] == world.api.calls
            pod = world.api.pods["default", "a"]
            assert "n1" == pod["spec"]["nodeName"]
            assert {
                "scheduling.koordinator.sh/device-allocated": "{}",
                COMMAND_ID: "7.0",
            } == pod["metadata"]["annotations"]

    asyncio.run(scene())


@pytest.mark.parametrize("lost", [LOST, INTERNAL], ids=["timeout", "500"])
def test_lost_answer_of_a_success_is_found_by_reading(lost: Response) -> None:
    """The bind took effect but its answer was lost: the pod is read, nothing is sent twice."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("bind", Fault(lost, happens=True))
            world.sink.on_decision([bind()])
            assert [applied(code=200)] == await world.answered()
            assert [("bind", "a"), ("read_pod", "a")] == world.api.calls

    asyncio.run(scene())


def test_500_and_timeouts_are_never_an_end() -> None:
    """Failures that did nothing, failed reads among them, are retried until the bind is done."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("bind", INTERNAL, LOST, BUSY)
            world.api.fail("read_pod", LOST, Response(403, "Forbidden", "not yet"), INTERNAL)
            world.sink.on_decision([bind()])
            assert [applied()] == await world.answered()
            assert 4 == world.api.count("bind")

    asyncio.run(scene())


def test_conflict_with_our_own_bind_is_applied() -> None:
    """A 409 from a pod that carries this command's id means that an earlier attempt succeeded."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", node="n1", annotations={COMMAND_ID: "7.0"})
            world.sink.on_decision([bind()])
            assert ["Applied"] == [result.outcome for result in await world.answered()]

    asyncio.run(scene())


def test_conflict_with_a_foreign_bind_is_stale_and_tells_what_was_found() -> None:
    """Somebody else bound the pod, with devices: the result carries node and devices."""

    async def scene() -> None:
        async with acting() as world:
            allocated = '{"gpu":[{"minor":1,"resources":{"kubernetes.io/gpu-core":"100"}}]}'
            annotations = {
                "scheduling.koordinator.sh/device-allocated": allocated,
                COMMAND_ID: "3.1",
            }
            world.api.add_pod("a", node="n9", annotations=annotations)
            world.sink.on_decision([bind()])
            (result,) = await world.answered()
            assert ("Stale", 409) == (result.outcome, result.status)
            assert "already assigned to node n9" == result.message
            found = result.found
            assert found is not None
            assert ("n9", "3.1", "uid-a") == (found.node, found.command_id, found.uid)
            assert [("gpu", 1, {"koordinator.sh/gpu-core": 100})] == [
                (item.type, item.minor, item.resources) for item in found.allocations
            ]

    asyncio.run(scene())


def test_terminating_pod_is_stale() -> None:
    """A pod that is being deleted cannot be bound: Stale, with its deletion time."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            metadata = world.api.pods["default", "a"]["metadata"]
            metadata["deletionTimestamp"] = "1970-01-01T00:00:02Z"
            world.sink.on_decision([bind()])
            (result,) = await world.answered()
            expected = FoundPod(uid="uid-a", rv=1, deleted_us=2_000_000)
            assert ("Stale", expected) == (result.outcome, result.found)

    asyncio.run(scene())


def test_pod_that_is_gone_is_stale() -> None:
    """404 ends a bind as Stale without any further call."""

    async def scene() -> None:
        async with acting() as world:
            world.sink.on_decision([bind()])
            (result,) = await world.answered()
            assert ("Stale", 404, None) == (result.outcome, result.status, result.found)
            assert [("bind", "a")] == world.api.calls

    asyncio.run(scene())


def test_successor_of_the_same_name_is_not_bound() -> None:
    """A pod of the same name with another uid is left alone: Stale."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", uid="uid-successor")
            world.sink.on_decision([bind()])
            (result,) = await world.answered()
            assert "Stale" == result.outcome
            assert "nodeName" not in world.api.pods["default", "a"]["spec"]

    asyncio.run(scene())


def test_gated_pod_is_refused() -> None:
    """A conflict with a pod that is still free to bind is the API server's refusal."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a", gates=("wait",))
            world.sink.on_decision([bind()])
            (result,) = await world.answered()
            assert ("Refused", 409) == (result.outcome, result.status)
            assert "the pod has scheduling gates" == result.message

    asyncio.run(scene())


@pytest.mark.parametrize("code", [400, 403, 422])
def test_client_errors_are_refusals_with_the_message(code: int) -> None:
    """403 and 422 end a bind at once, with what the API server said."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("bind", Response(code, "No", "the webhook says no"))
            world.sink.on_decision([bind()])
            expected = CommandEnded(
                command_id="7.0",
                uid="uid-a",
                outcome="Refused",
                status=code,
                message="the webhook says no",
            )
            assert [expected] == await world.answered()

    asyncio.run(scene())


def test_concurrency_is_bounded() -> None:
    """However many binds are open, no more than `calls_max` are in flight, and all get done."""

    async def scene() -> None:
        settings = SinkSettings(calls_max=4, retry_s=0.001)
        async with acting(settings) as world:
            binds = [bind(f"p{index}", number=f"1.{index}") for index in range(50)]
            for command in binds:
                world.api.add_pod(command.name)
            world.sink.on_decision(binds)
            await world.answered(50)
            assert 4 == world.api.in_flight_max
            assert {command.id for command in binds} == {each.command_id for each in world.results}

    asyncio.run(scene())


def test_a_command_in_back_off_holds_no_slot() -> None:
    """With one slot, a bind whose answers fail does not hold up the next one."""

    async def scene() -> None:
        async with acting(SinkSettings(calls_max=1, retry_s=60)) as world:
            world.api.add_pod("a")
            world.api.add_pod("b")
            world.api.fail("bind", INTERNAL)
            world.sink.on_decision([bind("a", number="7.0"), bind("b", number="7.1")])
            assert ["7.1"] == [result.command_id for result in await world.answered()]

    asyncio.run(scene())


def test_a_result_is_published_until_the_log_takes_it() -> None:
    """A log that is away does not lose a result."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.refusals = 3
            world.sink.on_decision([bind()])
            assert [applied()] == await world.answered()
            assert 1 == world.api.count("bind")

    asyncio.run(scene())
