"""The device agent and NVML, with a stand-in for the library."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from producers.devices import DeviceAgent, boot_id, since_boot_us
from producers.nvml import Gpu, Nvml
from schemas.errors import Unavailable
from schemas.observations import DeviceEntry, DeviceObserved, Observed

GI = 2**30


class FakeNvml:
    """What `Nvml` uses of pynvml: two GPUs in reverse order of their minors, each may be lost."""

    class NVMLError(Exception):
        """The library's error."""

    def __init__(self) -> None:
        self.minors = [1, 0]
        self.lost: set[int] = set()
        self.failed_rows: set[int] = set()
        self.down = False
        self.opened = 0

    def _check(self) -> None:
        if self.down:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlInit(self) -> None:  # noqa: N802
        """Open the library."""
        self._check()
        self.opened += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        """Close the library."""
        self._check()
        self.opened -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        """Lost GPUs count too."""
        self._check()
        return len(self.minors)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        """The handle is the minor."""
        minor = self.minors[index]
        if minor in self.lost:
            raise self.NVMLError("GPU is lost")
        return minor

    def nvmlDeviceGetMinorNumber(self, handle: int) -> int:  # noqa: N802
        """The number on the node."""
        return handle

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:  # noqa: N802
        """Text or bytes, as versions of the library differ."""
        return f"GPU-{handle}" if handle else b"GPU-0"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:  # noqa: N802
        """80 GiB each."""
        return type("Memory", (), {"total": 80 * GI})

    def nvmlDeviceGetPciInfo(self, handle: int) -> Any:  # noqa: N802
        """An address on the bus."""
        return type("Pci", (), {"busId": f"0000000{handle}:1F:00.0"})

    def nvmlDeviceGetNumaNodeId(self, handle: int) -> int:  # noqa: N802
        """Only GPU 1 says where it is."""
        if handle == 0:
            raise self.NVMLError("Not Supported")
        return 1

    def nvmlDeviceGetRemappedRows(self, handle: int) -> tuple[int, int, int, int]:  # noqa: N802
        """Corrected, uncorrected, pending, failed."""
        if handle == 1 and 1 not in self.failed_rows:
            raise self.NVMLError("Not Supported")
        return 0, 0, 0, int(handle in self.failed_rows)


class Log:
    """A publisher that remembers, and fails on demand."""

    def __init__(self) -> None:
        self.observations: list[Observed] = []
        self.fails = False

    async def publish(self, topic: str, observations: Sequence[Observed]) -> None:
        """Take the observations in, or fail."""
        assert topic == "devices"
        if self.fails:
            raise Unavailable("the log does not answer")
        self.observations += observations


def gpu(minor: int, healthy: bool = True) -> Gpu:
    """The stand-in's GPU of that minor."""
    return Gpu(
        minor=minor,
        uuid=f"GPU-{minor}",
        memory_bytes=80 * GI,
        bus_id=f"0000000{minor}:1f:00.0",
        numa_node=1 if minor else -1,
        healthy=healthy,
    )


def test_nvml_reads_gpus_by_minor() -> None:
    """Index order is not minor order; what a GPU does not say is left open."""
    assert (gpu(0), gpu(1)) == Nvml(FakeNvml()).gpus()


def test_a_gpu_that_is_lost_stays_known_as_not_healthy() -> None:
    """A card that falls off the bus must not vanish; when it comes back it is healthy again."""
    library = FakeNvml()
    nvml = Nvml(library)
    nvml.gpus()
    library.lost = {1}
    assert (gpu(0), gpu(1, healthy=False)) == nvml.gpus()
    library.lost = set()
    assert (gpu(0), gpu(1)) == nvml.gpus()


def test_a_gpu_that_is_lost_from_the_start_is_not_there() -> None:
    """Nothing is known of a card that never answered."""
    library = FakeNvml()
    library.lost = {0}
    assert (gpu(1),) == Nvml(library).gpus()


def test_a_failed_row_remapping_is_not_healthy() -> None:
    """Memory that cannot be repaired takes the card out."""
    library = FakeNvml()
    library.failed_rows = {1}
    assert (gpu(0), gpu(1, healthy=False)) == Nvml(library).gpus()


def test_a_driver_that_does_not_answer_is_unavailable_and_opened_again_later() -> None:
    """The library is given back and opened anew when the driver is there."""
    library = FakeNvml()
    nvml = Nvml(library)
    library.down = True
    with pytest.raises(Unavailable, match="Driver Not Loaded; is the NVIDIA driver loaded"):
        nvml.gpus()
    library.down = False
    assert 2 == len(nvml.gpus())
    assert 1 == library.opened
    nvml.close()
    nvml.close()
    assert 0 == library.opened


def agent(read: Any, log: Log, clock_us: Any = lambda: 1000) -> DeviceAgent:
    """An agent of node n1 with a clock of its own."""
    return DeviceAgent("n1", read, log, boot="b1", clock_us=clock_us)


def test_the_agent_publishes_only_what_changed_with_a_growing_counter() -> None:
    """First all devices, then nothing, then the change; a clock that stands still is no excuse."""
    library, log = FakeNvml(), Log()

    async def scene() -> list[bool]:
        polled = agent(Nvml(library).gpus, log)
        outcomes = [await polled.poll(), await polled.poll()]
        library.lost = {0}
        return [*outcomes, await polled.poll(), await polled.poll()]

    assert [True, False, True, False] == asyncio.run(scene())
    first, second = log.observations
    assert first == DeviceObserved(
        uid="agent/n1",
        rv=1000,
        name="n1",
        source="agent",
        boot_id="b1",
        devices=(
            DeviceEntry(
                type="gpu",
                minor=0,
                id="GPU-0",
                resources=CARD,
                topology={"busID": "00000000:1f:00.0"},
            ),
            DeviceEntry(
                type="gpu",
                minor=1,
                id="GPU-1",
                resources=CARD,
                topology={"busID": "00000001:1f:00.0", "nodeID": 1},
            ),
        ),
    )
    assert isinstance(second, DeviceObserved)
    assert (1001, [False, True]) == (second.rv, [item.healthy for item in second.devices])


CARD = {
    "koordinator.sh/gpu-core": 100,
    "koordinator.sh/gpu-memory": 80 * GI,
    "koordinator.sh/gpu-memory-ratio": 100,
}


def test_what_the_log_did_not_take_is_published_at_the_next_poll() -> None:
    """A failed publish leaves the agent with something to say."""
    log = Log()

    async def scene() -> None:
        polled = agent(Nvml(FakeNvml()).gpus, log)
        log.fails = True
        with pytest.raises(Unavailable):
            await polled.poll()
        log.fails = False
        assert await polled.poll()

    asyncio.run(scene())
    assert 1 == len(log.observations)


def test_a_driver_that_goes_away_leaves_all_devices_not_healthy() -> None:
    """Nothing may be placed on cards that nobody can read; a driver that never was there says nothing."""
    library, log = FakeNvml(), Log()

    async def scene() -> None:
        polled = agent(Nvml(library).gpus, log)
        library.down = True
        with pytest.raises(Unavailable):
            await polled.poll()
        library.down = False
        await polled.poll()
        library.down = True
        assert await polled.poll()

    asyncio.run(scene())
    health = [[item.healthy for item in seen.devices] for seen in log.observations]  # type: ignore[attr-defined]
    assert [[True, True], [False, False]] == health


def test_running_the_agent_survives_failures() -> None:
    """The loop goes on after the driver or the log was away."""
    library, log = FakeNvml(), Log()

    async def scene() -> None:
        library.down = log.fails = True
        running = asyncio.create_task(agent(Nvml(library).gpus, log).run(period_s=0.001))
        await asyncio.sleep(0.01)
        library.down = False
        await asyncio.sleep(0.01)
        log.fails = False
        async with asyncio.timeout(10):
            while not log.observations:  # noqa: ASYNC110  (the condition is plain state)
                await asyncio.sleep(0.001)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(scene())
    assert 1 == len(log.observations)


def test_boot_id_and_time_since_boot() -> None:
    """The boot has one identity while its time goes on."""
    before = since_boot_us()
    assert boot_id() == boot_id()
    assert len(boot_id()) == 36
    assert 0 < before <= since_boot_us()
