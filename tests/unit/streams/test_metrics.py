"""The endpoint of metrics: who may read it, and what it says of a process."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest

from schemas.errors import LockstepError
from streams.metrics import Metrics
from streams.metrics_endpoint import MetricsAddress, serving
from tests.alerts import parse

Get = Callable[..., Awaitable[tuple[int, str]]]


def ask(scene: Callable[[Get], Awaitable[None]], address: MetricsAddress, metrics: Metrics) -> None:
    """Plays a scene that asks the endpoint over HTTP."""

    async def stage() -> None:
        async with serving(address, metrics) as port, aiohttp.ClientSession() as session:

            async def get(path: str, **headers: str) -> tuple[int, str]:
                url = f"http://127.0.0.1:{port}{path}"
                async with session.get(url, headers=headers) as answer:
                    return answer.status, await answer.text()

            await scene(get)

    asyncio.run(stage())


def test_on_the_loopback_anybody_may_read() -> None:
    """Without a token: the metrics of the process, and one word of its health."""
    metrics = Metrics()

    async def scene(get: Get) -> None:
        status, text = await get("/metrics")
        scrape = parse(text)
        assert (200, {frozenset(): 0.0}) == (status, scrape["lockstep_running"])
        assert scrape["process_resident_memory_bytes"][frozenset()] > 10_000_000
        assert (200, "recovering\n") == await get("/healthz")
        metrics.roles.running = True
        assert (200, "running\n") == await get("/healthz")
        metrics.roles.running, metrics.roles.stopped = False, "chain_stalled"
        assert (503, "stopped: chain_stalled\n") == await get("/healthz")
        assert 404 == (await get("/"))[0]

    ask(scene, MetricsAddress.parse("127.0.0.1:0", None), metrics)


def test_a_token_is_asked_for_and_may_be_replaced(tmp_path: Path) -> None:
    """Only the token of the file opens; a new one counts at once; a file that has gone opens to nobody."""
    file = tmp_path / "token"
    file.write_text("sesame\n")
    address = MetricsAddress.parse("0.0.0.0:0", file)

    async def scene(get: Get) -> None:
        for wrong in ("", "Bearer", "Bearer open", "Basic sesame", "sesame", "Bearer s\u00e9same"):
            assert (401, "") == await get("/metrics", Authorization=wrong)
        assert 200 == (await get("/metrics", Authorization="Bearer sesame"))[0]
        assert (200, "recovering\n") == await get("/healthz")
        file.write_text("simsim")
        assert 401 == (await get("/metrics", Authorization="Bearer sesame"))[0]
        assert 200 == (await get("/metrics", Authorization="Bearer simsim"))[0]
        file.unlink()
        assert 401 == (await get("/metrics", Authorization="Bearer simsim"))[0]

    ask(scene, address, Metrics())


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]", "10.1.2.3", "metrics.example", ""])
def test_off_the_loopback_it_does_not_listen_without_a_token(host: str) -> None:
    """Metrics name resources and rates: nobody publishes them by mistake."""
    with pytest.raises(LockstepError, match=r"--metrics-token-file|want HOST:PORT"):
        MetricsAddress.parse(f"{host}:9465", None)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "[::1]", "localhost"])
def test_the_loopback_needs_no_token(host: str) -> None:
    """What cannot be reached from outside is open."""
    assert 9465 == MetricsAddress.parse(f"{host}:9465", None).port


@pytest.mark.parametrize("text", ["9465", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "a:70000"])
def test_a_bad_address_is_refused_with_an_example(text: str) -> None:
    """The message says what would be right."""
    with pytest.raises(LockstepError, match=r"want HOST:PORT, such as 127\.0\.0\.1:9465"):
        MetricsAddress.parse(text, None)


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_token_that_is_missing_or_empty_is_refused_at_the_start(
    tmp_path: Path, content: str | None
) -> None:
    """An empty token would open to everybody."""
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(LockstepError, match=r"token: (cannot read|it is empty)"):
        MetricsAddress.parse("0.0.0.0:9465", file)


def test_a_port_that_is_taken_is_said() -> None:
    """One line with the address."""

    async def scene() -> None:
        address = MetricsAddress.parse("127.0.0.1:0", None)
        async with serving(address, Metrics()) as port:
            taken = MetricsAddress.parse(f"127.0.0.1:{port}", None)
            with pytest.raises(LockstepError, match=f"127.0.0.1:{port}: cannot listen"):
                async with serving(taken, Metrics()):
                    """Never reached."""

    asyncio.run(scene())
