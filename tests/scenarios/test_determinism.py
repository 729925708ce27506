"""The same scenario gives the same bytes in every process, whatever the hash seed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.digests import SCENARIOS, digest_of

_ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("seed", ["0", "1", "random"])
def test_digests_do_not_depend_on_the_hash_seed(seed: str) -> None:
    """A fresh process with another hash seed derives the digests of this one."""
    call = [sys.executable, "-m", "tests.scenarios.digests"]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run(
        call, cwd=_ROOT, env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    assert {file.name: digest_of(file) for file in SCENARIOS} == json.loads(done.stdout)
