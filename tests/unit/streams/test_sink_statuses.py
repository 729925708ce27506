"""Statuses on their way: the last one wins, binds go first."""

import asyncio

import pytest

from streams.sink.api import Response
from streams.sink.sink import SinkSettings
from tests.unit.streams.sink_world import (
    INTERNAL,
    acting,
    applied,
    bind,
    emitted,
    group_status,
    status,
)


def test_status_last_one_wins_and_repeats_are_not_written() -> None:
    """Of the statuses that gathered only the last is written; the same again costs no call."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("a")
            for message in ("one", "two", "three"):
                world.sink.on_decision([status(message=message)])
            world.sink.activate()
            await world.until(lambda: world.api.count("patch_status"))
            world.sink.on_decision([status(message="three")])
            await asyncio.sleep(0.01)
            assert 1 == world.api.count("patch_status")
            (condition,) = world.api.pods["default", "a"]["status"]["conditions"]
            assert {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "three",
            } == condition
            assert [] == world.results

    asyncio.run(scene())


def test_status_of_a_pod_that_is_being_bound_is_dropped() -> None:
    """A waiting status must not overwrite the condition that a bind sets."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("a")
            world.sink.on_decision([status()])
            world.sink.on_decision([bind()])
            world.sink.activate()
            await world.answered()
            await asyncio.sleep(0.01)
            assert [("bind", "a")] == world.api.calls

    asyncio.run(scene())


def test_bind_waits_for_a_status_in_flight() -> None:
    """A status of the same pod that is under way lands before the bind, never after it."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.gate = asyncio.Event()
            world.sink.on_decision([status()])
            await world.until(lambda: world.api.in_flight)
            world.sink.on_decision([bind()])
            await asyncio.sleep(0.01)
            assert 0 == world.api.count("bind")
            world.api.gate.set()
            assert [applied()] == await world.answered()
            assert [("patch_status", "a"), ("bind", "a")] == world.api.calls

    asyncio.run(scene())


@pytest.mark.parametrize("code", [404, 422])
def test_status_of_a_pod_that_is_gone_is_dropped(code: int) -> None:
    """404, and 422 for another uid, end a status without another try."""

    async def scene() -> None:
        async with acting() as world:
            world.api.fail("patch_status", Response(code, "", "metadata.uid: is immutable"))
            world.sink.on_decision([status()])
            await asyncio.sleep(0.02)
            assert 1 == world.api.count("patch_status")

    asyncio.run(scene())


def test_status_that_the_server_did_not_take_is_written_later() -> None:
    """After a 500 or a conflict the newest status of the pod is written, not the failed one."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("patch_status", INTERNAL, Response(409, "Conflict", "modified"))
            world.sink.on_decision([status(message="old")])
            await world.until(lambda: world.api.count("patch_status"))
            world.sink.on_decision([status(message="new")])
            pod = world.api.pods["default", "a"]
            await world.until(lambda: pod["status"].get("conditions"))
            assert "new" == pod["status"]["conditions"][0]["message"]

    asyncio.run(scene())


def test_status_is_written_when_the_api_server_has_read_its_roles() -> None:
    """403 of a server that has just started does not leave a waiting pod without its reason."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("patch_status", *[Response(403, "Forbidden", "not yet")] * 3)
            world.sink.on_decision([status(message="why")])
            pod = world.api.pods["default", "a"]
            await world.until(lambda: pod["status"].get("conditions"))
            assert "why" == pod["status"]["conditions"][0]["message"]
            assert 4 == world.api.count("patch_status")

    asyncio.run(scene())


def test_binds_go_before_statuses() -> None:
    """While binds wait for a slot, at most one status is in flight beside them."""

    async def scene() -> None:
        async with acting(SinkSettings(calls_max=2, statuses_max=8), active=False) as world:
            world.api.gate = asyncio.Event()
            for index in range(20):
                world.api.add_pod(f"b{index}")
                world.sink.on_decision([status(f"s{index}", number=f"2.{index}")])
                world.sink.on_decision([bind(f"b{index}", number=f"3.{index}")])
            world.sink.activate()
            await world.until(lambda: world.api.in_flight)
            await asyncio.sleep(0.01)
            assert {"bind": 2, "patch_status": 1} == {
                method: world.api.count(method) for method in ("bind", "patch_status")
            }
            world.api.gate.set()
            await world.answered(20)
            await world.until(lambda: world.api.count("patch_status") == 20)

    asyncio.run(scene())


def test_status_of_a_pod_group_is_written_each_time() -> None:
    """The core repeats one only when somebody overwrote it, so the sink does not hold it back."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_group("g")
            for number in ("9.0", "10.0"):
                world.sink.on_decision([group_status(number, phase="Running", running=2)])
                group = world.api.groups["default", "g"]
                await world.until(lambda group=group: group["status"])
                assert {"phase": "Running", "running": 2} == group["status"]
                group["status"] = {}
            assert 2 == world.api.count("patch_status")

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("causes", "told"), [([], 0), ([{"field": "status.phase", "reason": "FieldValueInvalid"}], 1)]
)
def test_status_of_a_pod_group_that_is_refused(
    causes: list[dict[str, str]], told: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Another uid is no news; a status that the CRD forbids is said. Neither is tried again."""

    async def scene() -> None:
        async with acting() as world:
            body = {"details": {"causes": causes}}
            world.api.fail("patch_status", Response(422, "Invalid", "no", body))
            world.sink.on_decision([group_status(phase="Running")])
            await asyncio.sleep(0.02)
            assert 1 == world.api.count("patch_status")

    asyncio.run(scene())
    assert told == sum(record.message == "status_not_written" for record in caplog.records)


def test_a_gangs_status_and_its_pods_do_not_wait_for_each_other() -> None:
    """A bind drops its pod's status only; the PodGroup's is written beside it."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.api.add_pod("a")
            world.api.add_group("a")
            world.sink.on_decision([status(), group_status("9.1", "a", phase="Scheduling")])
            world.sink.on_decision([bind()])
            world.sink.activate()
            await world.answered()
            await world.until(lambda: world.api.groups["default", "a"]["status"])
            assert [] == [name for name, _ in world.api.calls if name == "patch_status"][1:]

    asyncio.run(scene())


def test_an_event_is_made_by_who_acts() -> None:
    """Once, under the command's id; what was decided before this sink acted was told by another."""

    async def scene() -> None:
        async with acting(active=False) as world:
            world.sink.on_decision([emitted("9.0")])
            world.sink.activate()
            world.sink.on_decision([emitted("10.0")])
            await world.until(lambda: world.api.events)
            await asyncio.sleep(0.01)
            assert [("create_event", "10.0")] == world.api.calls
            assert "1 of 2 members" == world.api.events["default", "10.0"]["message"]
            assert [] == world.results

    asyncio.run(scene())


@pytest.mark.parametrize(("code", "told"), [(409, 0), (404, 0), (403, 1), (500, 1), (0, 1)])
def test_an_event_is_tried_once(code: int, told: int, caplog: pytest.LogCaptureFixture) -> None:
    """What stands against it is said in the log, unless the Event is there or its namespace is gone."""

    async def scene() -> None:
        async with acting() as world:
            world.api.fail("create_event", Response(code, "", "no"))
            world.sink.on_decision([emitted("9.0")])
            await asyncio.sleep(0.02)
            assert 1 == world.api.count("create_event")

    asyncio.run(scene())
    assert told == sum(record.message == "event_not_made" for record in caplog.records)


def test_a_pod_that_waits_has_an_event_for_each_code_of_its_diagnosis() -> None:
    """`kubectl describe pod` shows Events. New amounts are in the condition; they make no Event of their own."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            said = [
                ("4.0", "WaitingForMembers: 1 of 3"),
                ("5.0", "WaitingForMembers: 2 of 3"),
                ("6.0", "InsufficientResources: cpu on 3 of 3 nodes"),
            ]
            for count, (id_, message) in enumerate(said, 1):
                world.sink.on_decision([status(message=message, number=id_)])
                await world.until(lambda count=count: world.api.count("patch_status") == count)
            await world.until(lambda: world.api.count("create_event") == 2)
            await asyncio.sleep(0.01)
            assert ["4.0", "6.0"] == [id_ for _, id_ in world.api.events]
            about = world.api.events["default", "6.0"]
            assert "InsufficientResources: cpu on 3 of 3 nodes" == about["message"]

    asyncio.run(scene())


def test_a_status_that_did_not_arrive_makes_no_event() -> None:
    """Its pod is gone, or was bound by then; when it is written at last the Event comes, too."""

    async def scene() -> None:
        async with acting() as world:
            world.sink.on_decision([status(message="WaitingForMembers: 1 of 3")])
            await world.until(lambda: world.api.count("patch_status"))
            await asyncio.sleep(0.02)
            assert 0 == world.api.count("create_event")

    asyncio.run(scene())
