"""Device object -> `DeviceObserved` (source `object`): the devices of the node of that name."""

from typing import Any

from producers.observe.fields import (
    capacity,
    flag,
    mapping,
    natural,
    observing,
    sequence,
    strings,
    text,
    version,
)
from schemas.errors import InvalidMessage
from schemas.observations import DeviceEntry, DeviceObserved


def _minimal(seen: DeviceObserved, _why: str) -> DeviceObserved:
    bare = tuple(
        item.model_copy(update={"labels": {}, "topology": {}, "id": ""}) for item in seen.devices
    )
    return seen.model_copy(update={"devices": bare})


@observing("Device", _minimal)
def observe_device(raw: dict[str, Any], epoch: str | None = None) -> DeviceObserved:
    """The observation of a Device as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    spec = mapping(raw.get("spec"), "spec")
    entries = [_entry(item) for item in sequence(spec.get("devices"), "spec.devices")]
    return DeviceObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        name=text(metadata.get("name"), "metadata.name"),
        devices=tuple(sorted(entries, key=lambda item: (item.type, item.minor))),
        epoch=epoch,
    )


def _entry(item: dict[str, Any]) -> DeviceEntry:
    path = "spec.devices"
    return DeviceEntry(
        type=text(item.get("type"), f"{path}.type"),
        minor=natural(item.get("minor"), f"{path}.minor"),
        id=text(item.get("id"), f"{path}.id", default=""),
        healthy=flag(item.get("health"), f"{path}.health"),
        resources=capacity(item.get("resources"), f"{path}.resources"),
        labels=strings(item.get("labels"), f"{path}.labels"),
        topology=_topology(item),
    )


def _topology(item: dict[str, Any]) -> dict[str, str | int]:
    found = mapping(item.get("topology"), "spec.devices.topology")
    for name, value in found.items():
        if not isinstance(value, str | int) or isinstance(value, bool):
            raise InvalidMessage("InvalidField", f"field spec.devices.topology.{name}: {value!r}")
    return found
