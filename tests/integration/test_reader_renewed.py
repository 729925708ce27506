"""A Kafka reader whose client has lost its broker for good. Real Kafka."""

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from schemas.errors import Unavailable
from streams.log import LogSettings, create_topics, open_reader, open_writer
from tests.integration.kafka_broker import KafkaAddress

pytestmark = pytest.mark.kafka


class LostClient:
    """What was seen of a client after its process had been stopped for a minute: no partition is known any more."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def get_watermark_offsets(self, *_: object, **__: object) -> tuple[int, int]:
        raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def test_a_client_that_had_no_answer_is_replaced(kafka: KafkaAddress, prefix: str) -> None:
    """One read fails, the next one goes on where the log stands."""
    url = f"{kafka.url}?prefix={prefix}"
    create_topics(url)
    writer, reader = open_writer(url), open_reader(url, settings=LogSettings(timeout_s=1.0))
    writer.append("admin", None, b"1")
    assert [b"1"] == [record.value for record in reader.read("admin", 0, 10)]
    writer.append("admin", None, b"2")
    client: Any = reader
    client._consumer = LostClient(client._consumer)
    with pytest.raises(Unavailable):
        reader.end_offset("admin")
    assert [b"2"] == [record.value for record in reader.read("admin", 1, 10)]
    reader.close()
    writer.close()


def test_a_stuck_client_is_replaced_on_the_way(kafka: KafkaAddress, prefix: str) -> None:
    """A reader that had answers before does not wait all of its time for a client that will have none."""
    url = f"{kafka.url}?prefix={prefix}"
    create_topics(url)
    writer, reader = open_writer(url), open_reader(url, settings=LogSettings(timeout_s=60.0))
    writer.append("admin", None, b"1")
    assert 1 == reader.end_offset("admin")
    client: Any = reader
    client._consumer = LostClient(client._consumer)
    began_s = time.monotonic()
    assert 1 == reader.end_offset("admin")
    assert time.monotonic() - began_s < 30.0
    reader.close()
    writer.close()
