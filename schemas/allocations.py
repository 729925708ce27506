"""The annotation that says which devices a pod holds, read once for all: by the informers, and by the sink.

Anybody may write it on a pod, so it is read with bounds, and what is no allocation is none. Must not raise.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from schemas.errors import InvalidMessage
from schemas.labels import canonical_resource
from schemas.observations import Allocation
from schemas.quantities import AMOUNT_MAX, QUANTITY_MAX, resource_amount

#: What is more than this is no allocation: an observation must have room for it.
CHARS_MAX: Final = 16 * 1024
DEVICES_MAX: Final = 256
TYPE_CHARS_MAX: Final = 63
#: Our own ids of commands have at most two numbers of 64 bits and a dot.
COMMAND_ID_CHARS_MAX: Final = 41


def read_allocations(annotation: str | None) -> tuple[Allocation, ...]:
    """Devices by type and minor, amounts from 0 to `AMOUNT_MAX` under canonical names; a malformed one: none."""
    if not annotation or len(annotation) > CHARS_MAX:
        return ()
    try:
        found = sorted(_read(json.loads(annotation)), key=lambda item: (item.type, item.minor))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, InvalidMessage):
        return ()
    return tuple(found) if len(found) <= DEVICES_MAX else ()


def read_command_id(annotation: str | None) -> str | None:
    """The id of the command that placed a pod; None for what cannot be one of ours."""
    return annotation if annotation and len(annotation) <= COMMAND_ID_CHARS_MAX else None


def _read(by_type: dict[str, Any]) -> Iterator[Allocation]:
    for kind, entries in by_type.items():
        for entry in entries or ():
            minor = entry["minor"]
            if not kind or len(kind) > TYPE_CHARS_MAX or type(minor) is not int:
                raise ValueError(kind)
            if not 0 <= minor <= QUANTITY_MAX:
                raise ValueError(minor)
            yield Allocation(type=kind, minor=minor, resources=_amounts(entry.get("resources")))


def _amounts(quantities: dict[str, Any] | None) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, quantity in (quantities or {}).items():
        known = canonical_resource(name)
        amount = found.get(known, 0) + resource_amount(name, quantity)
        found[known] = min(max(amount, 0), AMOUNT_MAX)
    return dict(sorted(found.items()))
