"""The informers of the simulated cluster: watch events and lists -> intake messages.

One object stands for the informers of all resources. Like them it publishes only when the
projection of an object changed, packs bursts into intake messages, and can lose its watch (`gap`),
list anew (`relist`) or repeat itself (`duplicate`). Nothing is published before `take`. Used by
`lockstep simulate`, `demo` and the fault simulation.
"""

from typing import Any, Final

from producers.observe import OBSERVE, ObjectObserved
from producers.publisher import pack
from producers.simulated.cluster import Cluster
from producers.simulated.kinds import KINDS, Kind
from producers.simulated.store import WatchEvent, uid_of, version_of
from schemas.observations import ObjectGone, Observed, StillThere, SyncFinished, SyncStarted
from schemas.topics import INTAKE, RESOURCES

#: Topic and bytes of one intake message.
Message = tuple[str, bytes]

OBSERVED_KINDS: Final = tuple(kind for kind in KINDS if kind.resource in RESOURCES)
_PRODUCER: Final = "informer"


class SimulatedInformers:
    """All informers of one cluster. Their memory is empty at first: `relist` every kind."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._published: dict[Kind, dict[str, Any]] = {kind: {} for kind in OBSERVED_KINDS}
        self._lost: dict[Kind, bool] = {}
        self._pending: list[tuple[str, Observed]] = []
        self._lists = 0
        self._times = 1

    def see(self) -> None:
        """Takes the cluster's watch events. Raises `InvalidMessage` that names object and field."""
        for event in self._cluster.take_events():
            if event.kind in self._published and not self._lost.get(event.kind):
                self._see(event)

    def gap(self, kind: Kind) -> None:
        """The watch of a kind is lost: what happens from now on is not seen until `relist`."""
        self.see()
        self._lost[kind] = True

    def is_lost(self, kind: Kind) -> bool:
        """Whether the watch of a kind is lost now."""
        return self._lost.get(kind, False)

    def relist(self, kind: Kind, *, cold: bool = False, full: bool = False) -> None:
        """Lists a kind anew; the watch works again.

        `cold`: without memory of the last list. `full`: with memory, but every object is published
        whole, because somebody misses some.
        """
        self.see()
        if kind not in self._published:
            return  # nothing watches this kind
        memory = {} if cold or full else self._published[kind]
        self._lost.pop(kind, None)
        self._lists += 1
        epoch = f"list-{self._lists}"
        list_rv = self._cluster.store.highest_version
        self._publish(
            kind,
            SyncStarted(
                resource=kind.resource,
                producer=_PRODUCER,
                epoch=epoch,
                list_rv=list_rv,
                cold=cold,
                whole=full,
            ),
        )
        self._published[kind] = {}
        for raw in self._cluster.store.list(kind):
            seen = OBSERVE[kind.resource](raw, epoch)
            if memory.get(uid_of(raw)) == _projection(seen):
                same = StillThere(
                    resource=kind.resource, epoch=epoch, uid=uid_of(raw), rv=version_of(raw)
                )
                self._publish(kind, same)
            else:
                self._publish(kind, seen)
            self._published[kind][uid_of(raw)] = _projection(seen)
        self._publish(kind, SyncFinished(resource=kind.resource, epoch=epoch, list_rv=list_rv))

    def duplicate(self, times: int) -> None:
        """What is published by the next `take` is published so many times, over and over."""
        self._times = times

    def take(self) -> list[Message]:
        """The messages to publish now, by topic in the order of `schemas.topics.INTAKE`."""
        self.see()
        pending, self._pending = self._pending * self._times, []
        self._times = 1
        messages: list[Message] = []
        for topic in INTAKE:
            observations = [item for where, item in pending if where == topic]
            messages.extend((topic, value) for value in pack(_PRODUCER, observations))
        return messages

    def _see(self, event: WatchEvent) -> None:
        memory = self._published[event.kind]
        uid = uid_of(event.raw)
        if event.type == "DELETED":
            memory.pop(uid, None)
            metadata = event.raw["metadata"]
            gone = ObjectGone(
                resource=event.kind.resource,
                uid=uid,
                rv=version_of(event.raw),
                namespace=metadata.get("namespace") or "",
                name=metadata["name"],
            )
            self._publish(event.kind, gone)
            return
        seen = OBSERVE[event.kind.resource](event.raw, None)
        if memory.get(uid) != _projection(seen):
            memory[uid] = _projection(seen)
            self._publish(event.kind, seen)

    def _publish(self, kind: Kind, observation: Observed) -> None:
        self._pending.append((RESOURCES[kind.resource], observation))


def _projection(seen: ObjectObserved) -> dict[str, Any]:
    """What the core would see of it: all but the version and the list that it was part of."""
    return seen.model_dump(exclude={"rv", "epoch"})
