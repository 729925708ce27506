"""The service's side towards the API server: Lease, sink and informers. Built by `lockstep.service`.

With a sink, informers run while the Lease is held and not otherwise; informers alone need no Lease, for observations
are facts whoever reports them.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from producers.informer import Informers
from producers.kube_client import KubeClient
from producers.publisher import PackingPublisher
from schemas.topics import DECISIONS, RESULTS
from streams.history import Bound, LogHistory, Start
from streams.log import LogReader, LogWriter
from streams.logs import event
from streams.metrics import Roles
from streams.retry import answered
from streams.roles import Leadership
from streams.sink.kube import KubeApi, load_configuration
from streams.sink.lease import Lease, LeaseSettings, keep
from streams.sink.results import SharedAppends
from streams.sink.role import SinkRole
from streams.sink.sink import Sink

if TYPE_CHECKING:
    from lockstep.service import ServiceSettings
    from streams.translate import State

logger = logging.getLogger("lockstep")

#: Feeds a role, by name, until it ends.
Follow = Callable[[str, SinkRole], Coroutine[Any, Any, None]]


class ClusterSide:
    """Sink and informers of one process, as far as `settings` asks for them."""

    def __init__(
        self,
        settings: "ServiceSettings",
        *,
        identity: str,
        log_id: str,
        writer: LogWriter,
        reader: LogReader,
        leadership: Leadership,
        roles: Roles,
        state: "State | None",
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._log_id = log_id
        self._reader = reader
        self._leadership = leadership
        self._roles = roles
        self._state = state
        self._publisher = PackingPublisher(identity, writer.append_many)
        self._results = SharedAppends(partial(self._publisher.publish, RESULTS))
        self._informers: Informers | None = None

    async def run(self, follow: Follow) -> None:
        """Until cancelled. Raises `Fatal` when the Lease belongs to another log."""
        configuration = await asyncio.to_thread(load_configuration, self._settings.kubeconfig)
        async with KubeApi(configuration) as api, KubeClient(configuration) as client:
            lease = Lease(api, self._lease_settings())
            sink = None
            if self._settings.sink:
                sink = Sink(api, self._results.publish, may_act=lease.held)
                self._roles.sink, self._roles.lease = sink, lease
            role = await self._role(sink)
            await role.read_to_end()
            async with asyncio.TaskGroup() as group:
                group.create_task(follow("sink", role))
                if sink is None:
                    group.create_task(self._inform(role, client))
                    return
                group.create_task(sink.run())
                group.create_task(keep(lease, partial(self._lead, sink, role, client)))

    async def _lead(self, sink: Sink, role: SinkRole, client: KubeClient) -> None:
        """What runs under the Lease."""
        self._leadership.acquire()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(sink.act(role.read_to_end))
                if self._settings.informers:
                    group.create_task(self._inform(role, client))
        finally:
            self._leadership.lose()

    async def _inform(self, role: SinkRole, client: KubeClient) -> None:
        # Fresh ones each time: what was published by others meanwhile is not what these remember.
        self._informers = Informers(
            client, self._publisher, producer=self._identity, heard=lambda: role.sequence
        )
        try:
            await self._informers.run()
        finally:
            self._informers = None

    async def _role(self, sink: Sink | None) -> SinkRole:
        """The role where the log stands; a log that does not answer is asked again."""

        def look() -> Start:
            return LogHistory(self._reader, self._reader).start(Bound())

        start = await answered(lambda: asyncio.to_thread(look), DECISIONS)
        checkpoint = start.checkpoint
        return SinkRole(
            sink,
            self._reader,
            chain=start.decision_chain(),
            offset=start.decisions_offset,
            open_commands=() if checkpoint is None else checkpoint.manifest.open_commands,
            on_resync=self._resync,
            still_waits=self._still_waits,
        )

    def _resync(self, resource: str) -> None:
        if self._informers is not None:
            event(logger, logging.INFO, "resync_requested", resource=resource)
            self._informers.resync(resource)

    def _still_waits(self, uid: str) -> bool:
        return self._state is None or uid in self._state.waiting

    def _lease_settings(self) -> LeaseSettings:
        settings = self._settings
        return LeaseSettings(
            namespace=settings.lease_namespace,
            domain=settings.domain,
            log_id=self._log_id,
            identity=self._identity,
        )
