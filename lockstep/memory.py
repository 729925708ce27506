"""How the C library keeps memory of a long-lived process. Called once by `lockstep run`, before it starts threads."""

import ctypes
import threading
import time
from typing import Any, Final

#: glibc's `mallopt` parameters.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8

#: Buffers from here on (pages of lists, fetches, chunks of checkpoints) are given back to the system when freed. Set by
#: hand, the threshold stays: else the first large buffer that is freed raises it to its own size.
MMAP_BYTES: Final = 128 * 1024
#: Each arena keeps its own free memory, and glibc makes eight a core; our threads mostly wait for each other anyway.
ARENAS: Final = 2
#: How often free pages between used ones are given back: a list, a take-over or a burst of decisions leaves many of
#: them, and by itself glibc gives back only those at an arena's end.
TRIM_S: Final = 30.0


def bound_free_memory(trim_s: float = TRIM_S) -> None:
    """Has freed memory go back to the system instead of being kept in arenas. Without glibc nothing is done."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "mallopt") or not hasattr(libc, "malloc_trim"):
        return
    libc.mallopt(_ARENA_MAX, ARENAS)
    libc.mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
    libc.mallopt(_TRIM_THRESHOLD, MMAP_BYTES)
    threading.Thread(target=_trim, args=(libc, trim_s), name="memory", daemon=True).start()


def _trim(libc: Any, every_s: float) -> None:
    while True:
        time.sleep(every_s)
        libc.malloc_trim(0)
