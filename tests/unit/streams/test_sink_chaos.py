"""Two sinks share the Lease while answers get lost: whatever happens, results agree with the pods."""

import asyncio
import random

import pytest

from schemas.envelope import BindPod, EvictPod
from schemas.labels import COMMAND_ID
from schemas.observations import CommandEnded
from streams.sink.api import Response
from streams.sink.sink import Sink, SinkSettings
from tests.contracts.fake_api_server import LOST, FakeApiServer, Fault
from tests.unit.streams.sink_world import bind, evict

PODS = 40
TURNS_MAX = 500


class FaultyServer(FakeApiServer):
    """Loses one answer in three: before or after the call took effect, or with an error."""

    dice: random.Random

    async def _serve(self, method: str, name: str, act: object) -> Response:
        draw = self.dice.random()
        if draw < 0.12:
            self.fail(method, Fault(LOST, happens=True))
        elif draw < 0.24:
            self.fail(method, LOST)
        elif draw < 0.34:
            self.fail(method, Response(self.dice.choice([429, 500, 503]), "", "busy"))
        await asyncio.sleep(self.dice.random() / 2000)
        return await super()._serve(method, name, act)


class Stage:
    """One log of commands and results, two sinks that follow it, one of which may act."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.api = FaultyServer()
        self.api.dice = self.dice
        self.holder = 0
        self.results: list[CommandEnded] = []
        settings = SinkSettings(calls_max=6, retry_s=0.0005, retry_s_max=0.002)
        self.sinks = [
            Sink(self.api, self.publish, may_act=self.may_act(number), settings=settings)
            for number in range(2)
        ]

    def may_act(self, number: int) -> object:
        return lambda: self.holder == number

    async def publish(self, result: CommandEnded) -> None:
        """The core folds the result, and its decision ends the command at both sinks."""
        self.results.append(result)
        await asyncio.sleep(0)
        for sink in self.sinks:
            sink.on_decision([], ended=[result.command_id])

    async def hand_over(self) -> None:
        """The holder is cut off at once; the other begins when calls have had their time."""
        leaver, self.holder = self.holder, -1
        self.sinks[leaver].deactivate()
        await self.sinks[leaver].drain()
        self.holder = 1 - leaver
        self.sinks[self.holder].activate()

    async def play(self, commands: list[BindPod | EvictPod]) -> None:
        """Commands come bit by bit, some are withdrawn, the Lease changes hands."""
        self.sinks[0].activate()
        waiting = list(commands)
        for _ in range(TURNS_MAX):
            batch, waiting = waiting[:7], waiting[7:]
            withdrawn = [each.id for each in batch if self.dice.random() < 0.25]
            for sink in self.sinks:
                sink.on_decision(batch)
            await asyncio.sleep(0.001)
            for sink in self.sinks:
                sink.on_decision([], withdrawn=withdrawn)
            if self.dice.random() < 0.3:
                await self.hand_over()
            if not (waiting or any(sink.open_commands for sink in self.sinks)):
                return
        raise AssertionError(f"open after {TURNS_MAX} turns: {self.sinks[0].open_commands}")


@pytest.mark.parametrize("seed", range(16))
def test_results_agree_with_the_pods(seed: int) -> None:
    """Every command is answered; Applied, Withdrawn and the pods tell the same story."""
    stage = Stage(seed)
    commands: list[BindPod | EvictPod] = []
    for index in range(PODS):
        stage.api.add_pod(f"b{index}")
        stage.api.add_pod(f"e{index}", node="n1")
        commands += [bind(f"b{index}", number=f"1.{index}"), evict(f"e{index}", f"2.{index}")]

    async def scene() -> None:
        running = [asyncio.create_task(sink.run()) for sink in stage.sinks]
        try:
            await stage.play(commands)
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    asyncio.run(scene())
    first: dict[str, str] = {}
    for result in stage.results:
        first.setdefault(result.command_id, result.outcome)
    assert {command.id for command in commands} == set(first)
    for command in commands:
        pod = stage.api.pods["default", command.name]
        if isinstance(command, BindPod):
            happened = pod["metadata"]["annotations"].get(COMMAND_ID) == command.id
        else:
            happened = "deletionTimestamp" in pod["metadata"]
        assert ("Applied" if happened else "Withdrawn") == first[command.id], command.id
