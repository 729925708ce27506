"""Packing observations into intake messages: limits, order, bytes, and failures."""

import asyncio
import threading
from typing import Any

import pytest

from producers.publisher import Entry, PackingPublisher, pack
from schemas.codec import decode_intake, encode
from schemas.envelope import INTAKE_BYTES_MAX, INTAKE_OBSERVATIONS_MAX
from schemas.errors import InvalidMessage, Unavailable
from schemas.observations import IntakeMessage, NamespaceObserved


def namespace(number: int, filler: str = "") -> NamespaceObserved:
    """A small observation, or one padded by a label."""
    labels = {"filler": filler} if filler else {}
    return NamespaceObserved(uid=f"u{number}", rv=number, name=f"n{number}", labels=labels)


def padded(size_bytes: int) -> NamespaceObserved:
    """An observation of exactly so many encoded bytes."""
    bare_bytes = len(encode(namespace(1, "x"))) - 1
    return namespace(1, "x" * (size_bytes - bare_bytes))


def room_bytes(producer: str) -> int:
    """What the envelope of a message leaves for observations."""
    one = encode(IntakeMessage(producer=producer, observations=(namespace(1),)))
    return INTAKE_BYTES_MAX - (len(one) - len(encode(namespace(1))))


@pytest.mark.parametrize("producer", ["informers", 'q"uote\\', "ünïcode"])
def test_a_message_has_the_canonical_bytes_of_its_model(producer: str) -> None:
    """What is packed equals what the codec makes of the same message."""
    observations = (namespace(1), namespace(2, "é"))
    expected = encode(IntakeMessage(producer=producer, observations=observations))
    assert [expected] == list(pack(producer, observations))


@pytest.mark.parametrize(
    ("count", "sizes"),
    [
        (0, []),
        (1, [1]),
        (INTAKE_OBSERVATIONS_MAX, [INTAKE_OBSERVATIONS_MAX]),
        (INTAKE_OBSERVATIONS_MAX + 1, [INTAKE_OBSERVATIONS_MAX, 1]),
        (250, [100, 100, 50]),
    ],
)
def test_a_burst_is_cut_at_the_count_limit_in_order(count: int, sizes: list[int]) -> None:
    """No message holds more than the limit, none is empty, and the order is that of the burst."""
    observations = [namespace(number) for number in range(count)]
    messages = [decode_intake(data) for data in pack("p", observations)]
    assert sizes == [len(message.observations) for message in messages]
    assert observations == [item for message in messages for item in message.observations]


def test_a_burst_is_cut_at_the_size_limit() -> None:
    """Two halves with their comma fill a message to the byte; one byte more needs another."""
    half = room_bytes("p") // 2
    fitting = [padded(half), padded(room_bytes("p") - half - 1)]
    assert [INTAKE_BYTES_MAX] == [len(data) for data in pack("p", fitting)]
    assert 2 == len(list(pack("p", [padded(half), padded(room_bytes("p") - half)])))


def test_an_observation_larger_than_a_message_is_refused() -> None:
    """The largest that fits is packed; one byte more raises InvalidMessage."""
    assert [INTAKE_BYTES_MAX] == [len(data) for data in pack("p", [padded(room_bytes("p"))])]
    with pytest.raises(InvalidMessage, match="TooLarge"):
        list(pack("p", [padded(room_bytes("p") + 1)]))


def test_publish_appends_a_burst_in_one_call_with_the_producer_as_key() -> None:
    """All messages of a burst go to the log together; an empty burst goes nowhere."""
    calls: list[list[Entry]] = []

    async def scene() -> None:
        publisher = PackingPublisher("me", calls.append)
        await publisher.publish("pods", [namespace(number) for number in range(150)])
        await publisher.publish("pods", [])

    asyncio.run(scene())
    assert [[("pods", b"me"), ("pods", b"me")]] == [[entry[:2] for entry in call] for call in calls]


def test_a_failed_append_reaches_the_caller() -> None:
    """The caller learns that the outcome is not known, and can publish again."""
    calls: list[Any] = []

    def append(entries: list[Entry]) -> None:
        calls.append(entries)
        if len(calls) == 1:
            raise Unavailable("not now")

    async def scene() -> None:
        publisher = PackingPublisher("me", append)
        with pytest.raises(Unavailable, match="not now"):
            await publisher.publish("pods", [namespace(1)])
        await publisher.publish("pods", [namespace(1)])

    asyncio.run(scene())
    assert calls[0] == calls[1]


def test_a_cancelled_publish_is_not_overtaken() -> None:
    """An append that is under way ends before the next one on its topic begins."""
    release, log = threading.Event(), []

    def append(entries: list[Entry]) -> None:
        if not log:
            log.append("begins")
            release.wait(10)
        log.append(decode_intake(entries[0][2]).observations[0].rv)  # type: ignore[union-attr]

    async def scene() -> None:
        publisher = PackingPublisher("me", append)
        first = asyncio.create_task(publisher.publish("pods", [namespace(1)]))
        while not log:  # noqa: ASYNC110  (the append runs in a thread)
            await asyncio.sleep(0.001)
        first.cancel()
        second = asyncio.create_task(publisher.publish("pods", [namespace(2)]))
        await asyncio.sleep(0.02)
        release.set()
        await second

    asyncio.run(scene())
    assert ["begins", 1, 2] == log


def test_topics_do_not_wait_for_each_other() -> None:
    """A slow append to one topic holds up no other topic."""
    release = threading.Event()
    order = []

    def append(entries: list[Entry]) -> None:
        if entries[0][0] == "pods":
            release.wait(10)
        order.append(entries[0][0])

    async def scene() -> None:
        publisher = PackingPublisher("me", append)
        slow = asyncio.create_task(publisher.publish("pods", [namespace(1)]))
        await asyncio.sleep(0)
        await publisher.publish("nodes", [namespace(2)])
        release.set()
        await slow

    asyncio.run(scene())
    assert ["nodes", "pods"] == order
