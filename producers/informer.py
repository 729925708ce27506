"""Informers: one a resource. List, watch, publish what changed; lose nothing, invent nothing.

An informer remembers of each object only a hash of what it last published. A list is published as a
sync (`SyncStarted`, the objects, `SyncFinished`), objects unchanged since the last one as
`StillThere`. Must not decide anything about scheduling. `lockstep run` builds one `Informers` in
the process that holds the Lease, and calls `resync` when a decision asks for it.
"""

import asyncio
import hashlib
import logging
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from producers.kube import Expired, KubeReader, UnknownKind
from producers.observe import OBSERVE, ObjectObserved, object_identity
from producers.publisher import Publisher
from schemas.errors import InvalidMessage, Unavailable
from schemas.observations import (
    KindAbsent,
    ObjectGone,
    Observed,
    StillThere,
    SyncFinished,
    SyncStarted,
)
from schemas.topics import RESOURCES

_log: Final = logging.getLogger(__name__)
_DIGEST_BYTES: Final = 16
#: Objects of a page that are observed and published before the event loop may turn to something else: to observe one
#: takes about 0.2 ms.
_SLICE_OBJECTS: Final = 100
Awaited = TypeVar("Awaited")


@dataclass(frozen=True, slots=True)
class Pace:
    """Objects a page, and pauses in seconds. Nothing here changes what the log ends up saying."""

    page_objects: int = 500
    retry_s_min: float = 0.2
    retry_s_max: float = 30.0
    absent_s: float = 10.0

    def delay_s(self, failures: int) -> float:
        """The pause after so many failures in a row: doubled each time, jittered by half."""
        longest = min(self.retry_s_max, self.retry_s_min * (1 << min(failures, 30)))
        return longest * random.uniform(0.5, 1.0)


class Informer:
    """Follows one resource. `run` goes on until it is cancelled."""

    def __init__(
        self,
        resource: str,
        client: KubeReader,
        publisher: Publisher,
        *,
        producer: str,
        pace: Pace | None = None,
        heard: Callable[[], int | None] = lambda: None,
    ) -> None:
        self.resource = resource
        #: Objects that could not be observed; each is logged with its reason.
        self.rejected = 0
        self._client = client
        self._publisher = publisher
        self._producer = producer
        self._pace = pace or Pace()
        self._heard = heard
        self._topic = RESOURCES[resource]
        self._published: dict[str, bytes] = {}
        self._version: str | None = None
        self._cold = True
        #: Somebody misses objects: until a list is finished, none is only said to be still there.
        self._whole = False
        self._absent = False
        self._failures = 0
        self._wanted = asyncio.Event()

    def resync(self) -> None:
        """List anew now, every object whole: somebody misses some. Call it in the loop's thread."""
        self._wanted.set()

    async def run(self) -> None:
        """List, then watch, for ever; what fails is tried again after growing, jittered pauses."""
        while True:
            try:
                await self._sync_or_check()
                await self._follow()
                if not self._wanted.is_set():
                    self._event(logging.INFO, "watch_ended")
            except Expired as error:
                self._version = None
                self._event(logging.INFO, "version_expired", error=str(error))
            except Unavailable as error:
                self._event(logging.WARNING, "api_server_unavailable", error=str(error))
            except UnknownKind as error:
                await self._report_absent(error)
                await self._pause(self._pace.absent_s)
                continue
            await self._pause(self._pace.delay_s(self._failures))
            self._failures += 1

    async def _sync_or_check(self) -> None:
        if self._version is not None and not self._wanted.is_set():
            # A server that went back in time (etcd restored) would keep a watch silent.
            page = await self._client.list_page(self.resource, 1, "")
            if int(_list_version(page)) >= int(self._version):
                return
            self._event(logging.WARNING, "history_reset", version=self._version)
        await self._sync()

    async def _sync(self) -> None:
        """Publish the whole list, and go on from its version."""
        self._version, heard = None, self._heard()
        if self._wanted.is_set():  # what is asked for from now on, this list may lack
            self._wanted.clear()
            self._whole = True
        page = await self._client.list_page(self.resource, self._pace.page_objects, "")
        list_version, token = _list_version(page), _continue_token(page)
        list_rv, epoch = int(list_version), secrets.token_hex(8)
        await self._publish(
            [
                SyncStarted(
                    resource=self.resource,
                    producer=self._producer,
                    epoch=epoch,
                    list_rv=list_rv,
                    cold=self._cold,
                    whole=self._whole,
                    heard=heard,
                )
            ]
        )
        named = await self._publish_objects(page.get("items") or (), epoch)
        while token:
            page = await self._client.list_page(self.resource, self._pace.page_objects, token)
            if _list_version(page) != list_version:
                raise Expired(f"{self.resource}: the pages of one list are of different versions")
            named |= await self._publish_objects(page.get("items") or (), epoch)
            token = _continue_token(page)
        # A call of its own: it must never reach the log before the objects it speaks of.
        finished = SyncFinished(resource=self.resource, epoch=epoch, list_rv=list_rv)
        await self._publish([finished])
        self._published = {uid: self._published[uid] for uid in named}
        self._version = list_version
        self._cold = self._whole = self._absent = False
        self._failures = 0
        self._event(logging.INFO, "synced", epoch=epoch, version=list_version, objects=len(named))

    async def _publish_objects(self, items: Iterable[Any], epoch: str) -> dict[str, None]:
        """Publish one page of a list, slice by slice; returns the uids that it names."""
        named: dict[str, None] = {}
        rest = iter(items)
        while part := list(islice(rest, _SLICE_OBJECTS)):
            named |= await self._publish_slice(part, epoch)
        return named

    async def _publish_slice(self, items: Iterable[Any], epoch: str) -> dict[str, None]:
        observations: list[Observed] = []
        seen: dict[str, bytes] = {}
        for raw in items:
            observed = self._observe(raw, epoch)
            if observed is not None:
                uid, rv, digest = observed.uid, observed.rv, _digest(observed)
            elif (known := _known(raw, self._published)) is not None:
                # It is there, but as what can't be said: the log keeps what it knows of it.
                uid, rv, digest = known
            else:
                continue
            if observed is None or (not self._whole and self._published.get(uid) == digest):
                observations.append(StillThere(resource=self.resource, epoch=epoch, uid=uid, rv=rv))
            else:
                observations.append(observed)
            seen[uid] = digest
        await self._publish(observations)
        self._published |= seen
        return dict.fromkeys(seen)

    async def _follow(self) -> None:
        """Watch until the stream ends, plainly or by an error, or a resync is asked for."""
        assert self._version is not None
        async with aclosing(self._client.watch(self.resource, self._version)) as stream:
            while burst := await self._unless_wanted(anext(stream, None)):
                await self._publish_events(burst)
                self._failures = 0

    async def _publish_events(self, burst: list[dict[str, Any]]) -> None:
        observations: list[Observed] = []
        changed: dict[str, bytes] = {}
        gone: dict[str, None] = {}
        version = self._version
        for event in burst:
            raw = event.get("object")
            version = _object_version(raw) or version
            if event.get("type") == "DELETED":
                if (deletion := self._deletion(raw)) is not None:
                    observations.append(deletion)
                    gone[deletion.uid] = None
            elif event.get("type") in ("ADDED", "MODIFIED"):
                observed = self._observe(raw, None)
                if observed is None:
                    continue
                digest = _digest(observed)
                if changed.get(observed.uid, self._published.get(observed.uid)) != digest:
                    observations.append(observed)
                    changed[observed.uid] = digest
        await self._publish(observations)
        self._published |= changed
        for uid in gone:
            self._published.pop(uid, None)
        self._version = version

    def _observe(self, raw: Any, epoch: str | None) -> ObjectObserved | None:
        try:
            return OBSERVE[self.resource](raw, epoch)
        except InvalidMessage as error:
            self._reject(error)
            return None

    def _deletion(self, raw: Any) -> ObjectGone | None:
        try:
            identity = object_identity(raw)
        except InvalidMessage as error:
            self._reject(error)
            return None
        return ObjectGone(
            resource=self.resource,
            uid=identity.uid,
            rv=identity.rv,
            namespace=identity.namespace,
            name=identity.name,
        )

    def _reject(self, error: InvalidMessage) -> None:
        self.rejected += 1
        self._event(logging.ERROR, "object_rejected", reason=error.reason, detail=error.detail)

    async def _report_absent(self, error: UnknownKind) -> None:
        """Say that the kind is not there: once, and to whoever asks for a resync."""
        self._version = None
        if not self._absent or self._whole or self._wanted.is_set():
            self._wanted.clear()
            self._whole = False
            self._event(logging.INFO, "kind_absent", error=str(error))
            await self._publish([KindAbsent(resource=self.resource, producer=self._producer)])
            self._absent = True
            self._published = {}

    async def _publish(self, observations: Sequence[Observed]) -> None:
        """Publish; what the log did not take for sure is published again, before anything else."""
        failures = 0
        while observations:
            try:
                return await self._publisher.publish(self._topic, observations)
            except Unavailable as error:
                self._event(logging.WARNING, "log_unavailable", error=str(error))
                await asyncio.sleep(self._pace.delay_s(failures))
                failures += 1

    async def _unless_wanted(self, work: Awaitable[Awaited]) -> Awaited | None:
        """What `work` gives, or None as soon as a resync is asked for."""
        task = asyncio.ensure_future(work)
        wanted = asyncio.ensure_future(self._wanted.wait())
        try:
            await asyncio.wait((task, wanted), return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            wanted.cancel()
            await _end(task)

    async def _pause(self, seconds: float) -> None:
        await self._unless_wanted(asyncio.sleep(seconds))

    def _event(self, level: int, name: str, **fields: Any) -> None:
        fields["resource"] = self.resource
        _log.log(level, name, extra={"lockstep_fields": fields})


class Informers:
    """All resources of one cluster. `run` goes on until it is cancelled.

    `heard`: sequence of the last decision that whoever calls `resync` has read.
    """

    def __init__(
        self,
        client: KubeReader,
        publisher: Publisher,
        *,
        producer: str,
        resources: Iterable[str] = tuple(RESOURCES),
        pace: Pace | None = None,
        heard: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._informers: Final = {
            resource: Informer(
                resource, client, publisher, producer=producer, pace=pace, heard=heard
            )
            for resource in resources
        }

    def resync(self, resource: str) -> None:
        """List `resource` anew. A resource that is not followed here is none of ours."""
        if resource in self._informers:
            self._informers[resource].resync()

    async def run(self) -> None:
        """Run every informer; a failure that none of them can handle ends them all."""
        async with asyncio.TaskGroup() as group:
            for resource, informer in self._informers.items():
                group.create_task(informer.run(), name=f"informer {resource}")


async def _end(task: "asyncio.Future[Any]") -> None:
    """Cancel `task` and wait until it has ended. If we are cancelled meanwhile, that comes next: it is not lost."""
    cancelled: asyncio.CancelledError | None = None
    task.cancel()
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if not task.cancelled():
        task.exception()  # of what is not wanted any more
    if cancelled is not None:
        raise cancelled


def _digest(observed: ObjectObserved) -> bytes:
    """Hash of what an observation says, whichever version and list it is from."""
    said = observed.model_dump_json(exclude={"rv", "epoch"}).encode()
    return hashlib.blake2b(said, digest_size=_DIGEST_BYTES).digest()


def _known(raw: Any, published: dict[str, bytes]) -> tuple[str, int, bytes] | None:
    """uid, version and hash of an object that was published before, though it can't be read now."""
    with suppress(InvalidMessage):
        identity = object_identity(raw)
        if identity.uid in published:
            return identity.uid, identity.rv, published[identity.uid]
    return None


def _metadata(raw: Any) -> dict[str, Any]:
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _object_version(raw: Any) -> str | None:
    version = _metadata(raw).get("resourceVersion")
    return version if isinstance(version, str) and version.isdecimal() else None


def _list_version(page: dict[str, Any]) -> str:
    version = _object_version(page)
    if version is None:
        raise Unavailable("the API server answered with a list without a numeric resourceVersion")
    return version


def _continue_token(page: dict[str, Any]) -> str:
    return str(_metadata(page).get("continue") or "")
