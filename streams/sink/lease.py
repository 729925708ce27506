"""The Kubernetes Lease `lockstep-DOMAIN`: who may act on the API server, and for whose log.

`Lease` is one holder's or candidate's view: `step` acquires or renews, `held` says whether its
holder may act at this very moment, on a clock that runs through suspension of the machine. `keep`
runs a coroutine while the Lease is held. A candidate measures another holder's silence by its own
clock, from the moment it saw the Lease change: clocks of different machines are never compared.
Whether the log is ours comes first: a Lease of another log is never taken.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import Fatal
from streams.logs import event
from streams.sink.api import LOG_ID, UNKNOWN, ApiWriter, Response

_log = logging.getLogger("lockstep.lease")
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_time() -> float:
    """Seconds since the machine started, suspension included."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSettings:
    """Whose Lease it is. `identity` is unique to a process (or to whatever can exist only once).

    A holder renews every `renew_s`, which also bounds one call; one that could not tries again after `look_s`, and
    stops `margin_s` before others may take over. A candidate looks every `look_s`.
    """

    namespace: str
    domain: int
    log_id: str
    identity: str
    duration_s: int = 4
    renew_s: float = 1.0
    margin_s: float = 1.0
    look_s: float = 0.25

    def __post_init__(self) -> None:
        assert self.held_s > self.renew_s, "a Lease must outlive its renewal"

    @property
    def held_s(self) -> float:
        """How long a holder may act after it sent a renewal that succeeded."""
        return self.duration_s - self.margin_s

    @property
    def name(self) -> str:
        """Of the Lease object."""
        return f"lockstep-{self.domain}"


class Lease:
    """See the module. `clock` counts seconds through suspension; `wall` stamps what people read."""

    def __init__(
        self,
        api: ApiWriter,
        settings: LeaseSettings,
        *,
        clock: Callable[[], float] = boot_time,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.settings = settings
        #: Grows whenever the power to act begins anew, also when it only lapsed in between.
        self.term = 0
        self._api = api
        self._clock = clock
        self._wall = wall
        self._valid_until = float("-inf")
        self._mine: dict[str, Any] | None = None
        self._seen: tuple[Any, ...] = ()
        self._seen_at = 0.0
        self._waited_for = ""

    def held(self) -> bool:
        """May its holder act now? Ask before every call."""
        return self._clock() < self._valid_until

    def until_renewal_s(self) -> float:
        """When the next renewal is due; less than 0 when one is late, because it failed or was slow."""
        return self._valid_until - self.settings.held_s + self.settings.renew_s - self._clock()

    async def step(self) -> None:
        """Renew if held, else try to acquire; every answer but a foreign log's Lease is left for
        the next step.

        Raises `Fatal` when the Lease names another log.
        """
        if self._mine is not None:
            answer = await self._write(self._mine)
            if answer.status not in (UNKNOWN, 404, 409):
                return
            # Without an answer it may be as before, or as just written: a look says which.
            if answer.status != UNKNOWN:
                self._mine = None
        answer = await self._bounded(self._api.read_lease(self.settings.namespace, self._name))
        if answer.status == 404:
            await self._create()
        elif answer.ok:
            await self._consider(dict(answer.body))
        else:
            self._complain(answer)

    async def release(self) -> None:
        """Let others take over at once. The caller has no call in flight any more."""
        if self._mine is None:
            return
        self._valid_until = float("-inf")
        lease, self._mine = self._mine, None
        spec = {**lease["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}
        spec["renewTime"] = self._now()
        answer = await self._bounded(
            self._api.update_lease(self.settings.namespace, {**lease, "spec": spec})
        )
        if answer.ok:
            event(_log, logging.INFO, "lease_released", lease=self._name)
        else:
            self._complain(answer)

    @property
    def _name(self) -> str:
        return self.settings.name

    async def _create(self) -> None:
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "namespace": self.settings.namespace,
                "name": self._name,
                "annotations": {LOG_ID: self.settings.log_id},
            },
            "spec": {**self._holding(), "leaseTransitions": 0},
        }
        sent_at = self._clock()
        answer = await self._bounded(self._api.create_lease(self.settings.namespace, lease))
        self._take_answer(answer, sent_at)

    async def _consider(self, lease: dict[str, Any]) -> None:
        """Decide on a Lease that was read: ours to go on with, free, expired, or another's."""
        spec = lease.get("spec") or {}
        self._check_log(lease)
        holder = spec.get("holderIdentity") or ""
        seen = (holder, spec.get("renewTime"), lease["metadata"].get("resourceVersion"))
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        if holder == self.settings.identity:
            await self._write(lease)
            return
        self._mine, self._valid_until = None, float("-inf")
        silent_s = self._clock() - self._seen_at
        if holder and silent_s < (spec.get("leaseDurationSeconds") or 0):
            if holder != self._waited_for:
                self._waited_for = holder
                event(_log, logging.INFO, "lease_held_by_another", lease=self._name, holder=holder)
            return
        transitions = (spec.get("leaseTransitions") or 0) + 1
        taken = {**spec, **self._holding(), "leaseTransitions": transitions}
        await self._write({**lease, "spec": taken})

    async def _write(self, lease: dict[str, Any]) -> Response:
        spec = {**lease["spec"], "renewTime": self._now()}
        spec["leaseDurationSeconds"] = self.settings.duration_s
        sent_at = self._clock()
        answer = await self._bounded(
            self._api.update_lease(self.settings.namespace, {**lease, "spec": spec})
        )
        self._take_answer(answer, sent_at)
        return answer

    def _take_answer(self, answer: Response, sent_at: float) -> None:
        if not answer.ok:
            self._complain(answer)
            return
        if not self.held():
            self.term += 1
            event(
                _log,
                logging.INFO,
                "lease_acquired",
                lease=self._name,
                identity=self.settings.identity,
                term=self.term,
            )
        self._mine = dict(answer.body)
        self._valid_until = sent_at + self.settings.held_s

    def _check_log(self, lease: dict[str, Any]) -> None:
        theirs = (lease["metadata"].get("annotations") or {}).get(LOG_ID)
        if theirs == self.settings.log_id:
            return
        self._valid_until = float("-inf")
        where = f"{self.settings.namespace}/{self._name}"
        raise Fatal(
            f"Lease {where} belongs to log {theirs or 'unknown'}, this is log "
            f"{self.settings.log_id}: run with that log, or, if it is gone, delete the Lease "
            f"(kubectl -n {self.settings.namespace} delete lease {self._name})",
            cause="lease_of_another_log",
        )

    def _holding(self) -> dict[str, Any]:
        now = self._now()
        return {
            "holderIdentity": self.settings.identity,
            "leaseDurationSeconds": self.settings.duration_s,
            "acquireTime": now,
            "renewTime": now,
        }

    def _now(self) -> str:
        whole, fraction = divmod(round(self._wall() * 1_000_000), 1_000_000)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{fraction:06d}Z"

    async def _bounded(self, call: Awaitable[Response]) -> Response:
        try:
            async with asyncio.timeout(self.settings.renew_s):
                return await call
        except TimeoutError:
            return Response(UNKNOWN, "Timeout", f"no answer within {self.settings.renew_s} s")

    def _complain(self, answer: Response) -> None:
        event(
            _log,
            logging.WARNING,
            "lease_not_written",
            lease=self._name,
            status=answer.status,
            message=answer.message,
        )


async def keep(lease: Lease, act: Callable[[], Awaitable[None]]) -> None:
    """Run `act` while the Lease is held: begun when it is acquired, cancelled when it is lost;
    until cancelled.

    On the way out `act` is cancelled and awaited, then the Lease released. Raises what `act`
    raises, and `Fatal` as `Lease.step` does.
    """
    acting: asyncio.Task[None] | None = None
    term = 0
    try:
        while True:
            await lease.step()
            if acting is not None and (acting.done() or not lease.held() or lease.term != term):
                stopping, acting = acting, None
                await _stop(lease, stopping)
            if acting is None and lease.held():
                term = lease.term
                acting = asyncio.ensure_future(_run(act))
            await _pause(lease, acting)
    finally:
        try:
            if acting is not None:
                await _stop(lease, acting)
        finally:
            await lease.release()


async def _run(act: Callable[[], Awaitable[None]]) -> None:
    await act()


async def _pause(lease: Lease, acting: asyncio.Task[None] | None) -> None:
    """Until the next step is due, or `acting` has ended.

    A renewal without an answer may have happened, or not: it is repeated soon, while the Lease is still held. Else
    one lost answer cost the Lease, and everything had to be listed anew.
    """
    look_s = lease.settings.look_s
    if acting is None:
        await asyncio.sleep(look_s)
    else:
        due_s = min(lease.until_renewal_s(), lease.settings.renew_s)
        await asyncio.wait([acting], timeout=max(due_s, look_s))


async def _stop(lease: Lease, acting: asyncio.Task[None]) -> None:
    """Cancel and await; raise what it had raised by itself."""
    ended_by_itself = acting.done()
    acting.cancel()
    await asyncio.wait([acting])
    if not acting.cancelled() and (error := acting.exception()) is not None:
        raise error
    if ended_by_itself:
        raise Fatal("what runs under the Lease ended by itself")
    event(_log, logging.INFO, "lease_lost_or_left", lease=lease.settings.name, term=lease.term)
