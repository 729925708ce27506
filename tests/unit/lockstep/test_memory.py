"""What the process has freed goes back to the system, also from between what it still uses."""

import subprocess
import sys

SCRIPT = """
import time
from lockstep.memory import bound_free_memory

def resident_mib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS"))

bound_free_memory(trim_s=0.05)
blocks = [bytes(2_000) for _ in range(50_000)]  # 100 MB that Python asks the C library for
kept = blocks[::100]
full = resident_mib()
del blocks
until = time.monotonic() + 20
while full - resident_mib() < 60 and time.monotonic() < until:
    time.sleep(0.05)
print(full - resident_mib(), len(kept))
"""


def test_free_pages_between_used_ones_are_given_back() -> None:
    """Of 100 MB one block in a hundred stays in use; by itself the C library would give nothing back."""
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    given_back, kept = map(int, done.stdout.split())
    assert given_back >= 60
    assert 500 == kept
