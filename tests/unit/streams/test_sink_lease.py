"""The Lease: one holder at a time, on clocks that nobody shares, and never another log's."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from schemas.errors import Fatal
from streams.sink.api import LOG_ID, Response
from streams.sink.lease import Lease, LeaseSettings, boot_time, keep
from tests.contracts.fake_api_server import LOST, FakeApiServer, Fault


class Clock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Candidates:
    """Two candidates of one log, each with its own clock, at one API server."""

    def __init__(self) -> None:
        self.api = FakeApiServer()
        self.clocks = {"a": Clock(), "b": Clock()}
        self.clocks["b"].now = 5.0
        self.a, self.b = self.build("a"), self.build("b")

    def build(self, identity: str, log_id: str = "log-1") -> Lease:
        settings = LeaseSettings(
            namespace="ls",
            domain=0,
            log_id=log_id,
            identity=identity,
            duration_s=15,
            renew_s=3.0,
            margin_s=3.0,
        )
        return Lease(self.api, settings, clock=self.clocks[identity], wall=lambda: 0.0)

    def wait(self, seconds: float) -> None:
        for clock in self.clocks.values():
            clock.now += seconds

    @property
    def lease(self) -> dict:
        return self.api.leases["ls", "lockstep-0"]


def run(scene: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(scene())


def test_first_candidate_creates_it() -> None:
    """Without a Lease the first one makes it, with the log's id, and may act."""

    async def scene() -> None:
        world = Candidates()
        assert not world.a.held()
        await world.a.step()
        assert world.a.held()
        assert {LOG_ID: "log-1"} == world.lease["metadata"]["annotations"]
        assert {
            "holderIdentity": "a",
            "leaseDurationSeconds": 15,
            "acquireTime": "1970-01-01T00:00:00.000000Z",
            "renewTime": "1970-01-01T00:00:00.000000Z",
            "leaseTransitions": 0,
        } == world.lease["spec"]

    run(scene)


def test_second_candidate_waits_while_it_is_renewed() -> None:
    """However long: as long as the holder renews, nobody else gets it."""

    async def scene() -> None:
        world = Candidates()
        for _ in range(20):
            await world.a.step()
            await world.b.step()
            assert (True, False) == (world.a.held(), world.b.held())
            world.wait(3)

    run(scene)


def test_silent_holder_stops_before_its_successor_starts() -> None:
    """A holder that cannot renew is powerless `margin_s` before another may take over."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        await world.b.step()
        world.wait(12)
        await world.b.step()
        assert (False, False) == (world.a.held(), world.b.held())
        world.wait(3)
        await world.b.step()
        assert world.b.held()
        assert ("b", 1) == (
            world.lease["spec"]["holderIdentity"],
            world.lease["spec"]["leaseTransitions"],
        )
        await world.a.step()
        assert not world.a.held()

    run(scene)


def test_a_candidate_that_just_arrived_waits_the_full_time() -> None:
    """What the Lease says about time is another machine's clock: silence is measured, not read."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.wait(3600)
        await world.b.step()
        assert not world.b.held()
        world.wait(15)
        await world.b.step()
        assert world.b.held()

    run(scene)


def test_lost_answer_of_a_renewal_does_not_lose_the_lease() -> None:
    """The renewal happened but nobody heard: the next step finds itself the holder."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.api.fail("update_lease", Fault(LOST, happens=True))
        world.wait(3)
        await world.a.step()
        world.wait(3)
        await world.a.step()
        assert (True, 1) == (world.a.held(), world.a.term)

    run(scene)


def test_a_renewal_without_an_answer_is_made_good_at_once() -> None:
    """A look says whether it happened, so the same step renews; the next one needs no luck."""

    async def scene(happens: bool) -> None:
        world = Candidates()
        await world.a.step()
        world.wait(3)
        world.api.fail("update_lease", Fault(LOST, happens=happens))
        await world.a.step()
        world.wait(11)
        assert (True, 1) == (world.a.held(), world.a.term)

    run(lambda: scene(True))
    run(lambda: scene(False))


def test_who_finds_another_holder_after_silence_gives_nothing_back() -> None:
    """Its renewal had no answer and the Lease is another's by now: it is not released in that one's place."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        await world.b.step()
        world.wait(15)
        await world.b.step()
        world.api.fail("update_lease", Fault(LOST, happens=False))
        await world.a.step()
        await world.a.release()
        assert (True, "b") == (world.b.held(), world.lease["spec"]["holderIdentity"])

    run(scene)


def test_renewal_after_a_lapse_is_a_new_term() -> None:
    """Power that lapsed and came back begins anew, so that nothing goes on as if uninterrupted."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.wait(13)
        assert not world.a.held()
        await world.a.step()
        assert (True, 2) == (world.a.held(), world.a.term)

    run(scene)


def test_validity_counts_from_before_the_request() -> None:
    """A slow answer does not lengthen the holder's power."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.api.gate = asyncio.Event()
        renewal = asyncio.create_task(world.a.step())
        await asyncio.sleep(0)
        world.wait(11)
        world.api.gate.set()
        await renewal
        assert world.a.held()
        world.wait(1)
        assert not world.a.held()

    run(scene)


def test_two_candidates_at_once_have_one_winner() -> None:
    """The loser of a race for an expired Lease gets a conflict and waits."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.clocks["c"] = Clock()
        third = world.build("c")
        await world.b.step()
        await third.step()
        world.wait(15)
        await asyncio.gather(world.b.step(), third.step())
        assert 1 == [world.b.held(), third.held()].count(True)

    run(scene)


@pytest.mark.parametrize("theirs", ["log-2", None])
def test_another_logs_lease_is_refused(theirs: str | None) -> None:
    """A Lease of another log, or of none, is a fatal error that names both and the remedy."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        annotations = world.lease["metadata"]["annotations"]
        annotations.clear()
        if theirs:
            annotations[LOG_ID] = theirs
        world.lease["spec"]["holderIdentity"] = ""
        with pytest.raises(Fatal, match=f"ls/lockstep-0 belongs to log {theirs or 'unknown'}"):
            await world.b.step()
        assert not world.b.held()

    run(scene)


def test_released_lease_is_taken_at_once() -> None:
    """A holder that leaves in good order makes nobody wait."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        await world.a.release()
        assert not world.a.held()
        await world.b.step()
        assert world.b.held()

    run(scene)


def test_deleted_lease_is_made_anew() -> None:
    """An administrator who deletes the Lease costs its holder nothing."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        world.api.leases.clear()
        world.wait(3)
        await world.a.step()
        assert (True, "a") == (world.a.held(), world.lease["spec"]["holderIdentity"])

    run(scene)


def test_silence_of_the_api_server_ends_the_power_to_act() -> None:
    """No answers, no power: and no error either, the next steps go on trying."""

    async def scene() -> None:
        world = Candidates()
        await world.a.step()
        for _ in range(5):
            world.wait(3)
            world.api.fail("update_lease", Response(503, "Unavailable", "away"))
            await world.a.step()
        assert not world.a.held()
        await world.a.step()
        assert world.a.held()

    run(scene)


def test_boot_time_advances() -> None:
    """The real clock gives seconds that do not go back."""
    first = boot_time()
    assert 0 <= boot_time() - first < 60


# -- keep ------------------------------------------------------------------------------------

QUICK = LeaseSettings(
    namespace="ls",
    domain=0,
    log_id="log-1",
    identity="a",
    duration_s=1,
    renew_s=0.01,
    margin_s=0.0,
)


def test_keep_acts_only_while_held() -> None:
    """Acting begins with the Lease, stops when another takes it, and begins again."""

    async def scene() -> None:
        api, story = FakeApiServer(), []

        async def act() -> None:
            story.append("begin")
            try:
                await asyncio.Event().wait()
            finally:
                story.append("end")

        async def reach(count: int) -> None:
            async with asyncio.timeout(5):
                while len(story) < count:  # noqa: ASYNC110  (it only looks)
                    await asyncio.sleep(0.002)

        lease = Lease(api, QUICK)
        keeping = asyncio.create_task(keep(lease, act))
        await reach(1)
        stored = api.leases["ls", "lockstep-0"]
        stored["spec"]["holderIdentity"] = "thief"
        stored["metadata"]["resourceVersion"] = "99"
        await reach(2)
        assert not lease.held()
        await reach(3)
        keeping.cancel()
        await asyncio.wait([keeping])
        assert ["begin", "end", "begin", "end"] == story
        assert "" == api.leases["ls", "lockstep-0"]["spec"]["holderIdentity"]

    run(scene)


class SilentOnce(FakeApiServer):
    """Its first update of a Lease takes effect, but nobody ever hears of it."""

    async def update_lease(self, namespace: str, lease: dict) -> Response:
        answer = await super().update_lease(namespace, lease)
        if 1 == self.calls.count(("update_lease", "lockstep-0")):
            await asyncio.Event().wait()
        return answer


def test_keep_holds_on_through_a_renewal_without_an_answer() -> None:
    """It tries again while the Lease is still held: what acts is not ended and begun anew."""

    async def scene() -> None:
        api, begun = SilentOnce(), []

        async def act() -> None:
            begun.append(1)
            await asyncio.Event().wait()

        settings = replace(QUICK, duration_s=2, renew_s=0.5, margin_s=0.5, look_s=0.02)
        lease = Lease(api, settings)
        keeping = asyncio.create_task(keep(lease, act))
        async with asyncio.timeout(5):
            while api.calls.count(("update_lease", "lockstep-0")) < 4:  # noqa: ASYNC110  (it only looks)
                await asyncio.sleep(0.01)
        assert ([1], 1) == (begun, lease.term)
        keeping.cancel()
        await asyncio.wait([keeping])

    run(scene)


def test_keep_raises_what_acting_raises_and_releases() -> None:
    """A role that fails under the Lease does not keep it from others."""

    async def scene() -> None:
        api = FakeApiServer()

        async def act() -> None:
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            await asyncio.wait_for(keep(Lease(api, QUICK), act), 2)
        assert "" == api.leases["ls", "lockstep-0"]["spec"]["holderIdentity"]

    run(scene)


def test_keep_refuses_another_log() -> None:
    """A foreign log's Lease ends the role with the Lease's own error."""

    async def scene() -> None:
        api = FakeApiServer()
        await Lease(api, LeaseSettings(namespace="ls", domain=0, log_id="x", identity="x")).step()

        async def act() -> None:
            raise AssertionError("must not act")

        with pytest.raises(Fatal, match="belongs to log x, this is log log-1"):
            await keep(Lease(api, QUICK), act)

    run(scene)
