"""The sink: carries out the commands of accepted decisions, and answers each `BindPod` and
`EvictPod`.

It is fed decisions in order (`on_decision`) whether it acts or not; it acts between `activate` and
`deactivate`, while `may_act` (the Lease, measured before every call) says so. What it learns goes
back through `publish_result` only. Must not decide anything, nor read a topic or hold the Lease
itself: its runner does (`streams.sink.lease.keep`, and the role that delivers `decisions`). One
event loop; nothing here is thread-safe.
"""

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from schemas.envelope import BindPod, Command, EmitEvent, EvictPod, PatchStatus
from schemas.errors import Unavailable
from schemas.observations import CommandEnded
from streams.logs import event
from streams.sink.api import UNKNOWN, ApiWriter, Response
from streams.sink.bodies import is_merged
from streams.sink.outcomes import (
    ReadPod,
    TryAgain,
    judge,
    judge_conflict,
    judge_pod,
    refused_by_budget,
    withdrawn,
)
from streams.sink.status import StatusQueue

_log = logging.getLogger("lockstep.sink")
#: Events that wait to be made; over it the oldest is dropped.
EVENTS_MAX: Final = 10_000
#: Says that a call is over; once more does no harm.
_Finish = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """Process settings. `calls_max`: binds and evictions in flight; `statuses_max`: statuses, when
    none of those waits.

    `retry_s` doubles with each attempt up to `retry_s_max`; every delay is shortened by up to half
    at random.
    """

    calls_max: int = 32
    statuses_max: int = 8
    retry_s: float = 0.2
    retry_s_max: float = 10.0


@dataclass(slots=True, eq=False)
class _Work:
    """One open command. `doubtful`: an attempt of this sink may have taken effect.

    `inherited`: it was open before this sink became active, so an earlier holder of the Lease may
    have begun it.
    """

    command: BindPod | EvictPod
    inherited: bool = False
    doubtful: bool = False
    withdrawn: bool = False
    answered: bool = False
    ended: bool = False
    attempts: int = 0
    queued: bool = False
    running: bool = False
    timer: asyncio.TimerHandle | None = None


class Sink:
    """See the module. `clock_us` is any clock that runs steadily: with it an eviction's deadline is
    measured, which is of the log's time, from the last decision on (`note_time`).
    """

    def __init__(
        self,
        api: ApiWriter,
        publish_result: Callable[[CommandEnded], Awaitable[None]],
        *,
        may_act: Callable[[], bool] = lambda: True,
        clock_us: Callable[[], int] = lambda: time.monotonic_ns() // 1000,
        settings: SinkSettings | None = None,
    ) -> None:
        self._api = api
        self._publish_result = publish_result
        self._may_act = may_act
        self._clock_us = clock_us
        #: The log's time when `clock_us` said so: no wall clock, for the log may be far off it.
        self._stamped_us, self._stamped_at_us = 0, clock_us()
        self._settings = settings or SinkSettings()
        self._open: dict[str, _Work] = {}
        self._ready: deque[_Work] = deque()
        self._statuses = StatusQueue()
        self._statuses_after = 0.0
        self._events: deque[EmitEvent] = deque(maxlen=EVENTS_MAX)
        self._calls = 0
        self._writes = 0
        self._in_flight: dict[int, None] = {}
        self._begun = 0
        self._active = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def open_commands(self) -> Mapping[str, Command]:
        """Commands without an `ended` yet, by id, oldest first: what the table `open_commands`
        holds.
        """
        return {key: work.command for key, work in self._open.items()}

    @property
    def active(self) -> bool:
        """Between `activate` and `deactivate`."""
        return self._active

    def restore(self, open_commands: Iterable[Command]) -> None:
        """Take over the open commands of the table or of a checkpoint, before the decisions that
        follow it.
        """
        self.on_decision(open_commands)

    def on_decision(
        self,
        commands: Iterable[Command],
        ended: Iterable[str] = (),
        withdrawn: Iterable[str] = (),
    ) -> None:
        """Take one accepted decision whole; its requests are the informers' business."""
        for command in commands:
            self._take(command)
        for key in withdrawn:
            if (work := self._open.get(key)) is not None:
                work.withdrawn = True
                if work.timer is not None:
                    self._requeue(work)
        for key in ended:
            if (work := self._open.pop(key, None)) is not None:
                work.ended = True
                self._stop_timer(work)
        self._wake.set()

    def note_time(self, timestamp_us: int) -> None:
        """An accepted decision that was just read is stamped so: the log's time, as of now."""
        self._stamped_us, self._stamped_at_us = timestamp_us, self._clock_us()

    def activate(self) -> None:
        """Act from now on. The caller holds the Lease, and has fed every decision there was when it
        got it.
        """
        for work in self._open.values():
            work.inherited = True
            self._queue(work)
        self._active = True
        self._wake.set()
        event(_log, logging.INFO, "sink_activated", open_commands=len(self._open))

    def deactivate(self) -> None:
        """Start no call any more. Calls in flight end by themselves, and their outcome, if known,
        is published.
        """
        if not self._active:
            return
        self._active = False
        for work in self._open.values():
            self._stop_timer(work)
        for work in self._ready:
            work.queued = False
        self._ready.clear()
        event(_log, logging.INFO, "sink_deactivated", open_commands=len(self._open))

    async def act(self, read_to_end: Callable[[], Awaitable[None]]) -> None:
        """What runs under the Lease: feed what there is to read, act until cancelled, let calls
        end.
        """
        await read_to_end()
        self.activate()
        try:
            await asyncio.Event().wait()
        finally:
            self.deactivate()
            await self.drain()

    async def drain(self) -> None:
        """Return once no call is in flight; results may still be on their way to the log."""
        await self._idle.wait()

    async def run(self) -> None:
        """Carry out what is fed, until cancelled. Raises what `publish_result` raises, except
        `Unavailable`.
        """
        async with asyncio.TaskGroup() as group:
            while True:
                await self._wake.wait()
                self._wake.clear()
                self._start_calls(group)
                self._start_writes(group)

    # -- taking in ---------------------------------------------------------------------------------

    def _take(self, command: Command) -> None:
        if isinstance(command, PatchStatus):
            self._statuses.offer(command)
            return
        if isinstance(command, EmitEvent):
            if self._active:  # what was decided before was told by who acted then
                self._events.append(command)
            return
        if isinstance(command, BindPod):
            self._statuses.forget("pods", command.uid)
        if command.id not in self._open:
            work = self._open[command.id] = _Work(command)
            if self._active:
                self._queue(work)

    def _queue(self, work: _Work) -> None:
        """While active only: who stands by would queue whatever others carry out, for ever; `activate` queues what is
        open then.
        """
        if not (work.queued or work.running or work.answered):
            work.queued = True
            self._ready.append(work)

    def _requeue(self, work: _Work) -> None:
        self._stop_timer(work)
        self._queue(work)
        self._wake.set()

    def _stop_timer(self, work: _Work) -> None:
        if work.timer is not None:
            work.timer.cancel()
            work.timer = None

    # -- binds and evictions -----------------------------------------------------------------------

    def _start_calls(self, group: asyncio.TaskGroup) -> None:
        while self._ready and self._calls < self._settings.calls_max and self._acting():
            work = self._ready.popleft()
            work.queued = False
            if work.ended or work.answered:
                continue
            work.running = True
            self._calls += 1
            finish = self._begin()
            group.create_task(self._carry_out(work, finish)).add_done_callback(finish)

    def _acting(self) -> bool:
        return self._active and self._may_act()

    async def _carry_out(self, work: _Work, finish: _Finish) -> None:
        try:
            try:
                verdict = await self._attempt(work)
            finally:
                finish()
            work.attempts += 1
            if isinstance(verdict, CommandEnded):
                await self._answer(work, verdict)
        finally:
            work.running = False
            self._calls -= 1
        if isinstance(verdict, TryAgain):
            work.doubtful = work.doubtful or verdict.uncertain
            self._retry_later(work, verdict)
        elif verdict is None and self._acting():
            self._queue(work)
        self._wake.set()

    async def _attempt(self, work: _Work) -> CommandEnded | TryAgain | None:
        """One attempt; None: the Lease was lost before anything was sent, and the command stays as
        it is.
        """
        command = work.command
        if work.withdrawn and not (work.doubtful or work.inherited):
            return withdrawn(command)
        # Evictions look first: a pod that has moved on keeps the API server busy for 10 s otherwise.
        if work.doubtful or work.withdrawn or isinstance(command, EvictPod):
            read = await self._api.read_pod(command.namespace, command.name)
            verdict = judge_pod(command, read, read)
            if isinstance(verdict, TryAgain):
                return TryAgain(uncertain=False, why=read)
            if isinstance(verdict, CommandEnded):
                return verdict
            if work.withdrawn:
                return withdrawn(command)
        if isinstance(command, BindPod):
            await self._statuses.settled("pods", command.uid)
        if not self._acting():
            return None
        answer = await self._send(command)
        judged = judge(command, answer)
        if isinstance(judged, ReadPod):
            read = await self._api.read_pod(command.namespace, command.name)
            return judge_conflict(command, judged.why, read)
        if isinstance(judged, TryAgain) and judged.budget:
            assert isinstance(command, EvictPod)
            if self._log_us() >= command.deadline_us:
                return refused_by_budget(command, answer)
        return judged

    async def _send(self, command: BindPod | EvictPod) -> Response:
        if isinstance(command, BindPod):
            return await self._api.bind(command)
        return await self._api.evict(command)

    async def _answer(self, work: _Work, result: CommandEnded) -> None:
        if work.ended:
            return
        delay_s = self._settings.retry_s
        while True:
            try:
                await self._publish_result(result)
                break
            except Unavailable as error:
                event(
                    _log,
                    logging.WARNING,
                    "result_not_published",
                    command_id=result.command_id,
                    why=str(error),
                )
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, self._settings.retry_s_max)
        work.answered = True
        command = work.command
        event(
            _log,
            logging.INFO,
            "command_ended",
            command_id=command.id,
            command=command.kind,
            outcome=result.outcome,
            namespace=command.namespace,
            name=command.name,
            uid=command.uid,
            status=result.status or None,
            message=result.message or None,
            attempts=work.attempts,
        )
        if isinstance(command, EvictPod) and result.status == 201 and self._acting():
            await self._api.create_event(command, f"Evicted by Lockstep: {command.reason}")

    def _retry_later(self, work: _Work, verdict: TryAgain) -> None:
        level = logging.INFO if verdict.budget else logging.WARNING
        command = work.command
        event(
            _log,
            level,
            "command_not_ended",
            command_id=command.id,
            command=command.kind,
            status=verdict.why.status,
            message=verdict.why.message,
            attempts=work.attempts,
        )
        if work.ended or not self._active:
            return
        delay_s = self._delay_s(work.attempts)
        if verdict.budget and isinstance(command, EvictPod):
            left_s = (command.deadline_us - self._log_us()) / 1_000_000
            delay_s = min(delay_s, max(left_s, 0.0))
        work.timer = asyncio.get_running_loop().call_later(delay_s, self._requeue, work)

    def _log_us(self) -> int:
        """The log's time now; in an idle log, what has passed since its last decision was read."""
        return self._stamped_us + self._clock_us() - self._stamped_at_us

    def _delay_s(self, attempts: int) -> float:
        longest: float = self._settings.retry_s * 2 ** min(attempts - 1, 16)
        return min(longest, self._settings.retry_s_max) * random.uniform(0.5, 1.0)

    def _begin(self) -> _Finish:
        """A call is in flight until the answer of this is called. The end of its task calls it, too: a task that is
        cancelled before its first turn runs none of its own code.
        """
        self._begun += 1
        number = self._begun
        self._in_flight[number] = None
        self._idle.clear()

        def finish(_task: object = None) -> None:
            self._in_flight.pop(number, None)
            if not self._in_flight:
                self._idle.set()

        return finish

    # -- statuses ----------------------------------------------------------------------------------

    def _start_writes(self, group: asyncio.TaskGroup) -> None:
        """Binds go first: one status at a time while any of them waits, so that none starves
        either.
        """
        limit = 1 if self._ready else self._settings.statuses_max
        now = asyncio.get_running_loop().time()
        while self._writes < limit and now >= self._statuses_after and self._acting():
            command = self._statuses.take()
            if command is None and not self._events:
                return
            self._writes += 1
            finish = self._begin()
            call = (
                self._tell(self._events.popleft(), finish)
                if command is None
                else self._write(command, finish)
            )
            group.create_task(call).add_done_callback(finish)

    async def _tell(self, command: EmitEvent, finish: _Finish) -> None:
        """One try: an Event is for people, and the next one says what has become of it."""
        answer = Response(UNKNOWN)
        try:
            answer = await self._api.create_event(command, command.message)
        finally:
            self._writes -= 1
            finish()
        if not (answer.ok or answer.status in (404, 409)):
            event(
                _log,
                logging.WARNING,
                "event_not_made",
                command_id=command.id,
                resource=command.resource,
                namespace=command.namespace,
                name=command.name,
                status=answer.status,
                message=answer.message,
            )
        self._wake.set()

    async def _write(self, command: PatchStatus, finish: _Finish) -> None:
        answer = Response(0)
        news = self._statuses.tells_news(command)
        try:
            answer = await self._api.patch_status(command)
        finally:
            self._writes -= 1
            settled = self._statuses.done(command, answer)
            finish()
        if not settled:
            loop = asyncio.get_running_loop()
            delay_s = self._delay_s(2)
            self._statuses_after = loop.time() + delay_s
            loop.call_later(delay_s, self._wake.set)
        if answer.ok and news and command.resource == "pods":
            self._events.append(_event_of(command))
        if not (answer.ok or _moved_on(command, answer)):
            event(
                _log,
                logging.WARNING,
                "status_not_written",
                command_id=command.id,
                resource=command.resource,
                namespace=command.namespace,
                name=command.name,
                status=answer.status,
                message=answer.message,
            )
        self._wake.set()


def _event_of(command: PatchStatus) -> EmitEvent:
    """What `kubectl describe pod` shows of a pod that waits, under the reason that people look for."""
    return EmitEvent(
        id=command.id,
        resource=command.resource,
        namespace=command.namespace,
        name=command.name,
        uid=command.uid,
        reason="FailedScheduling",
        message=str(command.fields["message"]),
    )


def _moved_on(command: PatchStatus, answer: Response) -> bool:
    """The object of a status is gone, or another one has its name by now.

    Of what is merged the answer names the uid; of any other object it is the one refusal without a cause.
    """
    if answer.status != 422:
        return answer.status == 404
    if is_merged(command.resource):
        return "metadata.uid" in answer.message
    return not (answer.body.get("details") or {}).get("causes")
