"""A small synchronous client of a Kubernetes API server, for tests to arrange and to look.

Raw HTTP and plain dicts, so that a test reads like the API and shares no code with what it tests.
Threads may share one `Api`. Called by `cluster.py` and by tests.
"""

import json
import ssl
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import urllib3

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
FIELD_OWNER = "lockstep-tests"
IN_FLIGHT = 16
REQUEST_SECONDS_MAX = 120  # one request deletes all pods of a namespace, thousands of them
ESTABLISH_SECONDS_MAX = 20  # a new CRD is served a moment after it has been accepted
POLL_SECONDS = 0.05


class ApiError(Exception):
    """The API server refused; `status` is the HTTP status, `body` its Status object."""

    def __init__(self, method: str, path: str, status: int, body: Object) -> None:
        super().__init__(f"{method} {path}: {status} {body.get('message', body)}")
        self.status = status
        self.body = body


class Api:
    """Requests as one user."""

    def __init__(
        self, server: str, tls: ssl.SSLContext | None, headers: dict[str, str] | None = None
    ) -> None:
        self.server = server
        self.tls = tls
        self.headers = headers or {}
        self._pool = urllib3.PoolManager(maxsize=IN_FLIGHT, ssl_context=tls, retries=False)
        self._resources: dict[str, dict[str, Object]] = {}  # apiVersion -> kind -> resource

    def request(
        self, method: str, path: str, body: Object | None = None, *, kind: str = "application/json"
    ) -> Object:
        """One call. Raises ApiError for a refusal, urllib3's errors for a lost connection."""
        response = self._pool.request(
            method,
            self.server + path,
            body=None if body is None else json.dumps(body).encode(),
            headers=self.headers | {"Content-Type": kind, "Accept": "application/json"},
            timeout=REQUEST_SECONDS_MAX,
        )
        try:
            answer: Object = json.loads(response.data)
        except ValueError:  # /readyz and refusals of the front door are plain text
            answer = {"message": response.data.decode(errors="replace")}
        if response.status >= 400:
            raise ApiError(method, path, response.status, answer)
        return answer

    def get(self, path: str) -> Object:
        return self.request("GET", path)

    def post(self, path: str, body: Object) -> Object:
        return self.request("POST", path, body)

    def patch(self, path: str, body: Object, kind: str = MERGE_PATCH) -> Object:
        return self.request("PATCH", path, body, kind=kind)

    def delete(self, path: str, *, grace_seconds: int | None = None) -> Object:
        options = {} if grace_seconds is None else {"gracePeriodSeconds": grace_seconds}
        return self.request("DELETE", path, options)

    def items(self, path: str) -> list[Object]:
        """Everything under a collection path, in the API server's order."""
        items: list[Object] = self.get(path)["items"]
        return items

    def create(self, *objects: Object) -> list[Object]:
        """Create each object by its own apiVersion, kind and namespace; many at a time."""
        self._learn(objects)
        return self._each(lambda body: self.post(self.collection_path(body), body), objects)

    def apply(self, *objects: Object) -> list[Object]:
        """Create or update, in the given order: a CRD may stand before its first object."""
        query = f"?fieldManager={FIELD_OWNER}&force=true"
        return [
            self.request("PATCH", self.path(body) + query, body, kind=APPLY_PATCH)
            for body in objects
        ]

    def collection_path(self, body: Object) -> str:
        """Where objects of that kind and namespace live. Raises LookupError for an unknown kind."""
        version, kind = body["apiVersion"], body["kind"]
        resource = self._resource(version, kind)
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if resource["namespaced"]:
            root += f"/namespaces/{body['metadata'].get('namespace', 'default')}"
        return f"{root}/{resource['name']}"

    def path(self, body: Object) -> str:
        """Where that one object lives."""
        return f"{self.collection_path(body)}/{body['metadata']['name']}"

    def bind(self, pod: str, node: str, *, namespace: str = "default") -> Object:
        """Bind a pod by hand, as a scheduler would."""
        return self.post(
            f"/api/v1/namespaces/{namespace}/pods/{pod}/binding",
            {
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": {"name": pod},
                "target": {"apiVersion": "v1", "kind": "Node", "name": node},
            },
        )

    def pods(self, namespace: str = "default") -> list[Object]:
        return self.items(f"/api/v1/namespaces/{namespace}/pods")

    def _resource(self, version: str, kind: str) -> Object:
        give_up = time.monotonic() + ESTABLISH_SECONDS_MAX
        while kind not in self._resources.get(version, {}):
            self._resources[version] = self._discover(version)
            if kind in self._resources[version]:
                break
            if time.monotonic() > give_up:
                raise LookupError(f"the API server does not serve {kind} of {version}")
            time.sleep(POLL_SECONDS)
        return self._resources[version][kind]

    def _discover(self, version: str) -> dict[str, Object]:
        try:
            found = self.get(f"/apis/{version}" if "/" in version else f"/api/{version}")
        except ApiError as error:
            if error.status != 404:
                raise
            return {}
        return {each["kind"]: each for each in found["resources"] if "/" not in each["name"]}

    def _learn(self, objects: Iterable[Object]) -> None:
        for body in objects:
            self._resource(body["apiVersion"], body["kind"])

    @staticmethod
    def _each(call: Callable[[Object], Object], objects: Iterable[Object]) -> list[Object]:
        with ThreadPoolExecutor(IN_FLIGHT) as pool:
            return list(pool.map(call, objects))


def wait_for(
    what: str, holds: Callable[[], object], seconds_max: float = 30, every: float = POLL_SECONDS
) -> None:
    """Wait until `holds()` is true. Raises AssertionError that says what never came, and its last value."""
    give_up = time.monotonic() + seconds_max
    while not (last := holds()):
        assert time.monotonic() < give_up, f"{what}: not within {seconds_max} s; last {last!r}"
        time.sleep(every)
