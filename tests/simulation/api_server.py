"""The simulated API server behind the product's own ports: `KubeReader` and `ApiWriter`.

The cluster is `producers.simulated`'s, with versions as etcd gives them: one counter for all
objects. A write takes effect at the server at its own moment, whether or not the caller still
listens; an answer may get lost. Watches end, break and expire. etcd may be restored from a backup:
the whole cluster goes back to an earlier state. Must not know Lockstep's core.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from producers.kube import Expired, UnknownKind
from producers.simulated.cluster import Cluster
from producers.simulated.controllers import Controllers
from producers.simulated.faults import Reply
from producers.simulated.kinds import KINDS, POD, Kind
from producers.simulated.store import (
    ObjectStore,
    Raw,
    WatchEvent,
    changed,
    uid_of,
    version_of,
)
from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.errors import Unavailable
from schemas.labels import COMMAND_ID
from streams.sink.api import UNKNOWN, Response
from streams.sink.bodies import status_body
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock

#: Watch events kept; a version that is older has expired.
HISTORY_MAX = 400
CALL_TIMEOUT_US = 1_500_000
#: The answer to an eviction gets lost so many times as easily as that to a bind: there are few evictions.
EVICTION_CHANCES = 5
#: Bumped, a restored etcd counts on from so far above every version that it ever gave.
BUMP = 1_000
_KIND_OF = {kind.resource: kind for kind in KINDS}
Objects = dict[Kind, dict[tuple[str, str], Raw]]


class EtcdStore(ObjectStore):
    """Every change takes the next version of one counter."""

    def replace(self, kind: Kind, raw: Raw) -> Raw:
        return super().replace(kind, self._with_next(raw))

    def remove(self, kind: Kind, raw: Raw) -> None:
        # The parent counts on from the stored object, so that is moved to just below the counter.
        stored = self.get(kind, raw["metadata"].get("namespace", ""), raw["metadata"]["name"])
        assert stored is not None
        version = {"resourceVersion": str(max(self.highest_version, version_of(stored)))}
        self.keep_silently(kind, changed(stored, metadata=version))
        super().remove(kind, raw)

    def objects(self) -> Objects:
        """All objects as they are now; they are never changed in place."""
        return {kind: dict(found) for kind, found in self._objects.items()}

    def go_back(self, objects: Objects, version: int) -> None:
        """Holds `objects` and nothing else, and counts on from `version`; no watch says so."""
        self._objects = {kind: dict(found) for kind, found in objects.items()}
        self.highest_version = version

    def _with_next(self, raw: Raw) -> Raw:
        return changed(raw, metadata={"resourceVersion": str(self.highest_version + 1)})


@dataclass(frozen=True)
class Sent:
    """One write under way. `lease_holder`: who held the Lease then; empty: nobody."""

    sender: str
    sent_us: int
    lease_holder: str
    command: BindPod | EvictPod


@dataclass(frozen=True)
class Call:
    """One write that arrived, when, and what the server answered."""

    sent: Sent
    arrived_us: int
    reply: Reply


@dataclass(frozen=True)
class Backup:
    """All that etcd held at one moment."""

    objects: Objects
    version: int
    bound_with: dict[str, dict[str, str]]
    leases: dict[str, dict[str, Any]]
    lease_written_us: dict[str, int]


class ApiServer(Cluster):
    """The cluster with its watch history and an account of every call.

    `began`: the first place in the history since the last restore, `began_version` the version that
    it went on from.
    """

    def __init__(self, clock: Clock, chaos: Chaos, absent: tuple[str, ...]) -> None:
        super().__init__(clock.now_us)
        self.store = EtcdStore()
        self._controllers = Controllers(self.store, self._make, self._remove)
        self.clock = clock
        self.chaos = chaos
        self.absent = absent
        self.leases: dict[str, dict[str, Any]] = {}
        self.lease_written_us: dict[str, int] = {}
        #: All watch events so far, oldest first.
        self.history: list[WatchEvent] = []
        self.on_call: Callable[[Call], None] = lambda _call: None
        self.on_restore: Callable[[bool], None] = lambda _bumped: None
        self.forgotten = 0
        self.restores = self.began = self.began_version = 0
        self.down_until_us = self._restored_us = 0

    def collect(self) -> None:
        """Moves what just happened into the history of watches."""
        self.advance_to(self.clock.now_us)
        self.history.extend(self.take_events())
        self.forgotten = max(self.forgotten, len(self.history) - HISTORY_MAX)

    def back_up(self) -> Backup:
        """What a restore can go back to."""
        self.collect()
        return Backup(
            self.store.objects(),
            self.store.highest_version,
            dict(self._bound_with),
            dict(self.leases),
            dict(self.lease_written_us),
        )

    def restore(self, backup: Backup, *, bumped: bool, down_us: int) -> None:
        """etcd is as it was; the API server is away for `down_us`, and every connection breaks.

        `bumped`: versions go on above all that were given, and those below have expired. If not,
        versions are given a second time.
        """
        self.collect()
        version = self.store.highest_version + BUMP if bumped else backup.version
        self.store.go_back(backup.objects, version)
        self._bound_with = dict(backup.bound_with)
        self.leases, self.lease_written_us = dict(backup.leases), dict(backup.lease_written_us)
        self._restored_us = self.clock.now_us
        self.down_until_us = self.clock.now_us + down_us
        self._ends = {
            (pod["metadata"]["namespace"], pod["metadata"]["name"], uid_of(pod)): (
                self.down_until_us
            )
            for pod in self.store.list(POD)
            if pod["metadata"].get("deletionTimestamp")
        }
        self.restores += 1
        self.began = self.forgotten = len(self.history)
        self.began_version = version
        self.on_restore(bumped)

    def is_down(self) -> bool:
        """Nobody gets an answer now."""
        return self.clock.now_us < self.down_until_us

    def hears(self, sent: "Sent") -> bool:
        """Whether a write that arrives now gets through: its connection broke at a restore."""
        return not self.is_down() and sent.sent_us > self._restored_us

    def carry_out(self, sent: "Sent") -> Reply:
        """The write itself, at this moment."""
        command = sent.command
        self.advance_to(self.clock.now_us)
        place = command.namespace, command.name, command.uid
        if isinstance(command, BindPod):
            annotations = {**command.annotations, COMMAND_ID: command.id}
            reply = self.bind(*place, command.node, annotations)
        else:
            reply = self.evict(*place)
        self.collect()
        self.on_call(Call(sent, self.clock.now_us, reply))
        return reply

    def _terminate(self, pod: Raw) -> None:
        """Every other pod takes some seconds to end, as with a grace period; which ones its uid says."""
        lot = crc32(uid_of(pod).encode())
        if lot % 2:
            place = pod["metadata"]["namespace"], pod["metadata"]["name"]
            self.faults.slow_us.setdefault(place, (1 + lot // 2 % 20) * 1_000_000)
        super()._terminate(pod)

    def lease_holder(self) -> str:
        """Who holds the Lease now; empty: nobody, or it has run out."""
        for name, lease in self.leases.items():
            spec = lease["spec"]
            ends_us = self.lease_written_us[name] + spec["leaseDurationSeconds"] * 1_000_000
            if self.clock.now_us < ends_us:
                return str(spec.get("holderIdentity") or "")
        return ""


class SimulatedReader:
    """`KubeReader` of one process."""

    def __init__(self, server: ApiServer, is_dead: Callable[[], bool]) -> None:
        self._server = server
        self._chaos = server.chaos
        self._is_dead = is_dead
        self._pages: dict[str, tuple[int, str, list[Raw]]] = {}
        self._tokens = 0

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """See `KubeReader.list_page`; pages of one list are of one moment."""
        await self._travel(resource)
        if self._chaos.happens("list_broken"):
            raise Unavailable(f"{resource}: the list broke off")
        server = self._server
        restores = server.restores
        if continue_:
            begun, version, rest = self._pages.pop(continue_, (-1, "", []))
            if begun != restores or self._chaos.happens("list_expired"):
                raise Expired(f"{resource}: the continue token has expired")
        else:
            server.collect()
            version, rest = str(server.store.highest_version), server.store.list(_KIND_OF[resource])
        await self._travel(resource)
        self._check_same(restores)
        metadata = {"resourceVersion": version}
        if len(rest) > limit:
            self._tokens += 1
            metadata["continue"] = f"page-{self._tokens}"
            self._pages[metadata["continue"]] = (restores, version, rest[limit:])
        return {"metadata": metadata, "items": rest[:limit]}

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """See `KubeReader.watch`."""
        server, chaos = self._server, self._chaos
        place, restores = _place_after(server, int(version)), server.restores
        while True:
            await self._travel(resource)
            self._check_same(restores)
            server.collect()
            if place < server.forgotten or chaos.happens("watch_expired"):
                raise Expired(f"{resource}: version {version} is no longer kept")
            if chaos.happens("watch_broken"):
                raise Unavailable(f"{resource}: the watch broke")
            end = len(server.history)
            if chaos.raging and end > place:
                end = chaos.dice.randint(place + 1, end)
            events, place = server.history[place:end], end
            burst = [
                {"type": event.type, "object": event.raw}
                for event in events
                if event.kind.resource == resource
            ]
            if burst:
                yield burst
            elif chaos.happens("watch_ended"):
                return

    async def _travel(self, resource: str) -> None:
        slow = resource in ("pods", "nodes")
        await asyncio.sleep(self._chaos.dice.uniform(0.02, 0.2 if slow else 0.6))
        if self._is_dead():
            raise asyncio.CancelledError
        if self._server.is_down():
            raise Unavailable(f"{resource}: connection refused")
        if resource in self._server.absent:
            raise UnknownKind(f"the server knows no {resource}")

    def _check_same(self, restores: int) -> None:
        if restores != self._server.restores:
            raise Unavailable("the API server went away")


def _place_after(server: ApiServer, version: int) -> int:
    """Place in the history of the first event after `version`; -1: it is no longer kept."""
    server.collect()
    if version < server.began_version:
        return -1
    place = len(server.history)
    while place > server.began and version_of(server.history[place - 1].raw) > version:
        place -= 1
    return place


_AWAY = Response(UNKNOWN, "ConnectionRefused", "connection refused")


class SimulatedWriter:
    """`ApiWriter` of one process, called `sender`."""

    def __init__(self, server: ApiServer, sender: str, is_dead: Callable[[], bool]) -> None:
        self._server = server
        self._chaos = server.chaos
        self._sender = sender
        self._is_dead = is_dead

    async def bind(self, command: BindPod) -> Response:
        """See `ApiWriter.bind`."""
        return await self._write(command)

    async def evict(self, command: EvictPod) -> Response:
        """See `ApiWriter.evict`."""
        return await self._write(command)

    async def read_pod(self, namespace: str, name: str) -> Response:
        """See `ApiWriter.read_pod`."""
        await self._travel()
        if self._server.is_down() or self._chaos.happens("read_broken"):
            return Response(self._chaos.dice.choice((500, 503, UNKNOWN)))
        self._server.collect()
        pod = self._server.read_pod(namespace, name)
        return Response(404) if pod is None else Response(200, body=pod)

    async def patch_status(self, command: PatchStatus) -> Response:
        """See `ApiWriter.patch_status`; the simulated pod keeps only its phase, so of pods nothing
        is stored. An answer of 500 may be of a write that took effect.
        """
        await self._travel()
        if command.resource != "pods":
            place = command.resource, command.namespace, command.name, command.uid
            self._server.patch_status(*place, status_body(command.resource, command.fields))
            self._server.collect()
        return Response(self._chaos.dice.choice((200, 500)) if self._chaos.raging else 200)

    async def create_event(self, command: EvictPod | EmitEvent, message: str) -> Response:
        """See `ApiWriter.create_event`."""
        await self._travel()
        return Response(201)

    async def read_lease(self, namespace: str, name: str) -> Response:
        """See `ApiWriter.read_lease`."""
        await self._travel()
        if self._server.is_down():
            return _AWAY
        lease = self._server.leases.get(name)
        return Response(404) if lease is None else Response(200, body=lease)

    async def create_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.create_lease`."""
        await self._travel()
        name = lease["metadata"]["name"]
        if self._server.is_down():
            return _AWAY
        if name in self._server.leases:
            return Response(409)
        return self._keep_lease(name, lease)

    async def update_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.update_lease`."""
        await self._travel()
        name = lease["metadata"]["name"]
        if self._server.is_down():
            return _AWAY
        stored = self._server.leases.get(name)
        if stored is None:
            return Response(404)
        if stored["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
            return Response(409)
        return self._keep_lease(name, lease)

    def _keep_lease(self, name: str, lease: Mapping[str, Any]) -> Response:
        store = self._server.store
        store.highest_version += 1
        metadata = {**lease["metadata"], "resourceVersion": str(store.highest_version)}
        self._server.leases[name] = {**lease, "metadata": metadata}
        self._server.lease_written_us[name] = self._server.clock.now_us
        if self._chaos.happens("answer_lost"):
            return Response(UNKNOWN)
        return Response(200, body=self._server.leases[name])

    async def _write(self, command: BindPod | EvictPod) -> Response:
        server, chaos = self._server, self._chaos
        sent = Sent(self._sender, server.clock.now_us, server.lease_holder(), command)
        await self._travel()
        planned = _AWAY if server.is_down() else self._planned()
        if planned is not None:
            return planned
        slow = chaos.happens("call_slow")
        delay_us = chaos.between_us(0.5, 20.0) if slow else chaos.between_us(0.005, 0.1)
        done: list[Reply] = []
        arrives_us = sent.sent_us + delay_us
        server.clock.at(
            arrives_us, lambda: done.append(server.carry_out(sent)) if server.hears(sent) else None
        )
        while not done and server.clock.now_us - sent.sent_us < CALL_TIMEOUT_US:
            await self._travel()
        chances = 1 if isinstance(command, BindPod) else EVICTION_CHANCES
        if not done or any(chaos.happens("answer_lost") for _ in range(chances)):
            return Response(UNKNOWN, "Timeout", "no answer")
        return _response(done[0])

    def _planned(self) -> Response | None:
        """A fault of the server that keeps the call from being carried out."""
        chaos = self._chaos
        if chaos.happens("call_refused"):
            return Response(chaos.dice.choice((403, 409, 422)), "Refused", "refused by the seed")
        if chaos.happens("call_broken"):
            return Response(chaos.dice.choice((500, 503, 504)), "Broken", "broken by the seed")
        if chaos.happens("call_throttled"):
            return Response(429, "TooManyRequests", "throttled by the seed")
        return None

    async def _travel(self) -> None:
        await asyncio.sleep(self._chaos.dice.uniform(0.002, 0.05))
        if self._is_dead():
            raise asyncio.CancelledError


def _response(reply: Reply) -> Response:
    cause = {"details": {"causes": [{"reason": "DisruptionBudget"}]}}
    return Response(reply.status, message=reply.message, body=cause if reply.budget else {})
