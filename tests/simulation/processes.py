"""The processes of the simulated installation: the product's own roles, each on a virtual loop.

A process takes a turn when the simulation gives it one. It may die between any two turns (what it
held is gone, and its successor starts from the log alone), or get no turns for a while. Only the
feed is the simulation's own: it hands on less at a time than the product's.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from producers.informer import Informers, Pace
from producers.publisher import pack
from schemas.observations import CommandEnded, Observed
from schemas.topics import RESULTS
from streams.chain import DecisionChain
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.feed import check_gapless
from streams.history import Bound, LogHistory
from streams.log import LogRecord
from streams.place import Places
from streams.recovery import recover
from streams.roles import DeciderRole, Leadership, SequencerRole
from streams.sink.lease import Lease, LeaseSettings, keep
from streams.sink.role import SinkRole
from streams.sink.sink import Sink, SinkSettings
from tests.simulation.api_server import ApiServer, SimulatedReader, SimulatedWriter
from tests.simulation.chaos import Chaos
from tests.simulation.clock import Clock, VirtualLoop
from tests.simulation.log_ends import LogEnds

#: Turns of a loop at a time in a healthy world.
TURNS_MAX = 40
#: Records between two checkpoints.
CHECKPOINT_RECORDS = 25


class Role(Protocol):
    """What follows topics."""

    def next_offsets(self) -> dict[str, int]:
        """Where reading begins."""

    async def on_records(self, topic: str, records: Sequence[LogRecord]) -> None:
        """Takes the next records."""


class World(Protocol):
    """What a process is given."""

    url: str
    clock: Clock
    chaos: Chaos
    server: ApiServer
    policy: dict[str, Any]

    def count_elections(self) -> int:
        """How often the log has lost its tail."""

    def take_disk(self) -> Any:
        """A disk for a projector: one that a dead one has left, or a new one."""

    def leave_disk(self, disk: Any) -> None:
        """A projector has died."""

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
        #: Topic -> offset of the next record that it reads.
        self.next: dict[str, int] = {}
        self.log = LogEnds(
            world.url, world.clock, world.chaos, lambda: self.dead, world.count_elections
        )

    @property
    def folded(self) -> int:
        """Sequence of the last record whose outcome it holds, decided by whomever; 0: it holds none."""
        return 0

    @property
    def awaits_log(self) -> bool:
        """It has appended something that it has not read back: it will do so again, or notice a loss."""
        return False

    def turn(self) -> None:
        """Do a little."""
        raise NotImplementedError

    def die(self) -> None:
        """Stop at once; nothing is tidied up."""
        self.dead = True

    def history(self) -> LogHistory:
        """The log as history."""
        return LogHistory(self.log.reader, self.log.reader)


class LoopProcess(Process):
    """A process whose work is coroutines on its own virtual loop."""

    loop: VirtualLoop
    main: asyncio.Task[None]

    def start(self, work: Coroutine[Any, Any, None], wrong_us: int = 0) -> None:
        """Begin; the first turn runs it. `wrong_us`: how far the wall clock is off."""
        self.loop = VirtualLoop(self.world.clock, wrong_us)
        self.main = self.loop.create_task(work)

    def turn(self) -> None:
        """A few turns of the loop, or all that there is to do once faults are over; raises what the work raised."""
        for _ in range(self.dice.randint(1, 6) if self.world.chaos.raging else TURNS_MAX):
            self.loop.turn()
            if self.loop.is_idle():
                break
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


class RoleProcess(LoopProcess):
    """A process of one of the product's roles, fed in small batches, as its topics grow."""

    async def work(
        self,
        role: Role,
        *others: Callable[[], Coroutine[Any, Any, None]],
        places: Places | None = None,
    ) -> None:
        """The role with what runs beside it. `places`: it has begun; None: it begins with its first turn."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed(role, places))
            for other in others:
                group.create_task(other())

    def begin(self, role: Role) -> Places:
        """Notes where it reads on, and what stands there now."""
        self.next = dict(role.next_offsets())
        places = Places(self.next, self.world.clock.seconds)
        places.check(self.log.reader)
        return places

    async def _feed(self, role: Role, places: Places | None) -> None:
        """Hands on consecutive records of each topic, topics in any order."""
        places = places or self.begin(role)
        while True:
            topics = list(self.next)
            self.dice.shuffle(topics)
            for topic in topics:
                limit = self.dice.randint(1, 40)
                # The product looks every ten seconds; what may happen in between is in docs/gaps.md.
                places.check(self.log.reader)
                found = self.log.reader.read(topic, self.next[topic], limit)
                if found:
                    check_gapless(topic, self.next[topic], found)
                    self.next[topic] = found[-1].offset + 1
                    places.note(found[-1])
                    await role.on_records(topic, found)
                    self.on_fed()
            await asyncio.sleep(self.dice.uniform(0.001, 0.1))

    def on_fed(self) -> None:
        """After each batch."""


class SequencerProcess(RoleProcess):
    """A sequencer that always writes, whoever else does."""

    role = "sequencer"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        found = recover(self.history())
        role = SequencerRole(
            found.sequencer(
                world.policy, observations_max=self.dice.choice((1, 5, 20, 100)), pipeline_max=3
            ),
            self.log,
            self.log.reader,
            Leadership(always=True),
            journal_offset=found.decider.journal_offset,
            decisions_offset=found.decider.decisions_offset,
        )
        role.reposition = lambda topic, offset: self.next.update({topic: offset})
        places = self.begin(role)
        self.sequencer = role.sequencer
        wrong_us = 0
        if world.chaos.happens("clock_wrong"):
            wrong_us = world.chaos.between_us(-7_200, 1_800)
        self.start(self.work(role, role.run, places=places), wrong_us)

    @property
    def awaits_log(self) -> bool:
        """Records are under way."""
        return self.sequencer.in_flight > 0


class DeciderProcess(RoleProcess):
    """A decider that publishes what the topic lacks, and writes checkpoints."""

    role = "decider"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.decider = recover(self.history()).decider
        checkpointer = Checkpointer(
            CheckpointStore(self.log.reader), self.log, records=CHECKPOINT_RECORDS
        )
        role = DeciderRole(self.decider, self.log, Leadership(always=True), checkpointer)
        places = self.begin(role)
        self.on_fed()
        self.start(self.work(role, role.run, places=places))

    @property
    def folded(self) -> int:
        """Sequence of the last record decided."""
        return self.decider.sequence

    @property
    def awaits_log(self) -> bool:
        """Decisions are under way."""
        return bool(self.decider.unpublished())

    def on_fed(self) -> None:
        """Says which digest it has come to."""
        if self.decider.sequence:
            self.world.note_digest(self.name, self.decider.sequence, self.decider.state.digest)


class SinkProcess(RoleProcess):
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
        lease = Lease(api, settings, clock=world.clock.seconds, wall=world.clock.seconds)
        sink = Sink(
            api,
            self._publish_result,
            may_act=lease.held,
            clock_us=lambda: world.clock.now_us,
            settings=SinkSettings(calls_max=4, statuses_max=2, retry_s=0.1, retry_s_max=1.0),
        )
        start = self.history().start(Bound())
        role = SinkRole(
            sink,
            self.log.reader,
            chain=start.decision_chain(),
            offset=start.decisions_offset,
            open_commands=start.checkpoint.manifest.open_commands if start.checkpoint else (),
            on_resync=lambda _resource: None,
            still_waits=lambda _uid: True,
        )
        lead = partial(keep, lease, partial(sink.act, role.read_to_end))
        self.start(self.work(role, sink.run, lead))

    async def _publish_result(self, result: CommandEnded) -> None:
        await asyncio.sleep(self.dice.uniform(0.001, 0.1))
        await publish(self, RESULTS, [result])


class InformerProcess(RoleProcess):
    """The informers of all resources; they list anew when a decision asks for it."""

    role = "informer"

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        pace = Pace(page_objects=4, retry_s_min=0.05, retry_s_max=1.0, absent_s=3.0)
        reader = SimulatedReader(world.server, lambda: self.dead)
        self.informers = Informers(
            reader, self, producer=name, pace=pace, heard=lambda: role.sequence
        )
        found = recover(self.history()).decider
        role = SinkRole(
            None,
            self.log.reader,
            chain=DecisionChain(found.decisions.sequence, found.decisions.digest),
            offset=found.decisions_offset,
            on_resync=self.informers.resync,
            still_waits=lambda _uid: False,
        )
        self.start(self._follow(role))

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """See `producers.publisher.Publisher`; a held message holds back those behind it."""
        if self.world.chaos.happens("message_held"):
            await asyncio.sleep(self.dice.uniform(0.1, 4.0))
        else:
            await asyncio.sleep(self.dice.uniform(0.001, 0.05))
        await publish(self, topic, observations)
        if self.world.chaos.happens("message_twice"):
            await publish(self, topic, observations)

    async def _follow(self, role: SinkRole) -> None:
        await role.read_to_end()
        await self.work(role, self.informers.run)


async def publish(process: Process, topic: str, observations: Sequence[Observed]) -> None:
    """Appends the observations as intake messages of this process. Raises `Unavailable`."""
    if process.dead:
        raise asyncio.CancelledError
    key = process.name.encode()
    entries = [(topic, key, value) for value in pack(process.name, observations)]
    if entries:
        process.log.append_many(entries)
