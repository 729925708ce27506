"""The port to the API server over raw aiohttp: 0.2 ms of CPU a call, where models would cost four
times that.

Address, certificates and credentials come from the `kubernetes` package (kubeconfig or in-cluster);
its client is not used. Must not retry, judge or log: `streams.sink.sink` does. Built by the command
line, one for each process.
"""

import asyncio
import json
import os
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp
from kubernetes.client import Configuration
from kubernetes.config import load_incluster_config, load_kube_config
from yarl import URL

from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.errors import LockstepError
from schemas.labels import COMMAND_ID
from schemas.versions import ServedVersions
from streams.sink.api import REASON, UNKNOWN, Response
from streams.sink.bodies import event_object, is_merged, status_body, timestamp

#: How long a header with credentials is used before the configuration is asked again (tokens
#: rotate).
_CREDENTIALS_S: Final = 30.0
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
_JSON_PATCH: Final = "application/json-patch+json"
_STRATEGIC: Final = "application/strategic-merge-patch+json"
#: A success that no API server says: nobody knows whether it has been asked.
_ODD: Final = Response(UNKNOWN, "Garbage", "an answer without an object of the API")


def load_configuration(kubeconfig: str | None = None) -> Configuration:
    """Address and credentials: `kubeconfig` if given, else the pod's own, else the user's default
    kubeconfig.

    Raises `LockstepError` that says what is missing.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
            load_incluster_config(client_configuration=configuration)
        else:
            load_kube_config(config_file=kubeconfig, client_configuration=configuration)
    except Exception as error:  # a broken file fails in many ways, all of them the file's fault
        where = kubeconfig or "the pod's service account or the default kubeconfig"
        raise LockstepError(
            f"no API server found through {where}: {error} Name a file with --kubeconfig."
        ) from error
    return configuration


class KubeApi:
    """`ApiWriter` on a real API server. Use as an async context manager.

    `timeout_s` bounds each call. Keep it below the Lease's validity: then a deposed sink's calls
    have ended when the next one starts.
    """

    def __init__(
        self, configuration: Configuration, *, timeout_s: float = 10.0, connections_max: int = 64
    ) -> None:
        self._configuration = configuration
        self._host = str(configuration.host).rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._connections_max = connections_max
        self._session: aiohttp.ClientSession | None = None
        self._authorization: str | None = None
        self._authorized_until = 0.0
        self._authorizing = asyncio.Lock()
        self._versions = ServedVersions()
        # A thread of its own: while a broker is away those of the loop wait for it, and the Lease would not be renewed.
        self._thread = ThreadPoolExecutor(1, "credentials")

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=self._connections_max, ssl=self._tls())
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=self._timeout, proxy=self._configuration.proxy or None
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
        self._thread.shutdown(wait=False)

    async def bind(self, command: BindPod) -> Response:
        """See `ApiWriter.bind`."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "namespace": command.namespace,
                "name": command.name,
                "uid": command.uid,
                "annotations": {**command.annotations, COMMAND_ID: command.id},
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": command.node},
        }
        return await self._call(
            "POST", f"{_pod_path(command.namespace, command.name)}/binding", body
        )

    async def evict(self, command: EvictPod) -> Response:
        """See `ApiWriter.evict`."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {
                "namespace": command.namespace,
                "name": command.name,
                "annotations": {COMMAND_ID: command.id, REASON: command.reason},
            },
            "deleteOptions": {"preconditions": {"uid": command.uid}},
        }
        return await self._call(
            "POST", f"{_pod_path(command.namespace, command.name)}/eviction", body
        )

    async def read_pod(self, namespace: str, name: str) -> Response:
        """See `ApiWriter.read_pod`."""
        return _whole(await self._call("GET", _pod_path(namespace, name)))

    async def patch_status(self, command: PatchStatus) -> Response:
        """See `ApiWriter.patch_status`."""
        answer = Response(UNKNOWN)
        for version in self._versions.to_try(command.resource):
            answer = await self._patch_status(command, version)
            if answer.ok:
                self._versions.served(command.resource, version)
            if not _is_unserved(answer):
                break
        return answer

    async def _patch_status(self, command: PatchStatus, version: str) -> Response:
        status = status_body(command.resource, command.fields, version)
        if command.resource == "pods":
            path = _pod_path(command.namespace, command.name)
        else:
            plural, _, group = command.resource.partition(".")
            scope = f"namespaces/{quote(command.namespace, safe='')}/" if command.namespace else ""
            path = f"/apis/{group}/{version}/{scope}{plural}/{quote(command.name, safe='')}"
        if is_merged(command.resource):
            body = {"metadata": {"uid": command.uid}, "status": status}
            return await self._call("PATCH", f"{path}/status", body, _STRATEGIC)
        # A merge would do for a namesake, too: of a custom object's status only a test compares the uid.
        return await self._call(
            "PATCH",
            f"{path}/status",
            [
                {"op": "test", "path": "/metadata/uid", "value": command.uid},
                {"op": "add", "path": "/status", "value": status},
            ],
            _JSON_PATCH,
        )

    async def create_event(self, command: EvictPod | EmitEvent, message: str) -> Response:
        """See `ApiWriter.create_event`."""
        now = timestamp(time.time())
        resource = "pods" if isinstance(command, EvictPod) else command.resource
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": command.namespace, "name": command.id},
            "involvedObject": {
                **event_object(command, self._versions.last(resource)),
                "namespace": command.namespace,
                "name": command.name,
                "uid": command.uid,
            },
            "type": "Normal" if isinstance(command, EvictPod) else "Warning",
            "reason": "Evicted" if isinstance(command, EvictPod) else command.reason,
            "message": message,
            "source": {"component": "lockstep"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        namespace = quote(command.namespace, safe="")
        return await self._call("POST", f"/api/v1/namespaces/{namespace}/events", body)

    async def read_lease(self, namespace: str, name: str) -> Response:
        """See `ApiWriter.read_lease`."""
        return _whole(await self._call("GET", f"{_LEASES}/{namespace}/leases/{name}"))

    async def create_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.create_lease`."""
        return _whole(await self._call("POST", f"{_LEASES}/{namespace}/leases", lease))

    async def update_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """See `ApiWriter.update_lease`."""
        name = lease["metadata"]["name"]
        return _whole(await self._call("PUT", f"{_LEASES}/{namespace}/leases/{name}", lease))

    async def _call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Sequence[Any] | None = None,
        content: str = "application/json",
    ) -> Response:
        if self._session is None:
            raise RuntimeError("KubeApi is used outside of its context")
        headers = {
            "Accept": "application/json",
            "Content-Type": content,
            "User-Agent": "lockstep-sink",
        }
        try:
            authorization = await self._credentials()
        except Exception as error:  # noqa: BLE001  (a token's file or a plug-in, in their own ways)
            return Response(UNKNOWN, type(error).__name__, "no credentials")
        if authorization:
            headers["Authorization"] = authorization
        try:
            async with self._session.request(
                method,
                URL(self._host + path, encoded=True),
                data=None if body is None else json.dumps(body, separators=(",", ":")).encode(),
                headers=headers,
                server_hostname=self._configuration.tls_server_name or None,
            ) as answer:
                response = _response(answer.status, await answer.read())
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Response(UNKNOWN, type(error).__name__, str(error) or type(error).__name__)
        if response.status == 401:
            self._authorized_until = 0.0
        return response

    async def _credentials(self) -> str | None:
        if time.monotonic() < self._authorized_until:
            return self._authorization
        async with self._authorizing:
            if time.monotonic() >= self._authorized_until:
                # A plug-in of the kubeconfig may start a process: it must not hold up the loop.
                self._authorization = await asyncio.get_running_loop().run_in_executor(
                    self._thread,
                    self._configuration.get_api_key_with_prefix,
                    "BearerToken",
                    "authorization",
                )
                self._authorized_until = time.monotonic() + _CREDENTIALS_S
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


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(name, safe='')}"


def _response(status: int, data: bytes) -> Response:
    try:
        body = json.loads(data)
    except (ValueError, RecursionError):
        body = None
    if status < 400:
        return Response(status, body=body) if isinstance(body, dict) else _ODD
    if not isinstance(body, dict):
        body = {}
    message = str(body.get("message") or data[:200].decode(errors="replace"))
    reason = str(body.get("reason") or "")
    # What stands before an API server has other details than a Status.
    return Response(status, reason, message, body if body.get("kind") == "Status" else {})


def _is_unserved(answer: Response) -> bool:
    """The API server knows no such path; of an object that is gone it names the object."""
    return answer.status == 404 and not (answer.body.get("details") or {}).get("name")


def _whole(answer: Response) -> Response:
    """A success without an object is no answer of an API server, but of what stands before it."""
    parts = (answer.body.get("metadata"), answer.body.get("spec"))
    return _ODD if answer.ok and not all(isinstance(part, dict) for part in parts) else answer
