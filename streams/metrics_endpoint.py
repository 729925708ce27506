"""The HTTP endpoint of `lockstep run`: `/metrics` for Prometheus and `/healthz` for whoever restarts.

On the loopback it needs no token; anywhere else `/metrics` needs the bearer token of a file. `/healthz`
says one word (running, recovering, stopped) and needs none, for a kubelet cannot send one. Built by the
composition of `lockstep run`. Must not change anything, nor say more than `Metrics` renders.
"""

import hmac
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aiohttp import web
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from schemas.errors import LockstepError
from streams.metrics import Metrics

_BEARER: Final = "Bearer "


@dataclass(frozen=True, slots=True)
class MetricsAddress:
    """Where to listen. `token_file` is read at each request, so that a token can be replaced."""

    host: str
    port: int
    token_file: Path | None = None

    @classmethod
    def parse(cls, text: str, token_file: Path | None) -> "MetricsAddress":
        """`HOST:PORT`, or `[IPv6]:PORT`. Raises `LockstepError` for a bad address, for one off the
        loopback without a token, and for a token that cannot be read or is empty.
        """
        host, colon, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (host and colon and port.isdecimal() and int(port) < 65_536):
            raise LockstepError(f"--metrics {text}: want HOST:PORT, such as 127.0.0.1:9465")
        if token_file is None and not _is_loopback(host):
            raise LockstepError(
                f"--metrics {text}: off the loopback it needs --metrics-token-file FILE"
            )
        address = cls(host, int(port), token_file)
        address.token()
        return address

    def token(self) -> bytes | None:
        """The token that a request must bring; None when none is needed."""
        if self.token_file is None:
            return None
        try:
            token = self.token_file.read_bytes().strip()
        except OSError as error:
            raise LockstepError(
                f"--metrics-token-file {self.token_file}: cannot read: {error.strerror}"
            ) from error
        if not token:
            raise LockstepError(f"--metrics-token-file {self.token_file}: it is empty")
        return token


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@asynccontextmanager
async def serving(address: MetricsAddress, metrics: Metrics) -> AsyncIterator[int]:
    """Serves while the context is open; gives the port (a free one for port 0).

    Raises `LockstepError` when nobody may listen there.
    """

    async def show(request: web.Request) -> web.Response:
        if not _admitted(request.headers.get("Authorization", ""), address):
            return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})
        return web.Response(body=metrics.render(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def show_health(request: web.Request) -> web.Response:
        del request
        return _health(metrics)

    app = web.Application()
    app.add_routes([web.get("/metrics", show), web.get("/healthz", show_health)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, address.host, address.port).start()
        except OSError as error:
            raise LockstepError(
                f"--metrics {address.host}:{address.port}: cannot listen: {error.strerror}"
            ) from error
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


def _admitted(authorization: str, address: MetricsAddress) -> bool:
    try:
        token = address.token()
    except LockstepError:
        return False
    if token is None:
        return True
    given = authorization.removeprefix(_BEARER).encode(errors="surrogateescape")
    return authorization.startswith(_BEARER) and hmac.compare_digest(given, token)


def _health(metrics: Metrics) -> web.Response:
    roles = metrics.roles
    if roles.stopped:
        return web.Response(status=503, text=f"stopped: {roles.stopped}\n")
    return web.Response(text="running\n" if roles.running else "recovering\n")
