"""The log of a case that is written in Python: in memory and on disk."""

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from streams.log_memory import drop_memory_log
from tests.unit.streams.pipeline import Log


@pytest.fixture(params=["memory", "embedded"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Log]:
    """An empty log of this test alone."""
    name = f"case-{uuid4()}"
    log = Log(name if request.param == "memory" else f"embedded://{tmp_path}/log")
    try:
        yield log
    finally:
        log.close()
        drop_memory_log(name)
