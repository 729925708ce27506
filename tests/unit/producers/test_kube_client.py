"""The reading adapter where no API server is needed."""

import asyncio

import pytest
from kubernetes.client import Configuration

from producers.kube_client import KubeClient
from schemas.errors import Unavailable


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
