"""Results that share an append."""

import asyncio
from collections.abc import Sequence

import pytest

from schemas.errors import Unavailable
from schemas.observations import CommandEnded
from streams.sink.results import SharedAppends


def result(number: int) -> CommandEnded:
    return CommandEnded(command_id=f"1.{number}", outcome="Applied")


class SlowLog:
    """An append that takes a moment; `fails` of them do not answer."""

    def __init__(self, fails: int = 0) -> None:
        self.appends: list[list[str]] = []
        self.fails = fails

    async def publish(self, results: Sequence[CommandEnded]) -> None:
        await asyncio.sleep(0.01)
        self.appends.append([each.command_id for each in results])
        if len(self.appends) <= self.fails:
            raise Unavailable("no answer")


def test_results_that_end_during_an_append_share_the_next() -> None:
    """Five at once: the first goes alone or with all, none waits for more than one other append, order is kept."""

    async def story() -> list[list[str]]:
        log = SlowLog()
        shared = SharedAppends(log.publish)
        first = asyncio.create_task(shared.publish(result(0)))
        await asyncio.sleep(0.005)
        await asyncio.gather(first, *[shared.publish(result(number)) for number in (1, 2, 3)])
        await shared.publish(result(4))
        return log.appends

    assert [["1.0"], ["1.1", "1.2", "1.3"], ["1.4"]] == asyncio.run(story())


def test_a_failed_append_is_told_to_each_of_its_callers() -> None:
    """All that shared it repeat; what comes later goes its own way."""

    async def story() -> list[list[str]]:
        log = SlowLog(fails=1)
        shared = SharedAppends(log.publish)
        outcomes = await asyncio.gather(
            shared.publish(result(0)), shared.publish(result(1)), return_exceptions=True
        )
        assert [True, True] == [isinstance(outcome, Unavailable) for outcome in outcomes]
        await shared.publish(result(0))
        return log.appends

    assert [["1.0", "1.1"], ["1.0"]] == asyncio.run(story())


def test_a_caller_that_leaves_does_not_disturb_the_others() -> None:
    """A cancelled caller's result is appended all the same: it was true."""

    async def story() -> list[list[str]]:
        log = SlowLog()
        shared = SharedAppends(log.publish)
        leaving = asyncio.create_task(shared.publish(result(0)))
        staying = asyncio.create_task(shared.publish(result(1)))
        await asyncio.sleep(0)
        leaving.cancel()
        await staying
        with pytest.raises(asyncio.CancelledError):
            await leaving
        return log.appends

    assert [["1.0", "1.1"]] == asyncio.run(story())
