"""What a `PatchStatus` or an `EmitEvent` says, in the API's own form: times as text, conditions as a list.

Shared by the adapters of the real and of the simulated API server, so it loads no client.
"""

import time
from collections.abc import Mapping
from typing import Any, Final

from schemas.envelope import EmitEvent, EvictPod

#: PodGroups of Kubernetes itself, whose status is a condition.
KUBERNETES_PODGROUPS: Final = "podgroups.scheduling.k8s.io"
#: Version of them -> type of the condition that says whether the group was placed; it was renamed after 1.36.
_GROUP_CONDITION: Final = {"v1alpha2": "PodGroupScheduled"}
_GROUP_CONDITION_NOW: Final = "PodGroupInitiallyScheduled"


def status_body(resource: str, fields: Mapping[str, Any], version: str = "") -> dict[str, Any]:
    """Of what has a condition what is merged into its status (`is_merged`), of any other object its whole status."""
    if resource == "pods":
        return {"conditions": [_condition("PodScheduled", fields)]}
    if resource == KUBERNETES_PODGROUPS:
        kind = _GROUP_CONDITION.get(version, _GROUP_CONDITION_NOW)
        return {"conditions": [_condition(kind, fields)]}
    return group_status(fields) if resource.startswith("podgroups.") else dict(fields)


def is_merged(resource: str) -> bool:
    """What is written into the object's status leaves the conditions of others alone."""
    return resource in ("pods", KUBERNETES_PODGROUPS)


def event_object(command: EvictPod | EmitEvent, version: str) -> dict[str, str]:
    """Version and kind of what an Event is about."""
    _, _, group = ("" if isinstance(command, EvictPod) else command.resource).partition(".")
    if not group:
        return {"apiVersion": "v1", "kind": "Pod"}
    return {"apiVersion": f"{group}/{version}", "kind": "PodGroup"}


def _condition(kind: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """A condition of that type, False unless the fields say otherwise; `since_us` is written as its
    `lastTransitionTime`.
    """
    condition = {"type": kind, "status": "False", **fields}
    since_us = condition.pop("since_us", None)
    if since_us is not None:
        condition["lastTransitionTime"] = timestamp(since_us // 1_000_000)
    return condition


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
