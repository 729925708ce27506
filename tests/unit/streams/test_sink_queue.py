"""Statuses that wait, and pods as they were found: the small pure parts of the sink."""

import asyncio

import pytest

from schemas.envelope import PatchStatus
from schemas.labels import DEVICE_ALLOCATED
from schemas.observations import FoundPod
from streams.sink import status as status_module
from streams.sink.api import Response
from streams.sink.found import found_pod
from streams.sink.status import StatusQueue

OK = Response(200)


def status(uid: str, message: str = "m", **fields: int) -> PatchStatus:
    return PatchStatus(
        id="1.0",
        resource="pods",
        namespace="ns",
        name=uid,
        uid=uid,
        fields={"message": message, **fields},
    )


def test_queue_keeps_the_place_and_the_last_value() -> None:
    """A newer status of an object takes the older one's place in the line."""
    queue = StatusQueue()
    for command in (status("a", "old"), status("b"), status("a", "new")):
        queue.offer(command)
    assert [status("a", "new"), status("b"), None] == [queue.take() for _ in range(3)]


def test_an_object_that_is_being_written_waits() -> None:
    """Two statuses of one object are never under way together, and the second is not lost."""
    queue = StatusQueue()
    queue.offer(status("a", "one"))
    first = queue.take()
    queue.offer(status("a", "two"))
    assert queue.take() is None
    queue.done(first, OK)
    assert status("a", "two") == queue.take()


def test_a_later_transition_time_alone_is_no_news() -> None:
    """The same reason and message again are not written again."""
    queue = StatusQueue()
    queue.offer(status("a", since_us=1))
    queue.done(queue.take(), OK)
    queue.offer(status("a", since_us=9_000_000))
    assert queue.take() is None
    queue.offer(status("a", "other"))
    assert status("a", "other") == queue.take()


@pytest.mark.parametrize(
    ("code", "again"), [(0, 1), (500, 1), (429, 1), (409, 1), (404, 0), (422, 0)]
)
def test_what_comes_back(code: int, again: int) -> None:
    """A status that the server could not take waits again; one that it refused does not."""
    queue = StatusQueue()
    queue.offer(status("a"))
    assert (again == 0) == queue.done(queue.take(), Response(code))
    assert again == len(queue)


def test_what_is_forbidden_is_believed_when_it_is_said_often() -> None:
    """An API server that has just started forbids all until it knows its roles; later 403 is an answer."""
    queue = StatusQueue()
    queue.offer(status("a"))
    tries = [queue.done(queue.take(), Response(403)) for _ in range(status_module.DENIALS_MAX)]
    assert [False] * (status_module.DENIALS_MAX - 1) + [True] == tries
    assert 0 == len(queue)
    queue.offer(status("a"))
    assert not queue.done(queue.take(), Response(403))
    assert queue.done(queue.take(), OK)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over the limit the oldest waiting status is forgotten, and so is the oldest written one."""
    monkeypatch.setattr(status_module, "OBJECTS_MAX", 2)
    queue = StatusQueue()
    for uid in "abc":
        queue.offer(status(uid))
    for expected in (status("b"), status("c"), None):
        command = queue.take()
        assert expected == command
        if command is not None:
            queue.done(command, OK)
    queue.offer(status("d"))
    queue.done(queue.take(), OK)
    queue.offer(status("b"))
    assert status("b") == queue.take()


def test_settled_returns_at_once_when_nothing_is_written() -> None:
    """A bind of a pod without a status under way does not wait."""

    async def scene() -> None:
        queue = StatusQueue()
        queue.offer(status("a"))
        async with asyncio.timeout(1):
            await queue.settled("pods", "a")

    asyncio.run(scene())


def test_found_pod_with_little() -> None:
    """A fresh pod has no node, no devices, no command: defaults stand for what is missing."""
    pod = {"metadata": {"uid": "u", "resourceVersion": "7"}, "spec": {"nodeName": ""}}
    assert FoundPod(uid="u", rv=7) == found_pod(pod)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no json",
        "[]",
        "null",
        '{"gpu":[{}]}',
        '{"gpu":[{"minor":-1}]}',
        '{"gpu":[{"minor":"0"}]}',
        '{"gpu":[{"minor":0,"resources":{"x":"much"}}]}',
        '{"gpu":5}',
    ],
)
def test_found_pod_with_unreadable_devices(text: str) -> None:
    """Whatever somebody wrote there, the sink can still say where the pod is."""
    pod = {
        "metadata": {"uid": "u", "resourceVersion": "7", "annotations": {DEVICE_ALLOCATED: text}},
        "spec": {"nodeName": "n"},
    }
    assert FoundPod(uid="u", rv=7, node="n") == found_pod(pod)


def test_found_pod_sorts_devices() -> None:
    """Devices come by type and number, amounts as integers under their full names."""
    text = (
        '{"rdma":[{"minor":0}],"gpu":[{"minor":1,"resources":{"koordinator.sh/gpu-memory":"1Gi"}},'
        '{"minor":0,"resources":{"kubernetes.io/gpu-core":100}}]}'
    )
    pod = {"metadata": {"uid": "u", "annotations": {DEVICE_ALLOCATED: text}}}
    assert [
        ("gpu", 0, {"koordinator.sh/gpu-core": 100}),
        ("gpu", 1, {"koordinator.sh/gpu-memory": 2**30}),
        ("rdma", 0, {}),
    ] == [(each.type, each.minor, each.resources) for each in found_pod(pod).allocations]
