"""What a `PatchStatus` or an `EmitEvent` says, in the API's own form: times as text, conditions as a list.

Shared by the adapters of the real and of the simulated API server, so it loads no client.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from schemas.envelope import EmitEvent, EvictPod

#: Version of the API groups whose objects Lockstep writes to.
VERSION: Final = "v1alpha1"


def status_body(resource: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """Of a pod what is merged into its status, of any other object its whole status."""
    if resource == "pods":
        return pod_status(fields)
    return group_status(fields) if resource.startswith("podgroups.") else dict(fields)


def event_object(command: EvictPod | EmitEvent) -> dict[str, str]:
    """Version and kind of what an Event is about."""
    _, _, group = ("" if isinstance(command, EvictPod) else command.resource).partition(".")
    if not group:
        return {"apiVersion": "v1", "kind": "Pod"}
    return {"apiVersion": f"{group}/{VERSION}", "kind": "PodGroup"}


def pod_status(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The patch of a pod that waits: condition `PodScheduled=False`; the strategic merge leaves the
    others alone. `since_us` of the fields is written as the API's `lastTransitionTime`.
    """
    condition = {"type": "PodScheduled", "status": "False", **fields}
    since_us = condition.pop("since_us", None)
    if since_us is not None:
        condition["lastTransitionTime"] = timestamp(since_us // 1_000_000)
    return {"conditions": [condition]}


def group_status(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The status of a PodGroup; `start_us` is written as the API's `scheduleStartTime`."""
    status = dict(fields)
    start_us = status.pop("start_us", None)
    if start_us is not None:
        status["scheduleStartTime"] = timestamp(start_us // 1_000_000)
    return status


def timestamp(seconds: float) -> str:
    """RFC 3339, whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
