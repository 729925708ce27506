"""What a role's App must not do to the process that it runs in."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from streams.faust_app import build_app
from streams.log import LogRecord, LogSettings


class Endless:
    """A consumer whose stop waits for a rebalance that nobody ends."""

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        await asyncio.Event().wait()


def test_a_consumer_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    """After a clean stop the process waited for Faust's thread, for ever."""

    async def on_message(record: LogRecord) -> None:
        """Nothing is delivered."""

    async def scene() -> None:
        url, settings = "kafka://127.0.0.1:1", LogSettings()
        app: Any = build_app(
            "role", url, ("pods",), on_message, settings=settings, datadir=tmp_path
        )
        before = set(threading.enumerate())
        thread = app.consumer._thread
        thread._create_consumer = lambda loop: Endless()
        await thread.start()
        (begun,) = set(threading.enumerate()) - before
        assert begun.daemon
        stopping = asyncio.create_task(thread.stop())
        await asyncio.wait([stopping], timeout=0.1)
        assert not stopping.done()

    asyncio.run(scene())
