"""The end of an informer: whenever it is cancelled, it ends."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from producers.informer import Informer
from tests.unit.producers.informer_scene import FAST, GIVE_UP_S, Log, Server, synced


class Slow(Server):
    """Its watches take a moment to be given back."""

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        try:
            await asyncio.Event().wait()
            yield []
        finally:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("turns", range(8))
def test_an_informer_that_is_ended_while_a_resync_is_asked_for_ends(turns: int) -> None:
    """The Lease is lost while a watch is given back: the informer went on for ever, and nobody looked for the Lease."""

    async def scene() -> None:
        log = Log()
        informer = Informer("nodes", Slow(), log, producer="me", pace=FAST)
        running = asyncio.create_task(informer.run())
        await synced(log)
        await asyncio.sleep(0.01)
        informer.resync()
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.wait([running], timeout=GIVE_UP_S)
        assert running.cancelled()

    asyncio.run(scene())
