"""An API server in memory behind the sink's port, with faults to order; for its tests.

It keeps the rules of the real one that the sink relies on; `tests/contracts/api_writer.py` holds
both to the same checks. Must not be used where a real answer matters.
"""

import asyncio
import copy
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus
from schemas.labels import COMMAND_ID
from streams.sink.api import Response
from streams.sink.bodies import is_merged, status_body

LOST = Response(0, "TimeoutError", "no answer")


@dataclass(frozen=True)
class Fault:
    """How the next call of a kind is answered; `happens`: it takes effect all the same."""

    answer: Response
    happens: bool = False


@dataclass
class FakeApiServer:
    """`ApiWriter` over dictionaries. `calls` lists (method, name) in the order of arrival."""

    pods: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    groups: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    leases: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    events: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    budgets: set[tuple[str, str]] = field(default_factory=set)
    calls: list[tuple[str, str]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    gate: asyncio.Event | None = None
    in_flight: int = 0
    in_flight_max: int = 0
    version: int = 0

    def fail(self, method: str, *faults: Fault | Response) -> None:
        """Order faults for the next calls of `method` (`bind`, `evict`, `read_pod` ...)."""
        for fault in faults:
            self.faults[method].append(fault if isinstance(fault, Fault) else Fault(fault))

    def add_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        uid: str | None = None,
        node: str | None = None,
        gates: tuple[str, ...] = (),
        annotations: Mapping[str, str] | None = None,
    ) -> str:
        """Create or replace a pod; returns its uid."""
        uid = uid or f"uid-{name}"
        spec: dict[str, Any] = {"schedulingGates": [{"name": gate} for gate in gates]}
        if node:
            spec["nodeName"] = node
        self.pods[namespace, name] = {
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": uid,
                "resourceVersion": self._next(),
                "annotations": dict(annotations or {}),
            },
            "spec": spec,
            "status": {"phase": "Pending"},
        }
        return uid

    def add_group(self, name: str, *, uid: str | None = None) -> str:
        """Create or replace a PodGroup; returns its uid."""
        uid = uid or f"uid-{name}"
        metadata = {"namespace": "default", "name": name, "uid": uid}
        self.groups["default", name] = {"metadata": metadata, "status": {}}
        return uid

    def count(self, method: str, name: str | None = None) -> int:
        """How many calls of `method` arrived (about the object `name`)."""
        return sum(1 for each in self.calls if each[0] == method and name in (None, each[1]))

    async def bind(self, command: BindPod) -> Response:
        """As the real one: everything that stands against it is a conflict."""
        return await self._serve("bind", command.name, lambda: self._bind(command))

    async def evict(self, command: EvictPod) -> Response:
        """As the real one: a pod without a node is gone at once, another is terminating."""
        return await self._serve("evict", command.name, lambda: self._evict(command))

    async def read_pod(self, namespace: str, name: str) -> Response:
        """The pod as it is."""
        return await self._serve("read_pod", name, lambda: self._read(self.pods, namespace, name))

    async def patch_status(self, command: PatchStatus) -> Response:
        """Sets the condition `PodScheduled` of a pod, or the whole status of a PodGroup."""
        return await self._serve("patch_status", command.name, lambda: self._patch(command))

    async def create_event(self, command: EvictPod | EmitEvent, message: str) -> Response:
        """Keeps the message under the command's id."""
        body = {"metadata": {"namespace": command.namespace, "name": command.id}}
        return await self._serve(
            "create_event",
            command.id,
            lambda: self._create(self.events, {**body, "message": message}),
        )

    async def read_lease(self, namespace: str, name: str) -> Response:
        """The Lease as it is."""
        return await self._serve(
            "read_lease", name, lambda: self._read(self.leases, namespace, name)
        )

    async def create_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """409 when it exists."""
        name = lease["metadata"]["name"]
        return await self._serve("create_lease", name, lambda: self._create(self.leases, lease))

    async def update_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """409 when the version is another."""
        name = lease["metadata"]["name"]
        return await self._serve("update_lease", name, lambda: self._update(namespace, lease))

    async def _serve(self, method: str, name: str, act: Any) -> Response:
        self.calls.append((method, name))
        self.in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self.in_flight)
        try:
            await (self.gate.wait() if self.gate else asyncio.sleep(0))
            fault = self.faults[method].popleft() if self.faults[method] else None
            if fault is not None and not fault.happens:
                return fault.answer
            answer: Response = act()
            return answer if fault is None else fault.answer
        finally:
            self.in_flight -= 1

    def _bind(self, command: BindPod) -> Response:
        pod = self.pods.get((command.namespace, command.name))
        if pod is None:
            return _status(404, "NotFound", f'pods "{command.name}" not found')
        if pod["metadata"]["uid"] != command.uid:
            return _status(409, "Conflict", "the UID in the precondition differs")
        if "deletionTimestamp" in pod["metadata"]:
            return _status(409, "Conflict", "the pod is being deleted")
        if node := pod["spec"].get("nodeName"):
            return _status(409, "Conflict", f"already assigned to node {node}")
        if pod["spec"]["schedulingGates"]:
            return _status(409, "Conflict", "the pod has scheduling gates")
        pod["spec"]["nodeName"] = command.node
        pod["metadata"]["annotations"] |= {**command.annotations, COMMAND_ID: command.id}
        pod["metadata"]["resourceVersion"] = self._next()
        return Response(201)

    def _evict(self, command: EvictPod) -> Response:
        key = (command.namespace, command.name)
        pod = self.pods.get(key)
        if pod is None:
            return _status(404, "NotFound", f'pods "{command.name}" not found')
        if pod["metadata"]["uid"] != command.uid:
            return _status(409, "Conflict", "the UID in the precondition differs")
        if key in self.budgets and "deletionTimestamp" not in pod["metadata"]:
            return held_by_budget("the budget needs 1 healthy pod and has 1")
        if "nodeName" not in pod["spec"]:
            del self.pods[key]
        else:
            pod["metadata"].setdefault("deletionTimestamp", "2026-01-01T00:00:30Z")
        return Response(201)

    def _patch(self, command: PatchStatus) -> Response:
        kind = self.pods if command.resource == "pods" else self.groups
        found = kind.get((command.namespace, command.name))
        if found is None:
            return _status(404, "NotFound", f'{command.resource} "{command.name}" not found')
        if found["metadata"]["uid"] != command.uid:
            if is_merged(command.resource):
                return _status(422, "Invalid", "metadata.uid: field is immutable")
            return _status(422, "Invalid", "the server rejected our request")
        status = status_body(command.resource, command.fields)
        if is_merged(command.resource):
            found.setdefault("status", {})["conditions"] = status["conditions"]
        else:
            found["status"] = status
        return Response(200, body=copy.deepcopy(found))

    def _read(self, kind: dict[tuple[str, str], Any], namespace: str, name: str) -> Response:
        found = kind.get((namespace, name))
        if found is None:
            return _status(404, "NotFound", f"{name} not found")
        return Response(200, body=copy.deepcopy(found))

    def _create(self, kind: dict[tuple[str, str], Any], body: Mapping[str, Any]) -> Response:
        key = (body["metadata"]["namespace"], body["metadata"]["name"])
        if key in kind:
            return _status(409, "AlreadyExists", f"{key[1]} already exists")
        kind[key] = copy.deepcopy(dict(body))
        kind[key]["metadata"]["resourceVersion"] = self._next()
        return Response(201, body=copy.deepcopy(kind[key]))

    def _update(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        key = (namespace, lease["metadata"]["name"])
        if key not in self.leases:
            return _status(404, "NotFound", f"{key[1]} not found")
        stored = self.leases[key]["metadata"]["resourceVersion"]
        if lease["metadata"].get("resourceVersion") != stored:
            return _status(409, "Conflict", "the object has been modified")
        self.leases[key] = copy.deepcopy(dict(lease))
        self.leases[key]["metadata"]["resourceVersion"] = self._next()
        return Response(200, body=copy.deepcopy(self.leases[key]))

    def _next(self) -> str:
        self.version += 1
        return str(self.version)


def held_by_budget(message: str) -> Response:
    """The answer to an eviction that a PodDisruptionBudget holds back."""
    causes = [{"reason": "DisruptionBudget", "message": message}]
    body = {"message": message, "reason": "TooManyRequests", "details": {"causes": causes}}
    return Response(429, "TooManyRequests", message, body)


def _status(status: int, reason: str, message: str) -> Response:
    return Response(status, reason, message, {"reason": reason, "message": message})
