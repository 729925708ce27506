"""How the C library keeps memory of a long-lived process. Called once by `lockstep run`, before it starts threads."""

import ctypes
from typing import Final

#: glibc's `mallopt` parameters.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

#: Buffers from here on (pages of lists, fetches, chunks of checkpoints) are given back to the system when freed. Set by
#: hand, the threshold stays: else the first large buffer that is freed raises it to its own size.
MMAP_BYTES: Final = 128 * 1024
#: Each arena keeps its own free memory, and glibc makes eight a core; our threads mostly wait for each other anyway.
ARENAS: Final = 2


def bound_free_memory() -> None:
    """Has freed memory go back to the system instead of being kept in arenas. Without glibc nothing is done."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(_ARENA_MAX, ARENAS)
    mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, MMAP_BYTES)
