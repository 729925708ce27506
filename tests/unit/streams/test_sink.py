"""The sink against an API server in memory: every outcome of design section 4."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from schemas.envelope import BindPod, EvictPod, PatchStatus
from schemas.errors import Unavailable
from schemas.labels import COMMAND_ID
from schemas.observations import CommandEnded, FoundPod
from streams.sink.api import Response
from streams.sink.sink import Sink, SinkSettings
from tests.contracts.fake_api_server import LOST, FakeApiServer, Fault, held_by_budget

FAST = SinkSettings(retry_s=0.001, retry_s_max=0.002)
INTERNAL = Response(500, "InternalError", "etcd is away")
BUSY = Response(429, "TooManyRequests", "too many requests")


@dataclass
class World:
    """One sink, its API server, what it published; `lease` is what `may_act` says."""

    api: FakeApiServer
    results: list[CommandEnded] = field(default_factory=list)
    lease: bool = True
    now_us: int = 0
    refusals: int = 0
    sink: Sink = field(init=False)

    def build(self, settings: SinkSettings = FAST) -> Sink:
        self.sink = Sink(
            self.api,
            self.publish,
            may_act=lambda: self.lease,
            clock_us=lambda: self.now_us,
            settings=settings,
        )
        return self.sink

    async def publish(self, result: CommandEnded) -> None:
        if self.refusals:
            self.refusals -= 1
            raise Unavailable("the log is away")
        self.results.append(result)

    async def until(self, holds: Callable[[], object]) -> None:
        async with asyncio.timeout(2):
            while not holds():  # noqa: ASYNC110  (nothing to wait on: it only looks)
                await asyncio.sleep(0.001)

    async def answered(self, count: int = 1) -> list[CommandEnded]:
        await self.until(lambda: len(self.results) >= count)
        return self.results


@asynccontextmanager
async def acting(settings: SinkSettings = FAST, *, active: bool = True) -> AsyncIterator[World]:
    world = World(FakeApiServer())
    running = asyncio.create_task(world.build(settings).run())
    if active:
        world.sink.activate()
    try:
        yield world
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def bind(name: str = "a", node: str = "n1", number: str = "7.0") -> BindPod:
    return BindPod(
        id=number,
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        node=node,
        annotations={"scheduling.koordinator.sh/device-allocated": "{}"},
    )


def evict(name: str = "a", number: str = "8.0", deadline_us: int = 0) -> EvictPod:
    return EvictPod(
        id=number,
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        reason="asked",
        deadline_us=deadline_us,
    )


def status(name: str = "a", message: str = "waits", number: str = "9.0") -> PatchStatus:
    return PatchStatus(
        id=number,
        resource="pods",
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        fields={"reason": "Unschedulable", "message": message},
    )


def applied(number: str = "7.0", code: int = 201) -> CommandEnded:
    return CommandEnded(command_id=number, outcome="Applied", status=code)


# -- binds -----------------------------------------------------------------------------------


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
                command_id="7.0", outcome="Refused", status=code, message="the webhook says no"
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


# -- evictions -------------------------------------------------------------------------------


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
                outcome="Refused",
                status=429,
                message="the budget needs 1 healthy pod and has 1",
            )
            assert [expected] == await world.answered()

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


# -- withdrawal ------------------------------------------------------------------------------


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
            expected = [applied("7.0"), CommandEnded(command_id="7.1", outcome="Withdrawn")]
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
            expected = CommandEnded(command_id="8.0", outcome="Withdrawn")
            assert [expected] == await world.answered()

    asyncio.run(scene())


# -- the Lease -------------------------------------------------------------------------------


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
            assert [applied("7.1")] == await world.answered()
            assert [("bind", "b")] == world.api.calls

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


# -- statuses --------------------------------------------------------------------------------


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


@pytest.mark.parametrize("code", [404, 409])
def test_status_of_a_pod_that_is_gone_is_dropped(code: int) -> None:
    """404 and 409 end a status without another try."""

    async def scene() -> None:
        async with acting() as world:
            world.api.fail("patch_status", Response(code, "", ""))
            world.sink.on_decision([status()])
            await asyncio.sleep(0.02)
            assert 1 == world.api.count("patch_status")

    asyncio.run(scene())


def test_status_that_the_server_did_not_take_is_written_later() -> None:
    """After a 500 the newest status of the pod is written, not the failed one."""

    async def scene() -> None:
        async with acting() as world:
            world.api.add_pod("a")
            world.api.fail("patch_status", INTERNAL)
            world.sink.on_decision([status(message="old")])
            await world.until(lambda: world.api.count("patch_status"))
            world.sink.on_decision([status(message="new")])
            pod = world.api.pods["default", "a"]
            await world.until(lambda: pod["status"].get("conditions"))
            assert "new" == pod["status"]["conditions"][0]["message"]

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
