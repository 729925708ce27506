"""The API server in memory keeps the rules that the sink relies on in the real one."""

import asyncio

import pytest

from tests.contracts.api_writer import CHECKS, Check
from tests.contracts.fake_api_server import FakeApiServer


class FakeGround:
    """The checks' ground on the fake."""

    namespace = "default"
    node = "n1"

    def __init__(self) -> None:
        self.api = FakeApiServer()

    async def add_pod(self, name: str, *, gated: bool = False) -> str:
        return self.api.add_pod(name, gates=("wait",) if gated else ())

    async def add_group(self, name: str, api_group: str) -> str:
        return self.api.add_group(name, uid=f"uid-{api_group}")

    async def guard(self, name: str) -> None:
        self.api.budgets.add((self.namespace, name))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_fake_api_server(check: Check) -> None:
    """Each check of the contract passes on the fake."""
    asyncio.run(check(FakeGround()))
