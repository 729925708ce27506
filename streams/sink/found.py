"""Reads a pod, as the API server shows it, into `FoundPod`: what the sink found after a conflict or
a lost answer.

Pure and forgiving: a pod with a device annotation that cannot be read is found without devices.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from schemas.errors import InvalidMessage
from schemas.labels import COMMAND_ID, DEVICE_ALLOCATED, canonical_resource
from schemas.observations import Allocation, FoundPod
from schemas.quantities import resource_amount

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
        allocations=_allocations(annotations.get(DEVICE_ALLOCATED)),
        command_id=annotations.get(COMMAND_ID),
    )


def _microseconds(text: str) -> int:
    return (datetime.fromisoformat(text) - _EPOCH) // _MICROSECOND


def _allocations(text: str | None) -> tuple[Allocation, ...]:
    if not text:
        return ()
    try:
        return tuple(sorted(_read(json.loads(text)), key=lambda item: (item.type, item.minor)))
    except (ValueError, TypeError, KeyError, AttributeError, InvalidMessage):
        return ()


def _read(by_type: dict[str, Any]) -> Iterator[Allocation]:
    for kind, entries in by_type.items():
        for entry in entries:
            resources = {
                canonical_resource(name): resource_amount(name, quantity)
                for name, quantity in (entry.get("resources") or {}).items()
            }
            yield Allocation(type=kind, minor=entry["minor"], resources=resources)
