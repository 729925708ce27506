"""Metrics as `lockstep run` has them: what is logged is counted."""

import logging
from collections.abc import Iterator

import pytest

from streams.metrics import Metrics


@pytest.fixture
def metrics() -> Iterator[Metrics]:
    """Metrics that hear what is logged in this test; the test fills in the roles."""
    metrics, root = Metrics(), logging.getLogger()
    level = root.level
    root.addHandler(metrics.events)
    root.setLevel(logging.INFO)
    yield metrics
    root.setLevel(level)
    root.removeHandler(metrics.events)
