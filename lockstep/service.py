"""The service behind `lockstep run`: recovers from the log, builds the roles that were asked for, and runs them.

The composition root: the one place that knows sequencer, decider, projector, sink and informers at once. Everything
runs in one event loop and ends together: a role that fails ends the service, and whoever starts it again recovers.
"""

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from lockstep.admin import listening
from schemas.errors import Fatal, Unavailable
from schemas.topics import ADMIN, JOURNAL
from state.snapshot import encode, freeze
from streams.checkpoints import Checkpointer
from streams.feed import Feed, OnRecords
from streams.history import LogHistory, Progress, log_id
from streams.log import LogAddress, LogReader, LogRecord, LogWriter, open_reader, open_writer
from streams.logs import event
from streams.metrics import Metrics
from streams.metrics_endpoint import MetricsAddress
from streams.projector import Projector
from streams.recovery import Recovered, check_intake, recover
from streams.retry import answered
from streams.roles import DeciderRole, Leadership, SequencerRole
from streams.translate import to_state

logger = logging.getLogger("lockstep")

RESTART_S: Final = 1.0
LOG_ID_POLL_S: Final = 0.1
#: How long a standby has led before it starts Faust, for that is work that decisions would wait for.
JOIN_AFTER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """What `lockstep run` was asked for. Nothing here changes a decision, except `policy` on an empty log."""

    log: str
    domain: int = 0
    datadir: Path
    policy: dict[str, Any] | None = None
    kubeconfig: str | None = None
    lease_namespace: str = "kube-system"
    identity: str = ""
    metrics: MetricsAddress | None = None
    standby: bool = False
    informers: bool = True
    sequencer: bool = True
    decider: bool = True
    projector: bool = True
    sink: bool = True

    @property
    def folds(self) -> bool:
        """A role of ours needs State."""
        return self.sequencer or self.decider or self.projector

    @property
    def reaches_cluster(self) -> bool:
        """A role of ours talks to the API server."""
        return self.sink or self.informers


class Role(Protocol):
    """What a feed drives."""

    def next_offsets(self) -> dict[str, int]:
        """Topic -> offset to begin at."""

    async def on_records(self, topic: str, records: list[LogRecord]) -> None:
        """Takes records in order."""


@dataclass(slots=True)
class _Tasks:
    """Everything that runs; the first that fails ends all."""

    running: list["asyncio.Task[Any]"] = field(default_factory=list)

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work, name=name)
        self.running.append(task)
        return task

    async def cancel(self) -> None:
        """Ends what runs, newest first; errors on the way out are for the log."""
        for task in reversed(self.running):
            task.cancel()
            await asyncio.wait([task])


class Service:
    """One run of the service: `recover`, then `run` until `stop` is set or a role fails.

    `metrics` is told of every role that is built.
    """

    def __init__(self, settings: ServiceSettings, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.roles = (metrics or Metrics()).roles
        self.stop = asyncio.Event()
        self.identity = settings.identity or identity_of_process()
        self.writer: LogWriter = open_writer(settings.log, settings.domain)
        self.reader: LogReader = open_reader(settings.log, settings.domain)
        self.history = LogHistory(self.reader, open_reader(settings.log, settings.domain))
        self.leadership = Leadership(always=not settings.reaches_cluster)
        self.roles.leadership = self.leadership
        self.roles.disks["data"] = settings.datadir
        address = LogAddress.parse(settings.log)
        if address.scheme == "embedded":
            self.roles.disks["log"] = Path(address.place)
        self.recovered: Recovered | None = None
        #: Feeds are Faust's, and there are tables: at once, but for a standby.
        self._joined = asyncio.Event()
        self._tasks = _Tasks()

    def recover(self, progress: Progress | None = None) -> None:
        """Folds the log to its end. Raises `Fatal` when it does not hold together."""
        if self.settings.folds:
            self.recovered = recover(self.history, progress)
            check_intake(self.reader, self.recovered.positions)
            event(
                logger,
                logging.INFO,
                "recovered",
                sequence=self.recovered.decider.sequence,
                checkpoint=self.recovered.started_at,
                unpublished=len(self.recovered.decider.unpublished()),
                open_commands=len(self.recovered.open_commands),
            )

    async def run(self) -> None:
        """Runs all roles. Raises what the first failing one raised, after all have ended."""
        async with AsyncExitStack() as stack:
            if not self.settings.standby:
                self._joined.set()
            self._tasks.start("join", self._join())
            decider = self._start_decider()
            self._start_sequencer()
            self._start_projector()
            if self.settings.reaches_cluster:
                self._tasks.start("cluster", self._run_cluster())
            await stack.enter_async_context(listening(self.settings.datadir, self._append_admin()))
            stopping = self._tasks.start("stop", self.stop.wait())
            self.roles.running = True
            event(logger, logging.INFO, "running", log=self.settings.log, identity=self.identity)
            done, _ = await asyncio.wait(self._tasks.running, return_when=asyncio.FIRST_COMPLETED)
            self.roles.running = False
            await self._tasks.cancel()
            if stopping in done and decider is not None:
                await decider.finish(self.reader)
                event(logger, logging.INFO, "stopped", sequence=decider.decider.sequence)
        for task in done - {stopping}:
            if (error := task.exception()) is not None:
                raise error

    def close(self) -> None:
        """Gives the log back."""
        self.writer.close()
        self.reader.close()
        self.history.decisions_reader.close()

    # --- roles ------------------------------------------------------------------------------------------------------

    def _start_decider(self) -> DeciderRole | None:
        if not self.settings.decider:
            return None
        assert self.recovered is not None
        checkpointer = Checkpointer(self.history.checkpoints, self.writer)
        role = DeciderRole(self.recovered.decider, self.writer, self.leadership, checkpointer)
        self.roles.decider = role
        self._tasks.start("decider", role.run())
        self._tasks.start("decider feed", self._follow("decider", role))
        return role

    def _start_sequencer(self) -> None:
        if not self.settings.sequencer:
            return
        assert self.recovered is not None
        role = SequencerRole(
            self.recovered.sequencer(self.settings.policy),
            self.writer,
            self.reader,
            self.leadership,
            journal_offset=self.recovered.decider.journal_offset,
            decisions_offset=self.recovered.decider.decisions_offset,
        )

        self.roles.sequencer = role

        def connect(feed: Feed) -> None:
            role.reposition = feed.reposition

        self._tasks.start("sequencer", role.run())
        self._tasks.start("sequencer feed", self._follow("sequencer", role, connect))

    def _start_projector(self) -> None:
        if self.settings.projector:
            self._tasks.start("projector", self._project())

    async def _project(self) -> None:
        """Keeps the tables."""
        from streams.tables import TablesRole

        await self._joined.wait()
        assert self.recovered is not None
        decider = self.recovered.decider
        offset, frozen = decider.decisions_offset, freeze(decider.state)
        state = await asyncio.to_thread(lambda: to_state(encode(frozen)))
        role = TablesRole(Projector(state), offset)

        async def mend(feed: Feed) -> None:
            await role.mend(feed, self.settings.domain)

        await self._follow("projector", role, role.declare, mend)

    async def _join(self) -> None:
        """Makes a standby that leads a member of the groups, and has its tables begun."""
        if not self._joined.is_set():
            await self.leadership.led()
            await asyncio.sleep(JOIN_AFTER_S)
            self._joined.set()
            for feed in list(self.roles.feeds.values()):
                await feed.stop()  # `_follow` goes on with one of Faust's
        await asyncio.Event().wait()

    async def _follow(
        self,
        name: str,
        role: Role,
        connect: Callable[[Feed], None] | None = None,
        ready: Callable[[Feed], Awaitable[None]] | None = None,
    ) -> None:
        """Feeds a role; a feed that died, or read alone, is replaced by one that begins where the role stands."""

        async def on_ready() -> None:
            if ready is not None:
                await ready(feed)

        while True:
            alone = not self._joined.is_set()
            feed = self._feed(name, role.next_offsets(), role.on_records, on_ready)
            self.roles.feeds[name] = feed
            try:
                if connect is not None:
                    connect(feed)
                await feed.run()
                if not alone:
                    return
            except Unavailable as error:
                event(logger, logging.WARNING, "feed_restarted", role=name, error=str(error))
                await asyncio.sleep(RESTART_S)

    def _feed(
        self,
        name: str,
        offsets: dict[str, int],
        on_records: OnRecords,
        on_ready: Callable[[], Awaitable[None]],
    ) -> Feed:
        settings = self.settings
        return Feed(
            settings.log,
            name,
            offsets,
            on_records,
            on_ready=on_ready,
            domain=settings.domain,
            domains=settings.domain + 1,
            # Without a directory it reads by itself and has no part in a group.
            datadir=settings.datadir / name if self._joined.is_set() else None,
        )

    # --- the cluster ------------------------------------------------------------------------------------------------

    async def wait_for_history(self) -> bool:
        """A standby never begins a log: waits until it has a record; False when `stop` came first."""
        stopping = asyncio.ensure_future(self.stop.wait())
        found = asyncio.ensure_future(self._log_id())
        await asyncio.wait((stopping, found), return_when=asyncio.FIRST_COMPLETED)
        for each in (stopping, found):
            each.cancel()
        return found.done() and not found.cancelled() and bool(found.result())

    async def _run_cluster(self) -> None:
        from lockstep.cluster import ClusterSide

        side = ClusterSide(
            self.settings,
            identity=self.identity,
            log_id=await self._log_id(),
            writer=self.writer,
            reader=self.reader,
            leadership=self.leadership,
            roles=self.roles,
            state=None if self.recovered is None else self.recovered.decider.state,
        )
        await side.run(self._follow)

    async def _log_id(self) -> str:
        """The log's id; an empty log gets one with its first record."""

        def look() -> str:
            return log_id(LogHistory(self.reader, self.reader))

        while True:
            found = await answered(lambda: asyncio.to_thread(look), JOURNAL)
            if found:
                return found
            await asyncio.sleep(LOG_ID_POLL_S)

    def _append_admin(self) -> Callable[[bytes], int]:
        """Appends an administrator's message, in a thread. A log that takes nothing more ends the service."""
        loop = asyncio.get_running_loop()
        failed: asyncio.Future[None] = loop.create_future()

        def fail(error: Fatal) -> None:
            if not failed.done():
                failed.set_exception(error)

        def append(message: bytes) -> int:
            try:
                return self.writer.append(ADMIN, None, message)
            except Fatal as error:
                loop.call_soon_threadsafe(fail, error)
                raise

        self._tasks.start("admin", _await(failed))
        return append


async def _await(future: "asyncio.Future[None]") -> None:
    await future


def identity_of_process() -> str:
    """A name that no other process has."""
    return f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
