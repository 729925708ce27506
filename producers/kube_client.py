"""`KubeReader` on a real API server: raw aiohttp and JSON, configured by the `kubernetes` package.

Must not build that package's models: they cost several times what reading the JSON does. Built by
the command line, one for each process that runs informers, with the sink's configuration.
"""

import asyncio
import random
import ssl
import time
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec
from kubernetes.client import Configuration

from producers.kube import Expired, UnknownKind, resource_path
from schemas.errors import LockstepError, Unavailable
from schemas.versions import ServedVersions

#: How long credentials are used before the configuration is asked again: tokens rotate.
_CREDENTIALS_S: Final = 30.0
#: The API server is asked to end a watch after a time in this range; a dead connection is noticed
#: soon after.
_WATCH_S: Final = (240, 300)
_SILENCE_GRACE_S: Final = 30.0
_LIST_S: Final = 60.0
_GOODBYE_S: Final = 0.1
#: How much of a watch is read at once; more makes larger bursts.
_READ_BYTES: Final = 1 << 19


class KubeClient:
    """`KubeReader` over HTTP. Use as an async context manager."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._host = str(configuration.host).rstrip("/")
        self._session: aiohttp.ClientSession | None = None
        self._authorization: str | None = None
        self._authorized_until = 0.0
        self._versions = ServedVersions()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls())
        proxy = self._configuration.proxy or None
        self._session = aiohttp.ClientSession(
            connector=connector, proxy=proxy, read_bufsize=_READ_BYTES
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None
            # TLS says good-bye in the background; a loop that closed now would cut it off.
            await asyncio.sleep(_GOODBYE_S)

    async def list_page(self, resource: str, limit: int, continue_: str) -> dict[str, Any]:
        """See `KubeReader.list_page`."""
        query = {"limit": str(limit)} | ({"continue": continue_} if continue_ else {})
        timeout = aiohttp.ClientTimeout(total=_LIST_S)
        try:
            async with await self._get(resource, query, timeout) as answer:
                return msgspec.json.decode(await answer.read(), type=dict[str, Any])
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"list {resource}: {_text(error)}") from error

    async def watch(
        self, resource: str, version: str
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """See `KubeReader.watch`."""
        watch_s = random.randint(*_WATCH_S)
        query = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(watch_s),
        }
        timeout = aiohttp.ClientTimeout(
            total=None, connect=_LIST_S, sock_read=watch_s + _SILENCE_GRACE_S
        )
        try:
            async with await self._get(resource, query, timeout) as answer:
                async for lines in _lines(answer.content):
                    events = [msgspec.json.decode(line, type=dict[str, Any]) for line in lines]
                    errors = [event for event in events if event.get("type") == "ERROR"]
                    if burst := [event for event in events if event.get("type") != "ERROR"]:
                        yield burst
                    if errors:
                        raise _refusal(resource, errors[0].get("object") or {})
        except aiohttp.ClientPayloadError:
            return  # the API server closed a slow watch in the middle of its stream: resume
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unavailable(f"watch {resource}: {_text(error)}") from error

    async def _get(
        self, resource: str, query: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        """The answer in the first version that is served."""
        refusal: UnknownKind | None = None
        for version in self._versions.to_try(resource):
            try:
                answer = await self._ask(resource, version, query, limits)
            except UnknownKind as error:
                refusal = refusal or error
            else:
                self._versions.served(resource, version)
                return answer
        assert refusal is not None, f"no version of {resource}"
        raise refusal

    async def _ask(
        self, resource: str, version: str, query: dict[str, str], limits: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self._session is None:
            raise RuntimeError("KubeClient is used outside of its context")
        # Uncompressed: packing and unpacking would cost both sides more CPU than the bytes do.
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        if authorization := await self._credentials():
            headers["Authorization"] = authorization
        answer = await self._session.get(
            self._host + resource_path(resource, version),
            params=query,
            headers=headers,
            timeout=limits,
            server_hostname=self._configuration.tls_server_name or None,
        )
        if answer.status == 200:
            return answer
        async with answer:
            body = (await answer.read()).decode(errors="replace")
        if answer.status == 401:
            self._authorized_until = 0.0
        raise _failure(resource, answer.status, body[:300])

    async def _credentials(self) -> str | None:
        now = time.monotonic()
        if now >= self._authorized_until:
            # A plug-in of the kubeconfig may start a process here; it must not hold up the loop.
            try:
                self._authorization = await asyncio.to_thread(
                    self._configuration.get_api_key_with_prefix, "BearerToken", "authorization"
                )
            except Exception as error:  # a token's file or a plug-in, in their own ways
                raise Unavailable(f"no credentials: {type(error).__name__}") from error
            self._authorized_until = now + _CREDENTIALS_S
        return self._authorization

    def _tls(self) -> ssl.SSLContext | bool:
        settings = self._configuration
        if not self._host.startswith("https"):
            return True
        context = ssl.create_default_context(cafile=settings.ssl_ca_cert)
        if settings.cert_file:
            context.load_cert_chain(settings.cert_file, settings.key_file)
        if not settings.verify_ssl:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


async def _lines(content: aiohttp.StreamReader) -> AsyncGenerator[list[bytes], None]:
    """The whole lines that each read brought; a rest that was cut off in mid-line is dropped."""
    rest: list[bytes] = []
    async for chunk in content.iter_any():
        first, *others = chunk.split(b"\n")
        rest.append(first)
        if others:
            lines = [b"".join(rest), *others[:-1]]
            rest = [others[-1]]
            if whole := [line for line in lines if line]:
                yield whole


def _refusal(resource: str, status: dict[str, Any]) -> LockstepError:
    code = status.get("code")
    return _failure(resource, code if isinstance(code, int) else 0, str(status.get("message")))


def _failure(resource: str, status: int, message: str) -> LockstepError:
    text = f"{resource}: HTTP {status}: {message}"
    if status == 410:
        return Expired(text)
    if status == 404:
        return UnknownKind(text)
    return Unavailable(text)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
