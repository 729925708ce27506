"""The node's device agent: reads the GPUs, publishes them when something changed.

Its version is (boot id, counter); the counter is time since boot, so it also grows over restarts of
the agent. Must not write to Kubernetes. `lockstep` runs one on each GPU node.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from producers.nvml import Gpu
from producers.publisher import Publisher
from schemas.errors import Unavailable
from schemas.labels import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from schemas.observations import DeviceEntry, DeviceObserved
from schemas.topics import RESOURCES

_log: Final = logging.getLogger(__name__)
_TOPIC: Final = RESOURCES["devices.scheduling.koordinator.sh"]
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The identity of this boot of the node's kernel."""
    return _BOOT_ID.read_text().strip()


def since_boot_us() -> int:
    """Microseconds since boot, suspension included: grows as long as the boot id is the same."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class DeviceAgent:
    """Publishes the devices of `node`. `read` returns its GPUs, may block, raises `Unavailable`."""

    def __init__(
        self,
        node: str,
        read: Callable[[], Sequence[Gpu]],
        publisher: Publisher,
        *,
        boot: str,
        clock_us: Callable[[], int] = since_boot_us,
    ) -> None:
        self._node = node
        self._read = read
        self._publisher = publisher
        self._boot = boot
        self._clock_us = clock_us
        self._counter = 0
        self._seen: tuple[Gpu, ...] = ()
        self._published: tuple[DeviceEntry, ...] | None = None

    async def poll(self) -> bool:
        """Read once; publish if anything differs from what was published. Returns whether it did.

        Raises `Unavailable` when the log does not answer, or the driver never did.
        """
        try:
            self._seen = tuple(await asyncio.to_thread(self._read))
        except Unavailable as error:
            if not self._seen:
                raise
            self._event("driver_unavailable", error)
            self._seen = tuple(replace(gpu, healthy=False) for gpu in self._seen)
        devices = tuple(_entry(gpu) for gpu in sorted(self._seen, key=lambda gpu: gpu.minor))
        if devices == self._published:
            return False
        self._counter = max(self._counter + 1, self._clock_us())
        observed = DeviceObserved(
            uid=f"agent/{self._node}",
            rv=self._counter,
            name=self._node,
            source="agent",
            boot_id=self._boot,
            devices=devices,
        )
        await self._publisher.publish(_TOPIC, [observed])
        self._published = devices
        return True

    async def run(self, period_s: float = 10.0) -> None:
        """Poll until cancelled; what is unavailable is tried again at the next turn."""
        while True:
            try:
                await self.poll()
            except Unavailable as error:
                self._event("devices_not_published", error)
            await asyncio.sleep(period_s)

    def _event(self, name: str, error: Exception) -> None:
        fields: dict[str, Any] = {"node": self._node, "error": str(error)}
        _log.warning(name, extra={"lockstep_fields": fields})


def _entry(gpu: Gpu) -> DeviceEntry:
    topology: dict[str, str | int] = {"busID": gpu.bus_id}
    if gpu.numa_node >= 0:
        topology["nodeID"] = gpu.numa_node
    return DeviceEntry(
        type="gpu",
        minor=gpu.minor,
        id=gpu.uuid,
        healthy=gpu.healthy,
        resources={GPU_CORE: 100, GPU_MEMORY: gpu.memory_bytes, GPU_MEMORY_RATIO: 100},
        topology=topology,
    )
