"""The real counterparts that the contract suites run against."""

from collections.abc import Iterator

import pytest

from tests.integration.builds import Missing
from tests.integration.kafka_broker import KafkaAddress, find_kafka


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaAddress]:
    """A real Kafka broker, shared; skipped with the reason where there is no way to one."""
    try:
        with find_kafka() as address:
            yield address
    except Missing as missing:
        pytest.skip(str(missing))
