"""Projector: the read models `pods`, `nodes`, `gangs`, `quotas` and `gpus`, as rows that follow from decisions.

Sans-I/O: fed accepted decisions, it applies them to a State of its own and says which table rows changed. Whoever
keeps the tables (`streams.tables`) writes them; they are a cache, rebuilt by folding again. Decides nothing.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from schemas.codec import encode
from state.machine import apply
from state.report import claims_of, gang_row, gpu_rows, node_row, pod_row, quota_row
from streams.translate import Decision, State, to_decision

TABLES: Final = ("pods", "nodes", "gangs", "quotas", "gpus")

#: (table, key, canonical bytes of the row or None when it is gone).
RowChange = tuple[str, str, bytes | None]


class Projector:
    """Keys: pods by uid, nodes by name, gangs by `namespace/name`, quotas by name, GPUs by `node/minor`."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._gpus = {name: list(_gpus_by_key(state, name)) for name in state.nodes}

    def on_decision(self, data: bytes) -> list[RowChange]:
        """Applies the next accepted decision; the rows that it changed, by table and key."""
        decision = to_decision(data)
        touched = _Touched(self.state)
        touched.note(decision)
        apply(self.state, decision)
        touched.note(decision)
        return sorted(self._rows(touched), key=lambda change: change[:2])

    def all_rows(self) -> list[RowChange]:
        """Every row of every table, sorted: what a refold of the tables must equal."""
        return sorted(self.rows(), key=lambda change: change[:2])

    def rows(self) -> Iterator[RowChange]:
        """Every row of every table, one after the other; no decision may come between."""
        state = self.state
        touched = _Touched(state)
        touched.pods.update(dict.fromkeys(state.pods))
        touched.nodes.update(dict.fromkeys(state.nodes))
        touched.gangs.update(dict.fromkeys(state.gangs))
        touched.quotas.update({quota.name: None for quota in state.quotas.values()})
        yield from self._rows(touched)

    def _rows(self, touched: "_Touched") -> Iterator[RowChange]:
        state = self.state
        for uid in touched.pods:
            pod = state.pods.get(uid)
            yield "pods", uid, None if pod is None else encode(pod_row(state, pod))
        for key in touched.gangs:
            yield "gangs", key, encode(gang_row(state, key)) if key in state.gangs else None
        for name in touched.nodes:
            yield "nodes", name, encode(node_row(state, name)) if name in state.nodes else None
            yield from self._gpu_rows(name)
        for name in touched.quotas:
            named = [quota for quota in state.quotas.values() if quota.name == name]
            quota = min(named, key=lambda row: row.uid, default=None)
            yield "quotas", name, None if quota is None else encode(quota_row(state, quota))

    def _gpu_rows(self, node: str) -> Iterator[RowChange]:
        rows = _gpus_by_key(self.state, node)
        for key in self._gpus.get(node, ()):
            if key not in rows:
                yield "gpus", key, None
        for key, row in rows.items():
            yield "gpus", key, encode(row)
        self._gpus[node] = list(rows)


def _gpus_by_key(state: State, node: str) -> dict[str, dict[str, Any]]:
    rows = gpu_rows(state, node) if node in state.nodes else []
    return {f"{node}/{row['minor']}": row for row in rows}


class _Touched:
    """What a decision touches, looked at before and after it is applied (a pod leaves one node for another)."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.pods: dict[str, None] = {}
        self.nodes: dict[str, None] = {}
        self.gangs: dict[str, None] = {}
        self.quotas: dict[str, None] = {}

    def note(self, decision: Decision) -> None:
        for change in decision.changes:
            note = _NOTES.get(change.table)
            if note is not None:
                note(self, change.key)

    def _note_pods(self, uid: str) -> None:
        self.pods[uid] = None
        state = self._state
        pod = state.pods.get(uid)
        if pod is None:
            return
        for node in (pod.node, pod.assumed):
            if node:
                self.nodes[node] = None
        key = state.gang_key(pod)
        if key:
            self.gangs[key] = None
        claim = state.claim_of(pod)
        for quota in state.quotas.values():
            if claim in claims_of(quota):
                self.quotas[quota.name] = None

    def _note_nodes(self, name: str) -> None:
        self.nodes[name] = None

    def _note_devices(self, key: str) -> None:
        self.nodes[key.rpartition("/")[0]] = None

    def _note_gangs(self, key: str) -> None:
        self.gangs[key] = None

    def _note_podgroups(self, uid: str) -> None:
        group: Any = self._state.podgroups.get(uid)
        if group is not None:
            self.gangs[f"{group.namespace}/{group.name}"] = None

    def _note_policy(self, _: str) -> None:
        """It says which objects a gang's row reads."""
        self.gangs.update(dict.fromkeys(self._state.gangs))

    def _note_workloads(self, uid: str) -> None:
        workload = self._state.workloads.get(uid)
        if workload is not None:
            name = f"{workload.namespace}/{workload.name}"
            self.gangs.update(self._state.replicas.of.get(name, {}))

    def _note_quotas(self, uid: str) -> None:
        quota: Any = self._state.quotas.get(uid)
        if quota is not None:
            self.quotas[quota.name] = None


#: Table of State -> what a change of one of its rows touches.
_NOTES: Final[dict[str, Callable[[_Touched, str], None]]] = {
    "pods": _Touched._note_pods,
    "nodes": _Touched._note_nodes,
    "devices": _Touched._note_devices,
    "gangs": _Touched._note_gangs,
    "podgroups": _Touched._note_podgroups,
    "policy": _Touched._note_policy,
    "quotas": _Touched._note_quotas,
    "workloads": _Touched._note_workloads,
}
