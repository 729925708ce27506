"""Namespace -> `NamespaceObserved`."""

from typing import Any

from producers.observe.fields import mapping, observing, strings, text, version
from schemas.observations import NamespaceObserved


def _minimal(seen: NamespaceObserved, _why: str) -> NamespaceObserved:
    return seen.model_copy(update={"labels": {}})


@observing("namespace", _minimal)
def observe_namespace(raw: dict[str, Any], epoch: str | None = None) -> NamespaceObserved:
    """The observation of a namespace as the API server's JSON shows it. Raises `InvalidMessage`."""
    metadata = mapping(raw.get("metadata"), "metadata")
    return NamespaceObserved(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        name=text(metadata.get("name"), "metadata.name"),
        labels=strings(metadata.get("labels"), "metadata.labels"),
        epoch=epoch,
    )
