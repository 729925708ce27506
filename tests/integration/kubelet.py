"""A stand-in for the kubelets of all nodes at once.

It watches pods that have a node: a bound one becomes Running and Ready, a terminating one is
deleted with grace 0, as if its containers had stopped at once. Must not bind, and must not look at
a node's room. Runs in a thread of its own so that tests stay synchronous. Called by the fixture
`kubelet`.
"""

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from tests.integration.api import STRATEGIC_PATCH, Api, Object

PODS = "/api/v1/pods"
WITH_NODE = "spec.nodeName!="
IN_FLIGHT = 16
RETRY_SECONDS = 0.2
HELD_POLL_SECONDS = 0.02
TLS_CLOSE_SECONDS = 0.25  # connections close behind the session's back; aiohttp advises this wait
LIST_AGAIN = (404, 410)
WATCH_LINE_BYTES_MAX = 4 * 1024 * 1024


class Kubelet:
    """Use as a context manager; `hold` and `release` freeze it, to test pods that stay Pending."""

    def __init__(self, api: Api, *, node_prefix: str = "") -> None:
        self._server = api.server
        self._headers = api.headers
        self._tls: ssl.SSLContext | bool = api.tls or True
        self._node_prefix = node_prefix
        self._moving = threading.Event()
        self._moving.set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="kubelet")

    def __enter__(self) -> "Kubelet":
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._loop is not None
        assert self._main is not None
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join()

    def hold(self) -> None:
        """Act on nothing from now on; what is seen meanwhile is done at `release`."""
        self._moving.clear()

    def release(self) -> None:
        self._moving.set()

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = asyncio.current_task()
        self._started.set()
        connections = aiohttp.TCPConnector(ssl=self._tls, limit=IN_FLIGHT + 1)
        try:
            async with aiohttp.ClientSession(
                self._server,
                headers=self._headers,
                connector=connections,
                read_bufsize=WATCH_LINE_BYTES_MAX,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            ) as session:
                await self._follow(session)
        except asyncio.CancelledError:
            pass  # the way out: `__exit__` asked for it
        await asyncio.sleep(TLS_CLOSE_SECONDS)

    async def _follow(self, session: aiohttp.ClientSession) -> None:
        """List, then watch; again from the list whenever the watch cannot go on."""
        limit = asyncio.Semaphore(IN_FLIGHT)
        async with asyncio.TaskGroup() as tasks:
            while True:
                try:
                    async for pod in self._pods(session):
                        while not self._moving.is_set():  # noqa: ASYNC110 - set in another thread
                            await asyncio.sleep(HELD_POLL_SECONDS)
                        tasks.create_task(self._serve(session, limit, pod))
                except (aiohttp.ClientError, ConnectionError, TimeoutError):
                    await asyncio.sleep(RETRY_SECONDS)

    async def _pods(self, session: aiohttp.ClientSession) -> AsyncIterator[Object]:
        query: dict[str, str] = {"fieldSelector": WITH_NODE}
        async with session.get(PODS, params=query) as response:
            response.raise_for_status()
            listed: dict[str, Any] = await response.json()
        for pod in listed["items"]:
            yield pod
        version = listed["metadata"]["resourceVersion"]
        while True:  # a slow watch is closed by the API server with a plain end of file
            more = {"watch": "1", "allowWatchBookmarks": "1", "resourceVersion": version}
            async with session.get(PODS, params=query | more) as response:
                if response.status in LIST_AGAIN:
                    return
                response.raise_for_status()
                async for line in response.content:
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] in ("ADDED", "MODIFIED"):
                        yield event["object"]

    async def _serve(
        self, session: aiohttp.ClientSession, limit: asyncio.Semaphore, pod: Object
    ) -> None:
        if not pod["spec"]["nodeName"].startswith(self._node_prefix):
            return
        metadata, phase = pod["metadata"], pod["status"].get("phase", "Pending")
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        async with limit:
            if "deletionTimestamp" in metadata:
                options = {
                    "gracePeriodSeconds": 0,
                    "preconditions": {"uid": metadata["uid"]},
                }
                await self._send(session, "DELETE", path, options)
            elif phase == "Pending":
                await self._send(session, "PATCH", f"{path}/status", _running(pod))

    async def _send(
        self, session: aiohttp.ClientSession, method: str, path: str, body: Object
    ) -> None:
        """Until the API server has answered; a pod that is gone or replaced needs nothing more."""
        kind = STRATEGIC_PATCH if method == "PATCH" else "application/json"
        data = json.dumps(body).encode()
        while True:
            try:
                async with session.request(
                    method, path, data=data, headers={"Content-Type": kind}
                ) as response:
                    if response.status < 500 and response.status != 429:
                        return
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                pass  # the API server is away; it is asked again below
            await asyncio.sleep(RETRY_SECONDS)


def _running(pod: Object) -> Object:
    """The status patch of a pod whose containers run; the uid is a precondition."""
    conditions = [
        {"type": kind, "status": "True"} for kind in ("Initialized", "ContainersReady", "Ready")
    ]
    containers = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": container["image"],
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": pod["metadata"]["creationTimestamp"]}},
        }
        for container in pod["spec"]["containers"]
    ]
    return {
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {"phase": "Running", "conditions": conditions, "containerStatuses": containers},
    }
