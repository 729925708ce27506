"""NVML: the node's NVIDIA GPUs as plain values. The only importer of pynvml, and only when opened.

Must not publish or know of Kubernetes: `producers.devices` does. Needs the NVIDIA driver's library
on the node.
"""

from dataclasses import dataclass, replace
from typing import Any

from schemas.errors import Unavailable


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU. `minor` is its number on the node; `numa_node` is -1 where it is not known."""

    minor: int
    uuid: str
    memory_bytes: int
    bus_id: str
    numa_node: int = -1
    healthy: bool = True


class Nvml:
    """Reads the GPUs. `library` is the module `pynvml`, or what stands in for it in a test."""

    def __init__(self, library: Any = None) -> None:
        if library is None:
            import pynvml

            library = pynvml
        self._library: Any = library
        self._last: dict[int, Gpu] = {}
        self._open = False

    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs by minor. One that was seen before and fails now is there as not healthy.

        Raises `Unavailable` when the driver does not answer at all.
        """
        library = self._library
        try:
            if not self._open:
                library.nvmlInit()
                self._open = True
            count = library.nvmlDeviceGetCount()
        except library.NVMLError as error:
            self.close()
            raise Unavailable(
                f"NVML: {error}; is the NVIDIA driver loaded on this node?"
            ) from error
        seen = {gpu.minor: gpu for index in range(count) if (gpu := self._read(index))}
        lost = {minor: replace(gpu, healthy=False) for minor, gpu in self._last.items()}
        self._last = lost | seen
        return tuple(self._last[minor] for minor in sorted(self._last))

    def close(self) -> None:
        """Give the library back. Repeatable; the next read opens it again."""
        if self._open:
            self._open = False
            try:
                self._library.nvmlShutdown()
            except self._library.NVMLError:
                return  # the driver is gone: nothing is left to give back

    def _read(self, index: int) -> Gpu | None:
        library = self._library
        try:
            handle = library.nvmlDeviceGetHandleByIndex(index)
            return Gpu(
                minor=library.nvmlDeviceGetMinorNumber(handle),
                uuid=_text(library.nvmlDeviceGetUUID(handle)),
                memory_bytes=library.nvmlDeviceGetMemoryInfo(handle).total,
                bus_id=_text(library.nvmlDeviceGetPciInfo(handle).busId).lower(),
                numa_node=self._numa_node(handle),
                healthy=self._is_healthy(handle),
            )
        except library.NVMLError:
            return None

    def _numa_node(self, handle: Any) -> int:
        try:
            return int(self._library.nvmlDeviceGetNumaNodeId(handle))
        except self._library.NVMLError:
            return -1

    def _is_healthy(self, handle: Any) -> bool:
        """Not healthy: a bad memory row could not be replaced by a spare one."""
        try:
            *_, failed = self._library.nvmlDeviceGetRemappedRows(handle)
        except self._library.NVMLError:
            return True  # this GPU has no row remapping
        return not failed


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
