"""What a role's App must not do to the process that it runs in."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from streams.faust_app import build_app
from streams.log import LogRecord, LogSettings


class Endless:
    """A consumer whose stop waits for a rebalance that nobody ends."""

    async def start(self) -> None:
        """It runs."""

    async def stop(self) -> None:
        await asyncio.Event().wait()


class Slow(Endless):
    """One whose stop takes until it is let go."""

    def __init__(self) -> None:
        self.may_end = threading.Event()

    async def stop(self) -> None:
        await asyncio.to_thread(self.may_end.wait)


def _thread(datadir: Path, consumer: Endless) -> Any:
    """The thread of a role's App, around that consumer."""

    async def on_message(record: LogRecord) -> None:
        """Nothing is delivered."""

    url, settings = "kafka://127.0.0.1:1", LogSettings()
    app: Any = build_app("role", url, ("pods",), on_message, settings=settings, datadir=datadir)
    thread = app.consumer._thread
    thread._create_consumer = lambda loop: consumer
    return thread


async def _begin_to_stop(datadir: Path, consumer: Endless) -> threading.Thread:
    """Starts it, and asks it to stop; the thread that goes on."""
    thread, before = _thread(datadir, consumer), set(threading.enumerate())
    await thread.start()
    (begun,) = set(threading.enumerate()) - before
    stopping = asyncio.create_task(thread.stop())
    await asyncio.wait([stopping], timeout=0.1)
    assert not stopping.done()
    return begun


def test_a_consumer_that_never_ends_does_not_keep_the_process(tmp_path: Path) -> None:
    """After a clean stop the process waited for Faust's thread, for ever."""
    assert asyncio.run(_begin_to_stop(tmp_path, Endless())).daemon


def test_a_consumer_that_ends_after_its_loop_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is left to tell: a traceback would look like a fault of whatever runs then."""
    failed: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    consumer = Slow()
    begun = asyncio.run(_begin_to_stop(tmp_path, consumer))
    consumer.may_end.set()
    begun.join(10)
    assert (False, []) == (begun.is_alive(), failed)
