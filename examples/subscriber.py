"""Prints who was bound where, from the decisions of a Lockstep on Kafka: python examples/subscriber.py HOST:9092

Needs `confluent-kafka` only. Reads one partition from the beginning, outside any group, and applies the acceptance
rule that every reader applies: a decision counts if its sequence is the next one and its `previous_digest` is the
digest of the last one that counted. Anything else is a stale writer's, or a repetition.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from typing import Any


def accepted(values: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """The decisions that count, in order."""
    sequence, digest = 0, "0" * 64
    for value in values:
        decision = json.loads(value)
        if (decision["sequence"], decision["previous_digest"]) == (sequence + 1, digest):
            sequence, digest = decision["sequence"], decision["digest"]
            yield decision


def read(bootstrap: str, topic: str = "lockstep.decisions", partition: int = 0) -> Iterator[bytes]:
    """Every message of the partition, for ever."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    while True:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            yield message.value()


if __name__ == "__main__":
    for decision in accepted(read(sys.argv[1])):
        for command in decision["commands"]:
            if command["kind"] == "BindPod":
                print(
                    decision["sequence"],
                    f"{command['namespace']}/{command['name']}",
                    command["node"],
                    flush=True,
                )
