"""The simulated controllers: Deployment, ReplicaSet, StatefulSet and Job make their pods.

They act at once and in a fixed order, through the two calls they are given (`create`, `delete`):
one `reconcile` brings every owner to its wanted count, then every budget's status up to date. Used
by `producers.simulated.cluster` after each change.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from producers.simulated.budgets import reconcile_budgets
from producers.simulated.kinds import POD, REPLICA_SET, Kind, kinds_named
from producers.simulated.store import ObjectStore, Raw, uid_of

_DEPLOYMENT: Final = kinds_named("Deployment")[0]
_STATEFUL_SET: Final = kinds_named("StatefulSet")[0]
_JOB: Final = kinds_named("Job")[0]
OWNERS: Final = (_DEPLOYMENT, REPLICA_SET, _STATEFUL_SET, _JOB)


def phase_of(pod: Raw) -> str:
    """The phase in the status, `Pending` where there is none."""
    return str((pod.get("status") or {}).get("phase") or "Pending")


@dataclass(slots=True)
class Controllers:
    """All controllers over one store. Names of pods count up per owner and are never used twice."""

    store: ObjectStore
    create: Callable[[Kind, Raw], object]
    delete: Callable[[Kind, Raw], object]
    _serials: dict[str, int] = field(default_factory=dict)

    def reconcile(self) -> None:
        """Brings all owners to their wanted counts. Deployments first: they make ReplicaSets.

        Budgets last: they count the pods.
        """
        for deployment in self.store.list(_DEPLOYMENT):
            self._reconcile_deployment(deployment)
        for replica_set in self.store.list(REPLICA_SET):
            self._reconcile_count(REPLICA_SET, replica_set, _replicas(replica_set))
        for stateful_set in self.store.list(_STATEFUL_SET):
            self._reconcile_stateful_set(stateful_set)
        for job in self.store.list(_JOB):
            self._reconcile_job(job)
        reconcile_budgets(self.store)

    def _reconcile_deployment(self, deployment: Raw) -> None:
        template = _template(deployment)
        revision = hashlib.sha256(
            json.dumps(template, sort_keys=True, default=str).encode()
        ).hexdigest()[:8]
        name = f"{deployment['metadata']['name']}-{revision}"
        current = None
        for replica_set in [*self.store.owned_by(REPLICA_SET, uid_of(deployment))]:
            if replica_set["metadata"]["name"] == name:
                current = replica_set
            else:
                self.delete(REPLICA_SET, replica_set)
        if current is not None and _replicas(current) == _replicas(deployment):
            return
        spec = {
            **(deployment.get("spec") or {}),
            "replicas": _replicas(deployment),
            "template": template,
        }
        document = _owned(_DEPLOYMENT, deployment, {"metadata": {"name": name}, "spec": spec})
        self.create(REPLICA_SET, {"apiVersion": "apps/v1", "kind": "ReplicaSet", **document})

    def _reconcile_count(self, kind: Kind, owner: Raw, wanted: int) -> None:
        active = [pod for pod in self.store.owned_by(POD, uid_of(owner)) if _is_active(pod)]
        for _ in range(wanted - len(active)):
            serial = self._serials[uid_of(owner)] = self._serials.get(uid_of(owner), 0) + 1
            self.create(POD, _pod(kind, owner, f"{owner['metadata']['name']}-{serial:05d}"))
        if len(active) > wanted:
            newest_first = active[::-1]
            newest_first.sort(key=lambda pod: bool((pod.get("spec") or {}).get("nodeName")))
            for pod in newest_first[: len(active) - wanted]:
                self.delete(POD, pod)

    def _reconcile_stateful_set(self, owner: Raw) -> None:
        own = {pod["metadata"]["name"]: pod for pod in self.store.owned_by(POD, uid_of(owner))}
        names = [f"{owner['metadata']['name']}-{index}" for index in range(_replicas(owner))]
        for name, pod in own.items():
            if name not in names or phase_of(pod) in ("Succeeded", "Failed"):
                self.delete(POD, pod)
        for name in names:
            if self.store.get(POD, owner["metadata"]["namespace"], name) is None:
                self.create(POD, _pod(_STATEFUL_SET, owner, name))

    def _reconcile_job(self, owner: Raw) -> None:
        spec = owner.get("spec") or {}
        phases = [phase_of(pod) for pod in self.store.owned_by(POD, uid_of(owner))]
        parallelism = _count(spec, "parallelism", 1)
        completions = _count(spec, "completions", parallelism)
        if phases.count("Failed") > _count(spec, "backoffLimit", 6):
            return
        missing = completions - phases.count("Succeeded")
        self._reconcile_count(_JOB, owner, min(parallelism, max(missing, 0)))


def _replicas(owner: Raw) -> int:
    return _count(owner.get("spec") or {}, "replicas", 1)


def _count(spec: Raw, field: str, default: int) -> int:
    value = spec.get(field)
    return default if value is None else int(value)


def _template(owner: Raw) -> Raw:
    return dict((owner.get("spec") or {}).get("template") or {})


def _is_active(pod: Raw) -> bool:
    terminal = phase_of(pod) in ("Succeeded", "Failed")
    return not terminal and not pod["metadata"].get("deletionTimestamp")


def _pod(kind: Kind, owner: Raw, name: str) -> Raw:
    template = _template(owner)
    metadata: dict[str, Any] = {**(template.get("metadata") or {}), "name": name}
    document = _owned(kind, owner, {"metadata": metadata, "spec": template.get("spec") or {}})
    return {"apiVersion": "v1", "kind": "Pod", **document}


def _owned(kind: Kind, owner: Raw, document: Raw) -> Raw:
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": kind.name,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
    }
    place = {"namespace": owner["metadata"]["namespace"], "ownerReferences": [reference]}
    return {**document, "metadata": {**document["metadata"], **place}}
