"""A resource of an API server and a log in memory, and how a scene with an informer between them is played."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from typing import Any

from producers.informer import Informer, Pace
from producers.kube import Expired, UnknownKind
from schemas.errors import Unavailable
from schemas.observations import (
    Observed,
    SyncFinished,
)

FAST = Pace(page_objects=2, retry_s_min=0.0005, retry_s_max=0.002, absent_s=0.002)
GIVE_UP_S = 10


class Server:
    """One resource of an API server: its objects, its history of events, and what goes wrong with it."""

    def __init__(self) -> None:
        self.version = 10
        self.objects: dict[str, dict[str, Any]] = {}
        self.events: list[tuple[int, dict[str, Any]]] = []
        self.oldest = 0  # versions below are compacted
        self.absent = False
        self.failures: list[Exception] = []
        self.lists = 0
        self.watched_from: list[str] = []
        self.on_page: Callable[[int], None] = lambda _page: None
        self._changed = asyncio.Event()
        self._watches = 0

    def put(self, name: str, **fields: Any) -> None:
        """Create or change a node; any keyword is a label, `cpu` its allocatable."""
        kind = "MODIFIED" if name in self.objects else "ADDED"
        self.version += 1
        cpu = fields.pop("cpu", "1")
        raw = {
            "metadata": {
                "uid": f"uid-{name}",
                "name": name,
                "resourceVersion": str(self.version),
                "labels": fields,
            },
            "status": {"allocatable": {"cpu": cpu}, "heartbeat": self.version},
        }
        self.objects[name] = raw
        self._tell(kind, raw)

    def touch(self, name: str) -> None:
        """A change that no observation shows: a new version only."""
        raw = self.objects[name]
        self.put(name, **raw["metadata"]["labels"], cpu=raw["status"]["allocatable"]["cpu"])

    def delete(self, name: str) -> None:
        """Delete a node; the deletion has a version of its own."""
        self.version += 1
        raw = self.objects.pop(name)
        metadata = raw["metadata"] | {"resourceVersion": str(self.version)}
        self._tell("DELETED", raw | {"metadata": metadata})

    def bookmark(self) -> None:
        """Something else changed: only the version moves on."""
        self.version += 1
        raw = {"metadata": {"resourceVersion": str(self.version)}}
        self._tell("BOOKMARK", raw)

    def tell(self, event: dict[str, Any]) -> None:
        """Send any event at the present version."""
        self.events.append((self.version, event))
        self._changed.set()

    def compact(self) -> None:
        """Forget the history up to now."""
        self.oldest = self.version

    def hang_up(self) -> None:
        """Close every watch with a plain end."""
        self._watches += 1
        self._changed.set()

    def _tell(self, kind: str, raw: dict[str, Any]) -> None:
        self.tell({"type": kind, "object": raw})

    def _may_fail(self) -> None:
        if self.absent:
            raise UnknownKind("nodes: HTTP 404")
        if self.failures:
            raise self.failures.pop(0)

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """A page of the objects by name; the token holds version and start."""
        self._may_fail()
        version, _, start = (continue_ or f"{self.version}/0").partition("/")
        if not continue_ and limit > 1:
            self.lists += 1
        if int(version) < self.oldest:
            raise Expired("nodes: HTTP 410: the continue token is too old")
        self.on_page(int(start))
        names = sorted(self.objects)[int(start) :]
        metadata = {"resourceVersion": version}
        if len(names) > limit:
            metadata["continue"] = f"{version}/{int(start) + limit}"
        return {"metadata": metadata, "items": [self.objects[name] for name in names[:limit]]}

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Events after `version`, until hung up."""
        self._may_fail()
        self.watched_from.append(version)
        if int(version) < self.oldest:
            raise Expired("nodes: HTTP 410: too old resource version")
        mine, sent = self._watches, 0
        while mine == self._watches:
            later = self.events[sent:]
            sent = len(self.events)
            if burst := [event for at, event in later if at > int(version)]:
                yield burst
            self._changed.clear()
            if sent == len(self.events) and mine == self._watches:
                await self._changed.wait()


class Log:
    """A publisher that remembers, and fails on demand."""

    def __init__(self) -> None:
        self.observations: list[Observed] = []
        self.calls: list[list[Observed]] = []
        self.failures = 0

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """Take the observations in; they stand in the log even if the call fails afterwards."""
        assert topic == "nodes"
        self.observations += observations
        self.calls.append(list(observations))
        if self.failures:
            self.failures -= 1
            raise Unavailable("the log does not answer")

    def take(self) -> list[Observed]:
        """What was published since the last call."""
        taken, self.observations = self.observations, []
        return taken


Scene = Callable[[Server, Log, Informer], Awaitable[None]]


def play(scene: Scene) -> None:
    """Run a scene beside an informer of nodes, within a time limit."""

    async def stage() -> None:
        server, log = Server(), Log()
        informer = Informer("nodes", server, log, producer="me", pace=FAST)
        running = asyncio.create_task(informer.run())
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await scene(server, log, informer)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled(), running.exception()

    asyncio.run(stage())


async def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds; the scene's time limit bounds it."""
    while not condition():  # noqa: ASYNC110  (the condition is about plain state, not an event)
        await asyncio.sleep(0.001)


async def synced(log: Log) -> list[Observed]:
    """What was published up to the end of the next sync."""
    await until(lambda: any(isinstance(item, SyncFinished) for item in log.observations))
    return log.take()


async def quiet(server: Server, log: Log) -> list[Observed]:
    """What was published up to a fresh node that serves as the end mark, without it."""
    server.put("zz-mark", mark=str(server.version))
    version = server.version
    await until(
        lambda: (
            any(getattr(item, "rv", 0) == version for item in log.observations)
            or any(
                isinstance(item, SyncFinished) and item.list_rv == version
                for item in log.observations
            )
        )
    )
    return [item for item in log.take() if getattr(item, "name", "") != "zz-mark"]


def said(observations: Sequence[Observed]) -> list[tuple[str, str]]:
    """Kind and object of each observation, for reading."""
    return [
        (type(item).__name__, getattr(item, "name", "") or getattr(item, "uid", ""))
        for item in observations
    ]
