"""The publisher on a real broker: order, durability, and a broker that dies in the middle."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from producers.publisher import KafkaAppender, PackingPublisher
from schemas.codec import decode_intake
from schemas.errors import Fatal, Unavailable
from schemas.observations import NamespaceObserved
from tests.integration.kafka_broker import KafkaAddress, LocalBroker

READ_S_MAX = 20


def namespaces(numbers: range) -> list[NamespaceObserved]:
    """One observation a number, as `rv`."""
    return [NamespaceObserved(uid=f"u{number}", rv=number, name="n") for number in numbers]


def create(bootstrap: str, topic: str) -> None:
    """A topic with two domains."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(timeout=READ_S_MAX)


def numbers_in(bootstrap: str, topic: str, domain: int) -> list[int]:
    """The `rv` of every observation of a domain, in the order of the log."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none"})
    partition = TopicPartition(topic, domain, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=READ_S_MAX)
    consumer.assign([partition])
    found: list[Any] = []
    for _ in range(end):
        message = consumer.poll(READ_S_MAX)
        assert message is not None
        found += decode_intake(message.value()).observations
    consumer.close()
    return [item.rv for item in found]


@pytest.mark.kafka
def test_bursts_stand_in_their_domain_in_order(kafka: KafkaAddress, prefix: str) -> None:
    """Everything published is there once, in order, in the partition of the domain only."""
    create(kafka.bootstrap, f"{prefix}namespaces")
    appender = KafkaAppender({"bootstrap.servers": kafka.bootstrap}, prefix=prefix, domain=1)

    async def publish() -> None:
        publisher = PackingPublisher("me", appender)
        for start in range(0, 1000, 250):
            await publisher.publish("namespaces", namespaces(range(start, start + 250)))

    asyncio.run(publish())
    appender.close()
    appender.close()
    assert list(range(1000)) == numbers_in(kafka.bootstrap, f"{prefix}namespaces", 1)
    assert [] == numbers_in(kafka.bootstrap, f"{prefix}namespaces", 0)


@pytest.mark.kafka
def test_a_killed_broker_loses_and_reorders_nothing(
    breakable_kafka: LocalBroker, prefix: str
) -> None:
    """While the broker is away a call is Unavailable; repeated, it goes on where the log ends."""
    bootstrap = breakable_kafka.address.bootstrap
    create(bootstrap, f"{prefix}namespaces")
    appender = KafkaAppender({"bootstrap.servers": bootstrap}, prefix=prefix, timeout_s=2.0)

    async def publish() -> int:
        publisher = PackingPublisher("me", appender)
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
    appender.close()
    found = numbers_in(bootstrap, f"{prefix}namespaces", 0)
    # What was not acknowledged may be there more than once, but only as whole prefixes of its
    # burst.
    assert list(range(900)) == list(dict.fromkeys(found))
    for earlier, later in pairwise(found):
        assert later == earlier + 1 or later == 300


@pytest.mark.kafka
def test_an_unknown_topic_is_unavailable_not_made(kafka: KafkaAddress, prefix: str) -> None:
    """A wrong prefix ends in an error that names the topic."""
    appender = KafkaAppender(
        {"bootstrap.servers": kafka.bootstrap}, prefix=f"{prefix}no.", timeout_s=3.0
    )
    with pytest.raises(Unavailable, match="namespaces"):
        appender([("namespaces", None, b"{}")])
    appender.close()


def test_settings_that_librdkafka_refuses_are_fatal() -> None:
    """A setting that does not exist stops the producer with its name."""
    appender = KafkaAppender({"no.such.setting": "1"}, prefix="x.")
    with pytest.raises(Fatal, match=r"no\.such\.setting"):
        appender([("pods", None, b"{}")])
