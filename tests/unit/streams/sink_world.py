"""One sink at an API server in memory, and the commands that its tests give it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.errors import Unavailable
from schemas.observations import CommandEnded
from streams.sink.api import Response
from streams.sink.sink import Sink, SinkSettings
from tests.contracts.fake_api_server import FakeApiServer

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


def group_status(number: str = "9.0", name: str = "g", **fields: Any) -> PatchStatus:
    return PatchStatus(
        id=number,
        resource="podgroups.scheduling.x-k8s.io",
        namespace="default",
        name=name,
        uid=f"uid-{name}",
        fields=fields,
    )


def emitted(number: str) -> EmitEvent:
    return EmitEvent(
        id=number,
        resource="podgroups.scheduling.x-k8s.io",
        namespace="default",
        name="g",
        uid="uid-g",
        reason="WaitingForMembers",
        message="1 of 2 members",
    )


def applied(number: str = "7.0", code: int = 201, name: str = "a") -> CommandEnded:
    return CommandEnded(command_id=number, uid=f"uid-{name}", outcome="Applied", status=code)
