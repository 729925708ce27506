"""Reads a pod, as the API server shows it, into `FoundPod`: what the sink found after a conflict or
a lost answer.

Pure and forgiving: a pod with a device annotation that cannot be read is found without devices.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from schemas.allocations import read_allocations, read_command_id
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED
from schemas.observations import FoundPod

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def found_pod(pod: Mapping[str, Any]) -> FoundPod:
    """The facts of a pod that decide the end of a command."""
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    deleted = metadata.get("deletionTimestamp")
    return FoundPod(
        uid=metadata["uid"],
        rv=int(metadata.get("resourceVersion") or 0),
        node=(pod.get("spec") or {}).get("nodeName") or None,
        phase=(pod.get("status") or {}).get("phase") or "Pending",
        deleted_us=None if deleted is None else _microseconds(deleted),
        allocations=read_allocations(annotations.get(DEVICE_ALLOCATED)),
        command_id=read_command_id(annotations.get(COMMAND_ID)),
    )


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND
