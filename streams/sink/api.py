"""The port to the API server: the few calls that the sink makes, and what it hears back.

A call never raises for an answer it does not like: whatever happened is a `Response`. Status 0
means that nobody knows whether the call took effect (a timeout, a lost connection). Adapters:
`streams.sink.kube.KubeApi`, and the simulated API server of tests. Judging an answer is
`streams.sink.outcomes`' work, not the adapter's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from schemas.envelope import BindPod, EmitEvent, EvictPod, PatchStatus

#: On the Eviction (seen in the audit log of the API server): why.
REASON: Final = "lockstep.dev/reason"
#: On the Lease: whose log the holder follows.
LOG_ID: Final = "lockstep.dev/log-id"

#: Nobody knows whether the call took effect.
UNKNOWN: Final = 0


@dataclass(frozen=True, slots=True)
class Response:
    """One answer. `reason` and `message` as the API server's Status says them; `body` is the whole
    JSON object.
    """

    status: int
    reason: str = ""
    message: str = ""
    body: Mapping[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """The call took effect."""
        return 200 <= self.status < 300


class ApiWriter(Protocol):
    """What the sink asks of the API server. Every call has a time limit; none retries."""

    async def bind(self, command: BindPod) -> Response:
        """POST the Binding with uid precondition, annotations, command id. A conflict is 409."""
        ...

    async def evict(self, command: EvictPod) -> Response:
        """POST the Eviction (policy/v1) with uid precondition. A disruption budget is 429."""
        ...

    async def read_pod(self, namespace: str, name: str) -> Response:
        """GET the pod from the store, not from a cache: 200 with the object, or 404."""
        ...

    async def patch_status(self, command: PatchStatus) -> Response:
        """PATCH the status subresource, of a pod one condition of it. Another uid is 422."""
        ...

    async def create_event(self, command: EvictPod | EmitEvent, message: str) -> Response:
        """POST an Event about the object; its name is the command's id, so a repeat answers 409."""
        ...

    async def read_lease(self, namespace: str, name: str) -> Response:
        """GET the Lease."""
        ...

    async def create_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """POST the Lease: 409 when it exists."""
        ...

    async def update_lease(self, namespace: str, lease: Mapping[str, Any]) -> Response:
        """PUT the Lease: 409 when its resourceVersion is not the stored one."""
        ...
