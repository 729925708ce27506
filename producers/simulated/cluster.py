"""A Kubernetes-like cluster in memory: API server, kubelet, controllers.

Deterministic, without a clock of its own. The driver applies manifests and steps, moves time with
`advance_to`, calls the API as the sink would (`bind`, `evict`), and reads what watchers see through
`take_events`. Objects are taken as already stored. Nothing here knows Lockstep's core. Used by
`lockstep simulate`, `lockstep demo`, the benchmarks and the fault simulation.
"""

from typing import Any, Final

from producers.simulated.admission import admitted, with_name
from producers.simulated.budgets import budget_in_the_way
from producers.simulated.controllers import Controllers, phase_of
from producers.simulated.faults import Call, Faults, Reply
from producers.simulated.kinds import KINDS, POD, Kind, kind_of, kinds_named
from producers.simulated.shapes import check_shape
from producers.simulated.store import (
    ObjectStore,
    Raw,
    WatchEvent,
    changed,
    timestamp,
    uid_of,
    version_of,
)
from schemas.errors import InvalidMessage

_DEVICE: Final = kinds_named("Device")[0]
_NAMESPACE: Final = kinds_named("Namespace")[0]
_PRIORITY_CLASS: Final = kinds_named("PriorityClass")[0]
_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class Cluster:
    """The cluster. `now_us`: its time, microseconds since 1970; it moves only by `advance_to`."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us
        self.faults = Faults()
        self.store = ObjectStore()
        self._controllers = Controllers(self.store, self._make, self._remove)
        #: By uid: the annotations that came with the Binding.
        self._bound_with: dict[str, dict[str, str]] = {}
        #: By (namespace, name, uid) of a terminating pod: when it vanishes.
        self._ends: dict[tuple[str, str, str], int] = {}

    # Manifests

    def apply(self, document: Raw) -> None:
        """Creates the object, or replaces the one of that name. Raises `InvalidMessage`."""
        kind = kind_of(document)
        check_shape(kind, document)
        self._store_document(kind, with_name(kind, document))
        self._controllers.reconcile()

    def delete(self, kind_name: str, namespace: str, name: str) -> None:
        """Deletes the object and what it owns. Raises `InvalidMessage` when there is none."""
        found = [(kind, self._find(kind, namespace, name)) for kind in kinds_named(kind_name)]
        existing = [(kind, raw) for kind, raw in found if raw is not None]
        if not existing:
            raise InvalidMessage("NotFound", f"{kind_name} {_full(namespace, name)} does not exist")
        for kind, raw in existing:
            self._remove(kind, raw)
        self._controllers.reconcile()

    def set_phase(self, namespace: str, name: str, phase: str) -> None:
        """Sets a pod's phase, as the kubelet would. Raises `InvalidMessage`."""
        if phase not in _PHASES:
            raise InvalidMessage("InvalidField", f"phase {phase!r} is none of {', '.join(_PHASES)}")
        self.store.replace(POD, changed(self._pod(namespace, name), status={"phase": phase}))
        self._controllers.reconcile()

    def set_health(self, node: str, device_type: str, minor: int, healthy: bool) -> None:
        """Sets the health of one device in the Device object of `node`. Raises `InvalidMessage`."""
        raw = self.store.get(_DEVICE, "", node)
        devices = [*(((raw or {}).get("spec") or {}).get("devices") or ())]
        hits = [
            position
            for position, item in enumerate(devices)
            if item.get("type") == device_type and int(item.get("minor", -1)) == minor
        ]
        if raw is None or not hits:
            raise InvalidMessage(
                "NotFound", f"Device {node} has no {device_type} with minor {minor}"
            )
        for position in hits:
            devices[position] = {**devices[position], "health": healthy}
        self.store.replace(_DEVICE, changed(raw, spec={"devices": devices}))

    # The API as the sink uses it

    def bind(
        self, namespace: str, name: str, uid: str, node: str, annotations: dict[str, str]
    ) -> Reply:
        """The binding subresource: 201, 404, or 409 (another uid, bound, terminating, gated)."""
        planned = self.faults.answer(Call("bind", namespace, name, uid))
        if planned is not None:
            return planned
        pod = self.store.get(POD, namespace, name)
        if pod is None:
            return Reply(404, f'pods "{name}" not found')
        spec = pod.get("spec") or {}
        if uid_of(pod) != uid:
            return Reply(409, f"uid of the pod is {uid_of(pod)}")
        if pod["metadata"].get("deletionTimestamp"):
            return Reply(409, "pod is being deleted")
        if spec.get("nodeName"):
            return Reply(409, f"pod is already assigned to node {spec['nodeName']}")
        if spec.get("schedulingGates"):
            return Reply(409, "pod has scheduling gates")
        self._bound_with[uid] = annotations
        own = pod["metadata"].get("annotations") or {}
        bound = changed(
            pod, metadata={"annotations": {**own, **annotations}}, spec={"nodeName": node}
        )
        self.store.replace(POD, self._run(bound))
        self._controllers.reconcile()
        return Reply(201)

    def evict(self, namespace: str, name: str, uid: str) -> Reply:
        """The eviction subresource: 201, 404, 409 (another uid), or 429 (a budget forbids it)."""
        planned = self.faults.answer(Call("evict", namespace, name, uid))
        if planned is not None:
            return planned
        pod = self.store.get(POD, namespace, name)
        if pod is None:
            return Reply(404, f'pods "{name}" not found')
        if uid_of(pod) != uid:
            return Reply(409, f"uid of the pod is {uid_of(pod)}")
        budget = budget_in_the_way(self.store, pod)
        if budget is not None:
            return Reply(429, f"PodDisruptionBudget {budget} allows no disruption now", budget=True)
        if not pod["metadata"].get("deletionTimestamp"):
            self._terminate(pod)
            self._controllers.reconcile()
        return Reply(201)

    def read_pod(self, namespace: str, name: str) -> Raw | None:
        """A pod as the API server shows it, or None."""
        return self.store.get(POD, namespace, name)

    def patch_status(self, resource: str, namespace: str, name: str, uid: str, fields: Raw) -> None:
        """Merges `fields` into the status of a pod, without a watch event: no informer looks at it.

        Of any other object they are the whole status. Another uid: nothing.
        """
        for kind in KINDS:
            raw = self._find(kind, namespace, name) if kind.resource == resource else None
            if raw is None or uid not in ("", uid_of(raw)):
                continue
            if kind is POD:
                self.store.keep_silently(kind, changed(raw, status=fields))
            elif fields != raw.get("status"):
                self.store.replace(kind, {**raw, "status": fields})

    # Time and watches

    @property
    def next_event_us(self) -> int | None:
        """When the cluster next changes by itself (the end of a slow eviction), or None."""
        return min(self._ends.values(), default=None)

    def advance_to(self, us: int) -> None:
        """Moves time on; what ends by then ends, in order of time, then of name."""
        assert us >= self.now_us, "time never goes back"
        due = sorted((end, key) for key, end in self._ends.items() if end <= us)
        for end, (namespace, name, uid) in due:
            self.now_us = max(self.now_us, end)
            pod = self.store.get(POD, namespace, name)
            if pod is not None and uid_of(pod) == uid:
                self._remove(POD, pod)
                self._controllers.reconcile()
        self.now_us = us

    def take_events(self) -> list[WatchEvent]:
        """The watch events since the last call, in order."""
        events, self.store.events = self.store.events, []
        return events

    # Inside

    def _find(self, kind: Kind, namespace: str, name: str) -> Raw | None:
        return self.store.get(kind, (namespace or "default") if kind.namespaced else "", name)

    def _pod(self, namespace: str, name: str) -> Raw:
        pod = self._find(POD, namespace, name)
        if pod is None:
            raise InvalidMessage(
                "NotFound", f"Pod {_full(namespace or 'default', name)} does not exist"
            )
        return pod

    def _make(self, kind: Kind, document: Raw) -> None:
        self._store_document(kind, with_name(kind, document))

    def _store_document(self, kind: Kind, document: Raw) -> None:
        metadata = document["metadata"]
        document = admitted(kind, document, self.store.list(_PRIORITY_CLASS))
        old = self.store.get(kind, metadata.get("namespace", ""), metadata["name"])
        gone = self.store.gone(str(metadata.get("uid")))
        if gone is not None and metadata.get("resourceVersion") is not None:
            picture = _with_identity(document, gone)
            if version_of(picture) <= version_of(gone):
                self.store.old_news(kind, picture)
                return
        if old is not None and metadata.get("uid") not in (None, uid_of(old)):
            self._remove(kind, old)  # a successor of the same name
            old = None
        if old is None:
            self.store.create(kind, self._run(document) if kind is POD else document, self.now_us)
            return
        document = _with_identity(document, old)
        if version_of(document) < version_of(old):
            self.store.old_news(kind, document)
            return
        self.store.replace(kind, self._over(kind, old, document))

    def _over(self, kind: Kind, old: Raw, document: Raw) -> Raw:
        """The document with what a replacement does not take away from the old object."""
        for field in ("ownerReferences", "deletionTimestamp"):
            if field in old["metadata"] and field not in document["metadata"]:
                document = changed(document, metadata={field: old["metadata"][field]})
        if document.get("status") is None and old.get("status") is not None:
            document = {**document, "status": old["status"]}
        if kind is not POD:
            return document
        node = (old.get("spec") or {}).get("nodeName")
        if node and not (document.get("spec") or {}).get("nodeName"):
            document = changed(document, spec={"nodeName": node})
        own = document["metadata"].get("annotations") or {}
        annotations = {**self._bound_with.get(uid_of(old), {}), **own}
        return self._run(changed(document, metadata={"annotations": annotations}))

    def _run(self, pod: Raw) -> Raw:
        """The kubelet: a bound pod that has not run yet runs at once, from now on."""
        spec: dict[str, Any] = pod.get("spec") or {}
        if not spec.get("nodeName") or phase_of(pod) != "Pending":
            return pod
        started = (pod.get("status") or {}).get("startTime") or timestamp(self.now_us)
        return changed(pod, status={"phase": "Running", "startTime": started})

    def _terminate(self, pod: Raw) -> None:
        place = pod["metadata"]["namespace"], pod["metadata"]["name"]
        slow_us = self.faults.slow_us.get(place, 0)
        if not slow_us:
            self._remove(POD, pod)
            return
        self._ends[(*place, uid_of(pod))] = self.now_us + slow_us
        self.store.replace(
            POD, changed(pod, metadata={"deletionTimestamp": timestamp(self.now_us)})
        )

    def _remove(self, kind: Kind, raw: Raw) -> None:
        metadata = raw["metadata"]
        self.store.remove(kind, raw)
        if kind is POD:
            self._ends.pop((metadata["namespace"], metadata["name"], uid_of(raw)), None)
            self._bound_with.pop(uid_of(raw), None)
            return
        for owned_kind in KINDS:
            for owned in [*self.store.owned_by(owned_kind, uid_of(raw))]:
                self._remove(owned_kind, owned)
            if kind is _NAMESPACE:
                for item in self.store.list(owned_kind):
                    if item["metadata"].get("namespace") == metadata["name"]:
                        self._remove(owned_kind, item)


def _with_identity(document: Raw, known: Raw) -> Raw:
    """The document with the identity it does not give taken from what is known of the object."""
    given = document["metadata"]
    identity = {
        "uid": uid_of(known),
        "resourceVersion": str(given.get("resourceVersion") or version_of(known) + 1),
        "creationTimestamp": given.get("creationTimestamp")
        or known["metadata"]["creationTimestamp"],
    }
    return changed(document, metadata=identity)


def _full(namespace: str, name: str) -> str:
    return f"{namespace}/{name}" if namespace else name
