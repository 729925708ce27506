"""A run logs thousands of faults that were meant to happen: nobody reads them."""

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _silence() -> Iterator[None]:
    """No logs while a simulation runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
