"""The processes of the simulated installation: the product's own roles with the thinnest runners.

A process takes a turn when the simulation gives it one. It may die between any two turns (what it
held is gone, and its successor starts from the log alone), or get no turns for a while. Sequencer
and decider are fed by hand; sink and informers are the product's coroutines on a virtual loop.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from producers.informer import Informers, Pace
from producers.publisher import pack
from schemas.errors import Unavailable
from schemas.observations import CommandEnded, Observed
from schemas.topics import DEADLETTER, DECISIONS, INTAKE, JOURNAL, RESULTS
from streams.chain import DecisionChain
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.history import LogHistory
from streams.recovery import recover
from streams.sink.commands import read_commands
from streams.sink.lease import Lease, LeaseSettings, keep
from streams.sink.sink import Sink, SinkSettings
from streams.timekeeper import Timekeeper
from tests.simulation.api_server import ApiServer, SimulatedReader, SimulatedWriter
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock, VirtualLoop
from tests.simulation.log_ends import LogEnds

#: Records between two checkpoints.
CHECKPOINT_RECORDS = 25
RESYNC = "ResyncRequested "


class World(Protocol):
    """What a process is given."""

    url: str
    clock: Clock
    chaos: Chaos
    server: ApiServer
    policy: dict[str, Any]

    def note_digest(self, replica: str, sequence: int, digest: str) -> None:
        """A replica derived this digest."""


class Process:
    """One process. `asleep_until_us`: it gets no turns before."""

    role = ""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.dead = False
        self.asleep_until_us = 0
        self.dice = world.chaos.dice
        self.log = LogEnds(world.url, world.clock, world.chaos, lambda: self.dead)

    def turn(self) -> None:
        """Do a little."""
        raise NotImplementedError

    def die(self) -> None:
        """Stop at once; nothing is tidied up."""
        self.dead = True

    def history(self) -> LogHistory:
        """The log as history."""
        return LogHistory(self.log.reader, self.log.reader)


class SequencerProcess(Process):
    """A sequencer: reads back, takes intake, appends; each turn one of them, or a few."""

    role = "sequencer"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        found = recover(self.history())
        self.sequencer = found.sequencer(
            world.policy, observations_max=self.dice.choice((1, 5, 20, 100)), pipeline_max=3
        )
        self.journal_offset = found.decider.journal_offset
        self.decisions_offset = found.decider.decisions_offset
        wrong_us = 0
        if world.chaos.happens("clock_wrong"):
            wrong_us = world.chaos.between_us(-7_200, 1_800)
        now_us = world.clock.now_us
        self.time = Timekeeper(self.sequencer.timestamp_us, now_us + wrong_us, now_us)

    def turn(self) -> None:
        """One action, or several."""
        actions: list[Callable[[], None]] = [self._read_back, self._take_intake, self._append]
        if self.world.chaos.raging:
            actions = self.dice.choices(actions, k=self.dice.randint(1, 4))
        for action in actions:
            action()

    def _read_back(self) -> None:
        limit, reader = self.dice.randint(1, 40), self.log.reader
        for record in reader.read(JOURNAL, self.journal_offset, limit):
            self.sequencer.on_journal(record.value or b"")
            self.journal_offset = record.offset + 1
        for record in reader.read(DECISIONS, self.decisions_offset, self.dice.randint(1, 40)):
            self.sequencer.on_decision(record.value or b"")
            self.decisions_offset = record.offset + 1

    def _take_intake(self) -> None:
        for topic in INTAKE:
            if self.dice.random() < 0.7:
                found = self.log.reader.read(
                    topic, self.sequencer.wanted(topic), self.dice.randint(1, 30)
                )
                for record in found:
                    assert self.sequencer.offer(topic, record.offset, record.value) is None

    def _append(self) -> None:
        for _ in range(self.dice.randint(1, 3)):
            record = self.sequencer.build(self.time.now_us(self.world.clock.now_us))
            if record is None:
                break
            try:
                self.log.append(JOURNAL, None, record)
            except Unavailable:
                self.sequencer.append_failed()
        for letter in self.sequencer.take_dead_letters():
            self._dead_letter(letter)

    def _dead_letter(self, letter: bytes) -> None:
        while True:
            try:
                self.log.append(DEADLETTER, None, letter)
            except Unavailable:
                continue
            return


class DeciderProcess(Process):
    """A decider that publishes what the topic lacks, and writes checkpoints."""

    role = "decider"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.decider = recover(self.history()).decider
        self.checkpointer = Checkpointer(
            CheckpointStore(self.log.reader), self.log, records=CHECKPOINT_RECORDS
        )
        self._note()

    def turn(self) -> None:
        """One action, or several."""
        actions: list[Callable[[], None]] = [self._decide, self._read_back, self._publish]
        if self.world.chaos.raging:
            actions = self.dice.choices(actions, k=self.dice.randint(1, 4))
        for action in actions:
            action()

    def _decide(self) -> None:
        reader, limit = self.log.reader, self.dice.randint(1, 20)
        for record in reader.read(JOURNAL, self.decider.journal_offset, limit):
            if self.decider.on_journal(record.offset, record.value or b"") is not None:
                self._note()
                self.checkpointer.on_decided(self.decider.state, self.decider.journal_offset)

    def _read_back(self) -> None:
        reader, limit = self.log.reader, self.dice.randint(1, 40)
        for record in reader.read(DECISIONS, self.decider.decisions_offset, limit):
            if self.decider.on_decision(record.offset, record.value or b""):
                self._checkpoint(record.offset)

    def _checkpoint(self, offset: int) -> None:
        try:
            self.checkpointer.on_accepted(self.decider.decisions.sequence, offset)
        except Unavailable:
            return  # torn, or there without our knowing: both are for readers to find out

    def _publish(self) -> None:
        for _, data in self.decider.unpublished()[: self.dice.randint(1, 20)]:
            try:
                self.log.append(DECISIONS, None, data)
            except Unavailable:
                return

    def _note(self) -> None:
        if self.decider.sequence:
            self.world.note_digest(self.name, self.decider.sequence, self.decider.state.digest)


class LoopProcess(Process):
    """A process whose work is coroutines on its own virtual loop."""

    loop: VirtualLoop
    main: asyncio.Task[None]

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Begin; the first turn runs it."""
        self.loop = VirtualLoop(self.world.clock)
        self.main = self.loop.create_task(work)

    def turn(self) -> None:
        """A few turns of the loop; raises what the work raised."""
        for _ in range(self.dice.randint(1, 6)):
            self.loop.turn()
        if self.main.done():
            self.main.result()

    def die(self) -> None:
        """Every call of a dead process is cut off; its coroutines never get an answer."""
        super().die()
        for _ in range(100):
            tasks = asyncio.all_tasks(self.loop)
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            self.loop.turn()
        self.loop.close()


class DecisionsReader:
    """Accepted decisions from a place on, for whoever follows them."""

    def __init__(self, process: Process, chain: DecisionChain, offset: int) -> None:
        self._process = process
        self.chain = chain
        self.offset = offset

    def read(self, limit: int) -> list[bytes]:
        """The next accepted ones."""
        accepted = []
        for record in self._process.log.reader.read(DECISIONS, self.offset, limit):
            self.offset = record.offset + 1
            if self.chain.accept(record.value or b""):
                accepted.append(record.value or b"")
        return accepted


class SinkProcess(LoopProcess):
    """A sink under the Lease."""

    role = "sink"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        api = SimulatedWriter(world.server, name, lambda: self.dead)
        settings = LeaseSettings(
            namespace="lockstep",
            domain=0,
            log_id="simulated",
            identity=name,
            duration_s=6,
            renew_s=1.0,
            margin_s=1.0,
        )
        self.lease = Lease(api, settings, clock=world.clock.seconds, wall=world.clock.seconds)
        self.sink = Sink(
            api,
            self._publish_result,
            may_act=self.lease.held,
            clock_us=lambda: world.clock.now_us,
            settings=SinkSettings(calls_max=4, statuses_max=2, retry_s=0.1, retry_s_max=1.0),
        )
        checkpoint = CheckpointStore(self.log.reader).newest()
        if checkpoint is None:
            self.decisions = DecisionsReader(self, DecisionChain(), 0)
        else:
            manifest = checkpoint.manifest
            self.sink.restore(manifest.open_commands)
            chain = DecisionChain(manifest.sequence, manifest.digest)
            self.decisions = DecisionsReader(self, chain, manifest.decisions_offset)
        self.start(self._run())

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.sink.run())
            group.create_task(self._follow())
            group.create_task(keep(self.lease, lambda: self.sink.act(self._read_to_end)))

    async def _follow(self) -> None:
        while True:
            self._read(self.dice.randint(1, 20))
            await asyncio.sleep(self.dice.uniform(0.01, 0.2))

    async def _read_to_end(self) -> None:
        end = self.log.reader.end_offset(DECISIONS)
        while self.decisions.offset < end:
            self._read(100)
            await asyncio.sleep(0)

    def _read(self, limit: int) -> None:
        for data in self.decisions.read(limit):
            self.sink.on_decision(*read_commands(data))

    async def _publish_result(self, result: CommandEnded) -> None:
        await asyncio.sleep(self.dice.uniform(0.001, 0.1))
        await publish(self, RESULTS, [result])


class InformerProcess(LoopProcess):
    """The informers of all resources; they list anew when a decision asks for it."""

    role = "informer"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        pace = Pace(page_objects=4, retry_s_min=0.05, retry_s_max=1.0, absent_s=3.0)
        reader = SimulatedReader(world.server, lambda: self.dead)
        self.informers = Informers(reader, self, producer=name, pace=pace)
        found = recover(self.history()).decider
        chain = DecisionChain(found.decisions.sequence, found.decisions.digest)
        self.decisions = DecisionsReader(self, chain, found.decisions_offset)
        self.start(self._run())

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """See `producers.publisher.Publisher`; a held message holds back those behind it."""
        if self.world.chaos.happens("message_held"):
            await asyncio.sleep(self.dice.uniform(0.1, 4.0))
        else:
            await asyncio.sleep(self.dice.uniform(0.001, 0.05))
        await publish(self, topic, observations)
        if self.world.chaos.happens("message_twice"):
            await publish(self, topic, observations)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            for data in self.decisions.read(self.dice.randint(1, 40)):
                for request in read_commands(data).requests:
                    if request.startswith(RESYNC):
                        self.informers.resync(request.removeprefix(RESYNC))
            await asyncio.sleep(self.dice.uniform(0.05, 0.5))


async def publish(process: Process, topic: str, observations: Sequence[Observed]) -> None:
    """Appends the observations as intake messages of this process. Raises `Unavailable`."""
    if process.dead:
        raise asyncio.CancelledError
    key = process.name.encode()
    entries = [(topic, key, value) for value in pack(process.name, observations)]
    if entries:
        process.log.append_many(entries)


ROLES: dict[str, type[Process]] = {
    each.role: each for each in (SequencerProcess, DeciderProcess, SinkProcess, InformerProcess)
}
