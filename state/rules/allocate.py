"""Which cards a pod gets on a node, what the Binding says of it, and what an open one holds."""

import msgspec

from state.model.podclass import GPU_CORE, GPU_MEMORY, GPU_RATIO
from state.model.seen import Device, DeviceHeld

DEVICE_ALLOCATED = "scheduling.koordinator.sh/device-allocated"


def whole_cards(free: list[Device], count: int) -> tuple[DeviceHeld, ...]:
    """The first `count` of the node's free cards, each whole. `free` is sorted by minor and long enough."""
    assert len(free) >= count
    return tuple(
        DeviceHeld(
            minor=card.minor,
            resources={
                GPU_CORE: card.resources.get(GPU_CORE, 100),
                GPU_MEMORY: card.resources.get(GPU_MEMORY, 0),
                GPU_RATIO: card.resources.get(GPU_RATIO, 100),
            },
            type=card.type,
        )
        for card in free[:count]
    )


def allocation_annotation(allocations: tuple[DeviceHeld, ...]) -> dict[str, str]:
    """The device-allocated annotation of a Binding (semantics 3.3), amounts as quantities in base units."""
    if not allocations:
        return {}
    kinds: dict[str, list[dict[str, object]]] = {}
    for held in allocations:
        amounts = {name: str(amount) for name, amount in held.resources.items()}
        kinds.setdefault(held.type, []).append({"minor": held.minor, "resources": amounts})
    return {DEVICE_ALLOCATED: msgspec.json.encode(kinds).decode()}


def annotated_allocations(annotations: dict[str, str]) -> tuple[DeviceHeld, ...]:
    """What `allocation_annotation` was made of."""
    kinds = msgspec.json.decode(annotations.get(DEVICE_ALLOCATED, "{}"))
    return tuple(
        DeviceHeld(
            minor=entry["minor"],
            resources={name: int(amount) for name, amount in entry["resources"].items()},
            type=kind,
        )
        for kind, entries in kinds.items()
        for entry in entries
    )
