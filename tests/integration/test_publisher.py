"""The publisher on a real broker: order, durability, and a broker that dies in the middle."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from producers.publisher import PackingPublisher
from schemas.codec import decode_intake
from schemas.errors import Unavailable
from schemas.observations import NamespaceObserved
from streams.log import LogSettings, create_topics, open_reader, open_writer
from tests.integration.kafka_broker import KafkaAddress, LocalBroker

READ_S_MAX = 20


def namespaces(numbers: range) -> list[NamespaceObserved]:
    """One observation a number, as `rv`."""
    return [NamespaceObserved(uid=f"u{number}", rv=number, name="n") for number in numbers]


def numbers_in(url: str, domain: int) -> list[int]:
    """The `rv` of every observation of a domain, in the order of the log."""
    reader = open_reader(url, domain)
    end = reader.end_offset("namespaces")
    found: list[Any] = []
    while len(found) < end:
        found += reader.read("namespaces", len(found), 500, READ_S_MAX)
    reader.close()
    return [item.rv for record in found for item in decode_intake(record.value).observations]


@pytest.mark.kafka
def test_bursts_stand_in_their_domain_in_order(kafka: KafkaAddress, prefix: str) -> None:
    """Everything published is there once, in order, in the partition of the domain only."""
    url = f"{kafka.url}?prefix={prefix}"
    create_topics(url, 2)
    writer = open_writer(url, 1)

    async def publish() -> None:
        publisher = PackingPublisher("me", writer.append_many)
        for start in range(0, 1000, 250):
            await publisher.publish("namespaces", namespaces(range(start, start + 250)))

    asyncio.run(publish())
    writer.close()
    assert list(range(1000)) == numbers_in(url, 1)
    assert [] == numbers_in(url, 0)


@pytest.mark.kafka
def test_a_killed_broker_loses_and_reorders_nothing(
    breakable_kafka: LocalBroker, prefix: str
) -> None:
    """While the broker is away a call is Unavailable; repeated, it goes on where the log ends."""
    url = f"{breakable_kafka.address.url}?prefix={prefix}"
    create_topics(url, 1)
    writer = open_writer(url, settings=LogSettings(timeout_s=2.0))

    async def publish() -> int:
        publisher = PackingPublisher("me", writer.append_many)
        await publisher.publish("namespaces", namespaces(range(300)))
        breakable_kafka.kill()
        failures = 0
        while True:
            try:
                await publisher.publish("namespaces", namespaces(range(300, 600)))
                break
            except Unavailable:
                failures += 1
                if failures == 1:
                    breakable_kafka.start()  # from this thread: a service ends with its starter
        await publisher.publish("namespaces", namespaces(range(600, 900)))
        return failures

    assert 1 <= asyncio.run(publish())
    writer.close()
    found = numbers_in(url, 0)
    # What was not acknowledged may be there more than once, but only as whole prefixes of its
    # burst.
    assert list(range(900)) == list(dict.fromkeys(found))
    for earlier, later in pairwise(found):
        assert later == earlier + 1 or later == 300
