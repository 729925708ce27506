"""The reading adapter where no API server is needed."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from kubernetes.client import Configuration

from producers.kube import UnknownKind
from producers.kube_client import KubeClient
from schemas.errors import Unavailable

GROUPS = "podgroups.scheduling.k8s.io"


@asynccontextmanager
async def client_of(served: dict[str, None], asked: list[str]) -> AsyncIterator[KubeClient]:
    """A client of a server that knows PodGroups in the versions `served`, and notes which were `asked` for."""

    async def answer(request: web.Request) -> web.Response:
        version = request.path.split("/")[3]
        asked.append(version)
        if version not in served:
            return web.Response(status=404, text="404 page not found")
        return web.json_response({"metadata": {"resourceVersion": "7"}, "items": []})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with KubeClient(Configuration(host=host)) as client:
            yield client
    finally:
        await runner.cleanup()


def test_the_first_version_that_is_served_counts() -> None:
    """Of a server of 1.36 the old one; it is asked for first then. After an upgrade the new one, without a gap."""

    async def scene() -> None:
        served, asked = {"v1alpha2": None}, list[str]()
        async with client_of(served, asked) as client:
            await client.list_page(GROUPS, 1, "")
            await client.list_page(GROUPS, 1, "")
            assert ["v1beta1", "v1alpha3", "v1alpha2", "v1alpha2"] == asked
            served.clear()
            served["v1beta1"] = None
            asked.clear()
            assert "7" == (await client.list_page(GROUPS, 1, ""))["metadata"]["resourceVersion"]
            assert ["v1alpha2", "v1beta1"] == asked

    asyncio.run(scene())


def test_a_kind_that_is_served_in_no_version_is_unknown() -> None:
    """Every version has been asked for; the refusal names the resource."""

    async def scene() -> None:
        asked: list[str] = []
        async with client_of({}, asked) as client:
            with pytest.raises(UnknownKind, match=GROUPS):
                await client.list_page(GROUPS, 1, "")
            assert ["v1beta1", "v1alpha3", "v1alpha2"] == asked
            with pytest.raises(UnknownKind):
                await anext(client.watch(GROUPS, "7"))

    asyncio.run(scene())


def test_credentials_that_cannot_be_had_are_asked_for_again() -> None:
    """A token's file that is empty for a moment, or a plug-in that fails: it ended the service."""

    async def scene() -> None:
        failures: list[Exception] = [RuntimeError("empty"), KeyError("token")]

        def hook(configuration: Configuration) -> None:
            if failures:
                raise failures.pop()

        configuration = Configuration(host="http://127.0.0.1:9")
        configuration.refresh_api_key_hook = hook
        async with KubeClient(configuration) as client:
            for _ in range(2):
                with pytest.raises(Unavailable, match="no credentials"):
                    await client.list_page("pods", 1, "")
            with pytest.raises(Unavailable, match="list pods"):
                await client.list_page("pods", 1, "")

    asyncio.run(scene())
