"""What goes wrong between Lockstep and the API server, and the alert that says so."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from producers.informer import Informer
from schemas.errors import Fatal, Unavailable
from streams.metrics import Metrics
from streams.sink.api import Response
from streams.sink.lease import Lease, LeaseSettings
from tests.alerts import fires, parse, produces
from tests.contracts.fake_api_server import LOST, FakeApiServer
from tests.unit.producers.informer_scene import Log, Server, play, quiet, synced, until
from tests.unit.streams.sink_world import INTERNAL, acting, bind

FORBIDDEN = Response(403, "Forbidden", "not allowed")


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def lease_of(api: FakeApiServer, clock: Clock, log_id: str = "log-1") -> Lease:
    settings = LeaseSettings(
        namespace="ls",
        domain=0,
        log_id=log_id,
        identity=f"for-{log_id}",
        duration_s=15,
        renew_s=3.0,
        margin_s=3.0,
    )
    return Lease(api, settings, clock=clock, wall=lambda: 0.0)


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scene())


@produces("LockstepNoLeader")
def test_a_lease_that_cannot_be_renewed_is_lost_before_others_may_take_it(metrics: Metrics) -> None:
    """The API server answers nothing: three seconds before the end nobody acts; when it answers, it goes on."""

    async def scene() -> None:
        api, clock = FakeApiServer(), Clock()
        lease = metrics.roles.lease = lease_of(api, clock)
        assert fires("LockstepNoLeader", metrics.render())
        await lease.step()
        assert not fires("LockstepNoLeader", metrics.render())
        for _ in range(4):
            clock.now += 3
            api.fail("update_lease", LOST)
            api.fail("read_lease", LOST)
            await lease.step()
        assert clock.now < 1000 + lease.settings.duration_s
        assert fires("LockstepNoLeader", metrics.render())
        counted = parse(metrics.render())
        assert {frozenset(): 8.0} == counted["lockstep_lease_failures_total"]
        await lease.step()
        assert not fires("LockstepNoLeader", metrics.render())
        assert {frozenset(): 2.0} == parse(metrics.render())["lockstep_lease_acquired_total"]

    run(scene)


@produces("LockstepLeaseOfAnotherLog")
def test_the_lease_of_another_log_is_never_taken(metrics: Metrics) -> None:
    """Two logs for one cluster would bind twice: the second one stops, and says whose Lease it is."""

    async def scene() -> None:
        api, clock = FakeApiServer(), Clock()
        await lease_of(api, clock).step()
        with pytest.raises(Fatal, match="belongs to log log-1, this is log log-2") as stop:
            await lease_of(api, clock, "log-2").step()
        metrics.roles.stopped = stop.value.cause
        assert fires("LockstepLeaseOfAnotherLog", metrics.render())

    run(scene)


@produces("LockstepApiServerAway")
def test_an_api_server_that_is_away_is_asked_again_until_it_is_back(metrics: Metrics) -> None:
    """Ten refused lists are told; then the list and what was changed meanwhile."""

    async def scene(server: Server, log: Log, _: Informer) -> None:
        server.put("a")
        await synced(log)
        before = metrics.render()
        server.failures = [Unavailable("connection refused")] * 10
        server.hang_up()
        await until(lambda: not server.failures)
        after = metrics.render()
        assert fires("LockstepApiServerAway", before, after)
        server.put("b", cpu="2")
        await until(lambda: any(getattr(each, "name", "") == "b" for each in log.take()))
        assert not fires("LockstepApiServerAway", after, metrics.render())
        ended = parse(after)["lockstep_informer_watches_ended_total"]
        assert 1 == ended[frozenset({("resource", "nodes")})]

    play(scene)


@produces("LockstepObjectsRejected")
def test_an_object_that_cannot_be_observed_is_told_and_the_rest_goes_on(metrics: Metrics) -> None:
    """A node whose capacity is no quantity: it is named in the log, and the next one is published."""

    async def scene(server: Server, log: Log, _: Informer) -> None:
        await synced(log)
        before = metrics.render()
        server.put("a", cpu="much")
        server.put("b")
        assert ["b"] == [getattr(each, "name", "") for each in await quiet(server, log)]
        assert fires("LockstepObjectsRejected", before, metrics.render())

    play(scene)


@produces("LockstepCommandsStuck")
def test_commands_that_never_end_are_told(metrics: Metrics) -> None:
    """The API server answers every bind with an error: it is tried again for ever, and open commands are counted."""

    async def scene() -> None:
        api, clock = FakeApiServer(), Clock()
        metrics.roles.lease = lease_of(api, clock)
        await metrics.roles.lease.step()
        async with acting() as world:
            metrics.roles.sink = world.sink
            world.api.add_pod("a")
            world.api.fail("bind", *[INTERNAL] * 8, FORBIDDEN)
            before = metrics.render()
            world.sink.on_decision([bind()])
            await world.until(lambda: world.api.count("bind") > 5)
            stuck = metrics.render()
            assert fires("LockstepCommandsStuck", before, stuck)
            opened = parse(stuck)["lockstep_commands_open"]
            assert 1 == opened[frozenset({("command", "BindPod")})]
            failed = parse(stuck)["lockstep_command_attempts_failed_total"]
            assert failed[frozenset({("command", "BindPod")})] >= 5
            await world.answered()
            await world.until(lambda: metrics.events.counts["command_ended"].total())
            assert not fires("LockstepCommandsStuck", stuck, metrics.render())
            ended = parse(metrics.render())["lockstep_commands_ended_total"]
            assert 1 == ended[frozenset({("command", "BindPod"), ("outcome", "Refused")})]

    run(scene)
