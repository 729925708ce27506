"""Results on their way to the log: those that end while an append is under way share the next one.

An append costs milliseconds, a bind too; one append a result would halve what a sink can do. Must not drop, merge or
reorder: each caller learns the fate of its own result.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from schemas.observations import CommandEnded

#: Publishes results in order, durable when it returns; raises `Unavailable` when the outcome is not known.
PublishResults = Callable[[Sequence[CommandEnded]], Awaitable[None]]


class SharedAppends:
    """`publish` for one result at a time, over a publisher of many."""

    def __init__(self, publish_many: PublishResults) -> None:
        self._publish_many = publish_many
        self._waiting: deque[tuple[CommandEnded, asyncio.Future[None]]] = deque()
        self._appending: asyncio.Task[None] | None = None

    async def publish(self, result: CommandEnded) -> None:
        """Returns when `result` is durable. Raises what the append raised; the caller repeats the call then."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((result, done))
        if self._appending is None:
            self._appending = asyncio.create_task(self._append_all())
        await done

    async def _append_all(self) -> None:
        try:
            while self._waiting:
                batch = list(self._waiting)
                self._waiting.clear()
                await self._append(batch)
        finally:
            self._appending = None
            for _, done in self._waiting:
                done.cancel()

    async def _append(self, batch: list[tuple[CommandEnded, asyncio.Future[None]]]) -> None:
        error: Exception | None = None
        try:
            await self._publish_many([result for result, _ in batch])
        except Exception as failure:  # noqa: BLE001  (each caller gets it)
            error = failure
        for _, done in batch:
            if done.done():
                continue  # its caller was cancelled
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
