"""The adapter over aiohttp against a small HTTP server: credentials, lost answers, odd answers."""

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from kubernetes.client import Configuration

from schemas.envelope import BindPod, EmitEvent, PatchStatus
from schemas.errors import LockstepError
from streams.sink.api import Response
from streams.sink.kube import KubeApi, load_configuration

BIND = BindPod(id="7.0", namespace="n s", name="a", uid="u", node="n1", annotations={"k": "v"})

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def api_of(answer: Answer, **settings: float) -> AsyncIterator[tuple[KubeApi, Configuration]]:
    """The adapter, in front of a server that answers everything with `answer`."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    configuration = Configuration(host=f"http://127.0.0.1:{port}")
    try:
        async with KubeApi(configuration, **settings) as api:
            yield api, configuration
    finally:
        await runner.cleanup()


def test_what_a_bind_sends() -> None:
    """Path, precondition, annotations, command id and target are as the API server wants them."""

    async def scene() -> None:
        seen: list[Any] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append((request.method, request.rel_url.raw_path, await request.json()))
            return web.json_response({"status": "Success"}, status=201)

        async with api_of(answer) as (api, _):
            assert 201 == (await api.bind(BIND)).status
        metadata = {
            "namespace": "n s",
            "name": "a",
            "uid": "u",
            "annotations": {"k": "v", "lockstep.dev/command-id": "7.0"},
        }
        assert [
            (
                "POST",
                "/api/v1/namespaces/n%20s/pods/a/binding",
                {
                    "apiVersion": "v1",
                    "kind": "Binding",
                    "metadata": metadata,
                    "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
                },
            )
        ] == seen

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("resource", "namespace", "path"),
    [
        ("pods", "ns", "/api/v1/namespaces/ns/pods/a/status"),
        (
            "podgroups.scheduling.x-k8s.io",
            "ns",
            "/apis/scheduling.x-k8s.io/v1alpha1/namespaces/ns/podgroups/a/status",
        ),
        (
            "devices.scheduling.koordinator.sh",
            "",
            "/apis/scheduling.koordinator.sh/v1alpha1/devices/a/status",
        ),
    ],
)
def test_where_a_status_goes(resource: str, namespace: str, path: str) -> None:
    """Pods, namespaced and cluster-scoped kinds each have their path."""

    async def scene() -> None:
        seen = []

        async def answer(request: web.Request) -> web.Response:
            seen.append(request.path)
            return web.json_response({})

        async with api_of(answer) as (api, _):
            await api.patch_status(
                PatchStatus(
                    id="7.0", resource=resource, namespace=namespace, name="a", uid="u", fields={}
                )
            )
        assert [path] == seen

    asyncio.run(scene())


GROUPS = "podgroups.scheduling.k8s.io"
PLACED = PatchStatus(
    id="7.0",
    resource=GROUPS,
    namespace="ns",
    name="a",
    uid="u",
    fields={
        "status": "True",
        "reason": "Scheduled",
        "message": "",
        "since_us": 1_767_225_600_000_000,
    },
)


def unserved() -> web.Response:
    """What an API server of 1.36 says of a version that it doesn't have; others say it in plain text."""
    why = "the server could not find the requested resource"
    body = {"kind": "Status", "reason": "NotFound", "details": {}, "message": why}
    return web.json_response(body, status=404)


@pytest.mark.parametrize(
    ("served", "asked", "kind"),
    [
        ("v1beta1", ["v1beta1"], "PodGroupInitiallyScheduled"),
        ("v1alpha2", ["v1beta1", "v1alpha3", "v1alpha2"], "PodGroupScheduled"),
    ],
)
def test_the_condition_of_a_podgroup_of_kubernetes(
    served: str, asked: list[str], kind: str
) -> None:
    """In the version that is served, by the name that it has there, merged, for that uid only; known the next time."""

    async def scene() -> None:
        seen: list[Any] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append((request.path.split("/")[3], request.content_type, await request.json()))
            if seen[-1][0] != served:
                return unserved()
            return web.json_response({})

        async with api_of(answer) as (api, _):
            assert (await api.patch_status(PLACED)).ok
            assert asked == [version for version, _, _ in seen]
            (condition,) = seen[-1][2]["status"]["conditions"]
            assert {
                "type": kind,
                "status": "True",
                "reason": "Scheduled",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            } == condition
            assert ("u", "application/strategic-merge-patch+json") == (
                seen[-1][2]["metadata"]["uid"],
                seen[-1][1],
            )
            await api.patch_status(PLACED)
            assert [*asked, served] == [version for version, _, _ in seen]

    asyncio.run(scene())


def test_a_podgroup_that_is_gone_is_not_looked_for_in_other_versions() -> None:
    """The Status names it, so the path is right."""

    async def scene() -> None:
        seen: list[str] = []

        async def answer(request: web.Request) -> web.Response:
            seen.append(request.path)
            gone = {"kind": "Status", "reason": "NotFound", "details": {"name": "a"}}
            return web.json_response(gone, status=404)

        async with api_of(answer) as (api, _):
            assert 404 == (await api.patch_status(PLACED)).status
        assert 1 == len(seen)

    asyncio.run(scene())


def test_an_event_names_the_version_that_is_served() -> None:
    """Else `kubectl describe` would look for the PodGroup in vain."""

    async def scene() -> None:
        told: list[Any] = []

        async def answer(request: web.Request) -> web.Response:
            if "/events" in request.path:
                told.append((await request.json())["involvedObject"]["apiVersion"])
            elif request.path.split("/")[3] != "v1alpha2":
                return web.Response(status=404, text="404 page not found")
            return web.json_response({})

        waits = EmitEvent(
            id="8.0", resource=GROUPS, namespace="ns", name="a", uid="u", reason="r", message="m"
        )
        async with api_of(answer) as (api, _):
            await api.patch_status(PLACED)
            await api.create_event(waits, "m")
        assert ["scheduling.k8s.io/v1alpha2"] == told

    asyncio.run(scene())


def test_credentials_are_fetched_once_and_go_with_every_call() -> None:
    """Calls that start together wait for the credentials: none goes out without."""

    async def scene() -> None:
        seen: list[str | None] = []
        fetched = []

        async def answer(request: web.Request) -> web.Response:
            seen.append(request.headers.get("Authorization"))
            return web.json_response({}, status=201)

        def refresh(configuration: Configuration) -> None:
            fetched.append(1)
            time.sleep(0.05)
            configuration.api_key["BearerToken"] = "Bearer t"

        async with api_of(answer) as (api, configuration):
            configuration.refresh_api_key_hook = refresh
            await asyncio.gather(*(api.bind(BIND) for _ in range(10)))
        assert (["Bearer t"] * 10, 1) == (seen, len(fetched))

    asyncio.run(scene())


def test_401_makes_the_next_call_ask_for_credentials_again() -> None:
    """A token that the server no longer takes is not used for the rest of its time."""

    async def scene() -> None:
        tokens = iter(["old", "new"])

        async def answer(request: web.Request) -> web.Response:
            good = request.headers.get("Authorization") == "new"
            return web.json_response({}, status=201 if good else 401)

        def refresh(configuration: Configuration) -> None:
            configuration.api_key["BearerToken"] = next(tokens)

        async with api_of(answer) as (api, configuration):
            configuration.refresh_api_key_hook = refresh
            assert [401, 201] == [(await api.bind(BIND)).status for _ in range(2)]

    asyncio.run(scene())


def test_credentials_that_cannot_be_had_are_asked_for_again() -> None:
    """A token's file that is empty for a moment, or a plug-in that fails: it ended the service."""

    async def scene() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"metadata": {}, "spec": {}})

        failures: list[Exception] = [ValueError("empty"), KeyError("token"), OSError(24, "files")]

        def hook(configuration: Configuration) -> None:
            if failures:
                raise failures.pop()

        async with api_of(answer) as (api, configuration):
            configuration.refresh_api_key_hook = hook
            for _ in range(3):
                assert (0, "no credentials") == _said(await api.read_lease("ns", "lockstep-0"))
            assert 200 == (await api.read_lease("ns", "lockstep-0")).status

    asyncio.run(scene())


def test_credentials_do_not_wait_for_threads_that_wait_for_a_broker() -> None:
    """They hold every thread of the loop then, and the Lease was lost to nobody."""

    async def scene() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"metadata": {}, "spec": {}})

        back = threading.Event()
        async with api_of(answer) as (api, _):
            waiting = [asyncio.create_task(asyncio.to_thread(back.wait, 10)) for _ in range(64)]
            await asyncio.sleep(0)
            try:
                async with asyncio.timeout(5):
                    assert 200 == (await api.read_lease("ns", "lockstep-0")).status
            finally:
                back.set()
            await asyncio.gather(*waiting)

    asyncio.run(scene())


def _said(answer: Response) -> tuple[int, str]:
    return answer.status, answer.message


def test_no_answer_is_unknown() -> None:
    """A server that is slow, hangs up, or is not there: status 0, with what happened."""

    async def scene() -> None:
        async def slow(request: web.Request) -> web.Response:
            await asyncio.sleep(1)
            return web.json_response({})

        async def hang_up(request: web.Request) -> web.Response:
            assert request.transport is not None
            request.transport.close()
            return web.json_response({})

        async with api_of(slow, timeout_s=0.05) as (api, _):
            assert 0 == (await api.bind(BIND)).status
        async with api_of(hang_up) as (api, _):
            answer = await api.bind(BIND)
            assert (0, "ServerDisconnectedError") == (answer.status, answer.reason)
        async with KubeApi(Configuration(host="http://127.0.0.1:9")) as api:
            answer = await api.bind(BIND)
            assert 0 == answer.status
            assert "127.0.0.1:9" in answer.message

    asyncio.run(scene())


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b"[1]", b"\xff"])
def test_answers_that_are_no_status_object(body: bytes) -> None:
    """A proxy's page keeps its status; its text stands for the message."""

    async def scene() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(status=502, body=body)

        async with api_of(answer) as (api, _):
            found = await api.bind(BIND)
            assert 502 == found.status
            assert body.decode(errors="replace") == found.message

    asyncio.run(scene())


@pytest.mark.parametrize(
    "body", [b"", b"<html>starting</html>", b"[1]", b"{}", b'{"metadata":null}']
)
def test_a_success_without_an_object_is_no_answer(body: bytes) -> None:
    """A proxy's page while the API server starts: read as a Lease or a pod, it ended the service."""

    async def scene() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.Response(body=body)

        lease = {"metadata": {"name": "lockstep-0"}, "spec": {}}
        async with api_of(answer) as (api, _):
            for call in (
                api.read_pod("ns", "a"),
                api.read_lease("ns", "lockstep-0"),
                api.create_lease("ns", lease),
                api.update_lease("ns", lease),
            ):
                found = await call
                assert (0, {}) == (found.status, found.body)
            if not body.startswith(b"{"):
                assert 0 == (await api.bind(BIND)).status

    asyncio.run(scene())


def test_details_of_what_is_no_status_are_left_out() -> None:
    """A gateway's JSON may hold anything under the names that a budget's refusal has."""

    async def scene() -> None:
        async def answer(request: web.Request) -> web.Response:
            return web.json_response({"message": "busy", "details": "overloaded"}, status=429)

        async with api_of(answer) as (api, _):
            found = await api.bind(BIND)
            assert (429, "busy", {}) == (found.status, found.message, found.body)

    asyncio.run(scene())


@pytest.mark.parametrize("text", [None, "", "a: [", "kind: Config"])
def test_useless_kubeconfig_is_one_clear_error(tmp_path: Path, text: str | None) -> None:
    """A file that is missing or broken is named, with the option that mends it."""
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(LockstepError, match=rf"(?s)through {path}: .*--kubeconfig"):
        load_configuration(str(path))


def test_kubeconfig_is_read(tmp_path: Path) -> None:
    """Address and token come from the file."""
    path = tmp_path / "config"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": "http://example.com"}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    configuration = load_configuration(str(path))
    assert "http://example.com" == configuration.host
    assert "Bearer t" == configuration.get_api_key_with_prefix("BearerToken", "authorization")
