"""The simulated API server behind the product's own ports: `KubeReader` and `ApiWriter`.

The cluster is `producers.simulated`'s, with versions as etcd gives them: one counter for all
objects. A write takes effect at the server at its own moment, whether or not the caller still
listens; an answer may get lost. Watches end, break and expire. Must not know Lockstep's core.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from producers.kube import Expired, UnknownKind
from producers.simulated.cluster import Cluster
from producers.simulated.controllers import Controllers
from producers.simulated.faults import Reply
from producers.simulated.kinds import KINDS, Kind
from producers.simulated.store import ObjectStore, Raw, WatchEvent, changed, version_of
from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.errors import Unavailable
from schemas.labels import COMMAND_ID
from streams.sink.api import UNKNOWN, Response
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock

#: Watch events kept; a version that is older has expired.
HISTORY_MAX = 400
CALL_TIMEOUT_US = 1_500_000
_KIND_OF = {kind.resource: kind for kind in KINDS}


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


class ApiServer(Cluster):
    """The cluster with its watch history and an account of every call."""

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
        self.forgotten = 0

    def collect(self) -> None:
        """Moves what just happened into the history of watches."""
        self.advance_to(self.clock.now_us)
        self.history.extend(self.take_events())
        self.forgotten = max(self.forgotten, len(self.history) - HISTORY_MAX)

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
        self._pages: dict[str, tuple[str, list[Raw]]] = {}
        self._tokens = 0

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """See `KubeReader.list_page`; pages of one list are of one moment."""
        await self._travel(resource)
        if self._chaos.happens("list_broken"):
            raise Unavailable(f"{resource}: the list broke off")
        server = self._server
        if continue_:
            version, rest = self._pages.pop(continue_, ("", []))
            if not version or self._chaos.happens("list_expired"):
                raise Expired(f"{resource}: the continue token has expired")
        else:
            server.collect()
            version, rest = str(server.store.highest_version), server.store.list(_KIND_OF[resource])
        await self._travel(resource)
        metadata = {"resourceVersion": version}
        if len(rest) > limit:
            self._tokens += 1
            metadata["continue"] = f"page-{self._tokens}"
            self._pages[metadata["continue"]] = (version, rest[limit:])
        return {"metadata": metadata, "items": rest[:limit]}

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """See `KubeReader.watch`."""
        server, chaos = self._server, self._chaos
        place = _place_after(server, int(version))
        while True:
            await self._travel(resource)
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
        if resource in self._server.absent:
            raise UnknownKind(f"the server knows no {resource}")


def _place_after(server: ApiServer, version: int) -> int:
    """Place in the history of the first event after `version`."""
    server.collect()
    place = len(server.history)
    while place and version_of(server.history[place - 1].raw) > version:
        place -= 1
    return place


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
        if self._chaos.happens("read_broken"):
            return Response(self._chaos.dice.choice((500, 503, UNKNOWN)))
        self._server.collect()
        pod = self._server.read_pod(namespace, name)
        return Response(404) if pod is None else Response(200, body=pod)

    async def patch_status(self, command: PatchStatus) -> Response:
        """See `ApiWriter.patch_status`; the simulated pod keeps only its phase, so nothing is
        stored.
        """
        await self._travel()
        return Response(self._chaos.dice.choice((200, 500)) if self._chaos.raging else 200)

    async def create_event(self, command: EvictPod | EmitEvent, message: str) -> Response:
        """See `ApiWriter.create_event`."""
        await self._travel()
        return Response(201)

    async def read_lease(self, namespace: str, name: str) -> Response:
        """See `ApiWriter.read_lease`."""
        await self._travel()
        lease = self._server.leases.get(name)
        return Response(404) if lease is None else Response(200, body=lease)

    async def create_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.create_lease`."""
        await self._travel()
        name = lease["metadata"]["name"]
        if name in self._server.leases:
            return Response(409)
        return self._keep_lease(name, lease)

    async def update_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.update_lease`."""
        await self._travel()
        name = lease["metadata"]["name"]
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
        planned = self._planned()
        if planned is not None:
            return planned
        slow = chaos.happens("call_slow")
        delay_us = chaos.between_us(0.5, 20.0) if slow else chaos.between_us(0.005, 0.1)
        done: list[Reply] = []
        server.clock.at(sent.sent_us + delay_us, lambda: done.append(server.carry_out(sent)))
        while not done and server.clock.now_us - sent.sent_us < CALL_TIMEOUT_US:
            await self._travel()
        if not done or chaos.happens("answer_lost"):
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
