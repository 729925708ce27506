"""The object store of the simulated API server: identity, versions, and the order of watch events.

Objects are plain dicts and are never changed in place: a change stores a new dict, so that watch
events and lists may be kept by whoever took them. Made identities come from a counter, never from a
clock or a random source. Used by `producers.simulated.cluster` and its controllers only.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

from producers.simulated.kinds import Kind

Raw = dict[str, Any]

_UID_FORMAT: Final = "10c57e90-0000-4000-8000-{:012d}"


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: what happened to `raw` of `kind`."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    kind: Kind
    raw: Raw


def version_of(raw: Raw) -> int:
    """The resourceVersion as a number."""
    return int(raw["metadata"]["resourceVersion"])


def uid_of(raw: Raw) -> str:
    """The uid of a stored object."""
    return str(raw["metadata"]["uid"])


def changed(raw: Raw, **parts: Raw) -> Raw:
    """A copy of `raw` with the named parts (`metadata`, `spec`, `status`) merged over its own."""
    return {**raw, **{name: {**(raw.get(name) or {}), **part} for name, part in parts.items()}}


class ObjectStore:
    """Objects by kind and (namespace, name), in the order of their creation.

    A new object gets the highest version so far plus one, a changed one its own version plus one:
    whoever gives versions of his own keeps control over what is older news of the same object.
    """

    def __init__(self) -> None:
        self._objects: dict[Kind, dict[tuple[str, str], Raw]] = {}
        self._created = 0
        self._gone: dict[str, Raw] = {}
        self.highest_version = 0
        self.events: list[WatchEvent] = []

    def get(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        """The stored object, or None."""
        return self._objects.get(kind, {}).get((namespace, name))

    def list(self, kind: Kind) -> list[Raw]:
        """All objects of a kind, oldest first."""
        return [*self._objects.get(kind, {}).values()]

    def owned_by(self, kind: Kind, owner_uid: str) -> Iterator[Raw]:
        """The objects of a kind whose controller has that uid, oldest first."""
        for raw in self.list(kind):
            references = raw["metadata"].get("ownerReferences") or ()
            if any(item.get("controller") and item.get("uid") == owner_uid for item in references):
                yield raw

    def create(self, kind: Kind, document: Raw, now_us: int) -> Raw:
        """Stores a new object; identity it does not give is made from the order of creations."""
        self._created += 1
        given = document["metadata"]
        made = {
            "uid": _UID_FORMAT.format(self._created),
            "resourceVersion": str(self.highest_version + 1),
            "creationTimestamp": timestamp(now_us + self._created),
        }
        identity = {key: str(given.get(key) or made[key]) for key in made}
        return self._keep("ADDED", kind, changed(document, metadata=identity))

    def replace(self, kind: Kind, raw: Raw) -> Raw:
        """Stores `raw` over the object of its name, under its own version if that is higher."""
        old = self._objects[kind][_key(raw)]
        version = max(version_of(raw), version_of(old) + 1)
        return self._keep(
            "MODIFIED", kind, changed(raw, metadata={"resourceVersion": str(version)})
        )

    def remove(self, kind: Kind, raw: Raw) -> None:
        """Forgets the object; its last version is one above its own."""
        old = self._objects[kind].pop(_key(raw))
        version = version_of(old) + 1
        self.highest_version = max(self.highest_version, version)
        gone = changed(old, metadata={"resourceVersion": str(version)})
        self._gone[uid_of(old)] = gone
        self.events.append(WatchEvent("DELETED", kind, gone))

    def old_news(self, kind: Kind, raw: Raw) -> None:
        """A late picture of an object: the watch shows it, the store keeps what it has."""
        self.events.append(WatchEvent("MODIFIED", kind, raw))

    def gone(self, uid: str) -> Raw | None:
        """The last picture of an object that was removed, or None."""
        return self._gone.get(uid)

    def keep_silently(self, kind: Kind, raw: Raw) -> None:
        """Stores a change of status that no informer looks at: same version, no watch event."""
        self._objects[kind][_key(raw)] = raw

    def _keep(self, happened: Literal["ADDED", "MODIFIED"], kind: Kind, raw: Raw) -> Raw:
        self._objects.setdefault(kind, {})[_key(raw)] = raw
        self.highest_version = max(self.highest_version, version_of(raw))
        self.events.append(WatchEvent(happened, kind, raw))
        return raw


def _key(raw: Raw) -> tuple[str, str]:
    return str(raw["metadata"].get("namespace") or ""), str(raw["metadata"]["name"])


def timestamp(us: int) -> str:
    """RFC 3339 with microseconds."""
    moment = datetime.fromtimestamp(us // 1_000_000, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{us % 1_000_000:06d}Z"
