"""State: all the core knows at a sequence. Rows by table, and what follows from them.

`put` is the one primitive that changes a row and everything derived from it; only `Trial` (inside `decide`) and
`machine.apply` call it. Derived things never reach a snapshot: two States with equal rows are equal.
"""

from collections.abc import Iterator, Mapping
from typing import Any, cast

from msgspec import Raw
from msgspec.structs import replace

from state.model.columns import UNCOUNTED_CARDS, Columns
from state.model.crews import Crews
from state.model.diagnoses import FOR_ROOM
from state.model.indexes import mark, mark_under
from state.model.limits import CLASSES_MAX, LABEL_SETS_A_POD, LABEL_SETS_MIN
from state.model.order import OrderKey, order_key
from state.model.parked import Parked
from state.model.partners import Partners
from state.model.podclass import (
    GPU_CORE,
    Membership,
    PodClass,
    parse_class,
    parse_labels,
    parse_membership,
)
from state.model.policy import PolicyInForce, needed_resources, to_policy
from state.model.rounds import Rounds
from state.model.rows import (
    TABLES,
    Budget,
    CycleRow,
    Devices,
    Gang,
    Head,
    Namespace,
    Node,
    OpenCommand,
    OpenList,
    Pod,
    PodGroup,
    PolicyRow,
    Quota,
    Row,
    Sync,
    Workload,
    same_words,
)
from state.model.scores import ClassScores
from state.model.seen import Device
from state.model.selectors import selects
from state.model.shapes import Shapes
from state.model.workloads import Replicas

FINISHED = ("Succeeded", "Failed")
EMPTY_MAP: Mapping[str, object] = {}


class State:
    """Rows (`tables`), position in the log, and derived indexes. Read freely; write only through `put`."""

    def __init__(self) -> None:
        self.sequence = 0
        self.record_hash = "0" * 64
        self.digest = "0" * 64
        self.timestamp_us = 0
        self.tables: dict[str, dict[str, Any]] = {name: {} for name in TABLES}
        self.pods: dict[str, Pod] = self.tables["pods"]
        self.nodes: dict[str, Node] = self.tables["nodes"]
        self.gangs: dict[str, Gang] = self.tables["gangs"]
        self.podgroups: dict[str, PodGroup] = self.tables["podgroups"]
        self.workloads: dict[str, Workload] = self.tables["workloads"]
        self.quotas: dict[str, Quota] = self.tables["quotas"]
        self.budgets: dict[str, Budget] = self.tables["budgets"]
        self.namespaces: dict[str, Namespace] = self.tables["namespaces"]
        self.commands: dict[str, OpenCommand] = self.tables["commands"]
        self.syncs: dict[str, Sync] = self.tables["syncs"]
        self.lists: dict[str, OpenList] = self.tables["lists"]
        self.policy: PolicyInForce | None = None
        self.columns = Columns()
        # derived: uids are dict keys, so that order is insertion order, though nothing may depend on it
        self.pods_on: dict[str, dict[str, None]] = {}
        self.pods_named: dict[str, dict[str, None]] = {}
        self.crews = Crews(self.pods)
        self.members = self.crews.members
        self.gang_of: dict[str, str] = {}  # pod uid -> its gang, if it has one
        self.waiting: dict[str, None] = {}  # ours, no node, no open command: candidates of a cycle
        self.active: dict[str, None] = {}  # waiting and not parked
        self.backing_off: dict[str, None] = {}
        self.holding: dict[str, None] = {}  # assumed for the rest of their gang, no bind yet
        self.resting: dict[str, None] = {}  # gangs whose wait time ran out
        self.nominated: dict[str, None] = {}  # pods that wait for victims to leave their node
        self.kept: dict[str, None] = {}  # nodes that are kept for the head of the queue
        self.placed_by_priority: dict[int, int] = {}  # priority -> pods bound or assumed
        self.evicted: dict[str, dict[str, None]] = {}  # pod uid -> its evictions under way
        self.parked = Parked()
        self.shapes = Shapes()
        #: Gang, or empty -> pods told that they lack room.
        self.for_room: dict[str, dict[str, None]] = {}
        self._for_room_of: dict[str, str] = {}
        self._orders: dict[str, OrderKey] = {}  # a cache, see `order_of`
        self.claims: dict[str, dict[str, None]] = {}  # quota claim -> pod uids (see `claim_of`)
        self.groups_named: dict[str, dict[str, None]] = {}  # "ns/name" -> podgroup uids
        self.replicas = Replicas(self.workloads)
        self.budgets_in: dict[str, dict[str, None]] = {}  # namespace -> budget uids
        self.partners = Partners(self.gangs)
        self.rounds = Rounds()
        self.commands_of: dict[str, dict[str, None]] = {}  # pod uid -> its open commands
        self.card_users: dict[str, dict[tuple[str, int], dict[str, None]]] = {}
        self.classes: dict[bytes, ClassScores] = {}
        self.memberships: dict[tuple[bytes, bytes, str], Membership] = {}
        self.interned: dict[bytes, Raw] = {}

    # -- reading ---------------------------------------------------------------------------------------------

    def class_of(self, pod: Pod) -> PodClass:
        """The pod's class."""
        return self.scores_of(pod).podclass

    def scores_of(self, pod: Pod) -> ClassScores:
        """The scores shared by all pods of this pod's class (a cache)."""
        key = bytes(pod.spec)
        found = self.classes.get(key)
        if found is None:
            if len(self.classes) >= CLASSES_MAX:
                del self.classes[next(iter(self.classes))]
            found = self.classes[key] = ClassScores(parse_class(key), self.columns)
        return found

    def membership(self, pod: Pod) -> Membership:
        """Gang and quota that the pod names (a cache)."""
        key = (bytes(pod.labels), bytes(pod.annotations), pod.scheduling_group)
        found = self.memberships.get(key)
        if found is None:
            if len(self.memberships) >= self._label_sets_max():
                self.memberships.clear()
            found = self.memberships[key] = parse_membership(*key)
        return found

    def gang_key(self, pod: Pod) -> str:
        """`ns/name` of the pod's gang, or empty."""
        name = self.membership(pod).gang
        return f"{pod.namespace}/{name}" if name else ""

    def order_of(self, pod: Pod) -> OrderKey:
        """The place of the pod in the queue, were it alone (a cache)."""
        found = self._orders.get(pod.uid)
        if found is None:
            rank = self.class_of(pod).priority, self.membership(pod).sub_priority
            name = f"{pod.namespace}/{pod.name}"
            found = self._orders[pod.uid] = order_key(rank, pod.created_us, name, pod.uid)
        return found

    def claim_of(self, pod: Pod) -> str:
        """What says which quota a pod is charged to: the quota it names, else `/` and its namespace."""
        return self.membership(pod).quota or f"/{pod.namespace}"

    def budgets_of(self, pod: Pod) -> list[Budget]:
        """The PodDisruptionBudgets that cover the pod, by name."""
        uids = self.budgets_in.get(pod.namespace)
        if not uids:
            return []
        labels = parse_labels(bytes(pod.labels))
        covering = [
            budget for uid in uids if selects((budget := self.budgets[uid]).selector, labels)
        ]
        return sorted(covering, key=lambda budget: (budget.name, budget.uid))

    def intern(self, raw: Raw) -> Raw:
        """The one copy of equal bytes (a view into a record would keep the whole record in memory)."""
        key = bytes(raw)
        found = self.interned.get(key)
        if found is None:
            if len(self.interned) >= self._label_sets_max():
                self.interned.clear()
            found = self.interned[key] = Raw(key)
        return found

    def _label_sets_max(self) -> int:
        return LABEL_SETS_MIN + LABEL_SETS_A_POD * len(self.pods)

    def intern_pod(self, pod: Pod) -> Pod:
        """`pod` with the one copy of each of its raw parts."""
        return replace(
            pod,
            annotations=self.intern(pod.annotations),
            labels=self.intern(pod.labels),
            spec=self.intern(pod.spec),
        )

    def devices_of(self, node_name: str) -> Devices | None:
        """The devices of a node: the agent's report, else the Device object's."""
        table = self.tables["devices"]
        return cast(
            "Devices | None", table.get(f"{node_name}/agent") or table.get(f"{node_name}/object")
        )

    def synced(self) -> bool:
        """Every needed resource has been listed and is not in doubt, and no open list is cold or a reset."""
        syncs = [self.syncs.get(name, _UNSYNCED) for name in needed_resources(self.policy)]
        return all(sync.synced and not sync.doubted for sync in syncs) and not any(
            entry.cold or entry.reset for entry in self.lists.values()
        )

    def open_command_of(self, uid: str) -> str:
        """Id of the pod's open command, or empty. There is at most one."""
        known = self.commands_of.get(uid)
        return min(known) if known else ""

    def cycle_row(self) -> CycleRow:
        """What the last cycle left over."""
        return cast(CycleRow, self.tables["cycle"].get("cycle", _NOTHING_LEFT))

    def wake(self) -> bool:
        """Parked pods must be tried in the next cycle."""
        return self.cycle_row().wake

    def head(self) -> Head | None:
        """The unit at the head of the queue, if it is watched."""
        return cast("Head | None", self.tables["head"].get("head"))

    def is_ours(self, pod: Pod) -> bool:
        """The pod's schedulerName is in the policy."""
        return (
            self.policy is not None
            and self.class_of(pod).spec.scheduler_name in self.policy.schedulerNames
        )

    def free_ord(self) -> int:
        """The lowest node ordinal that nobody has."""
        return self.columns.free_ord()

    def rows(self) -> Iterator[tuple[str, str, Row]]:
        """Every row, by table and key, sorted."""
        for table in TABLES:
            rows = self.tables[table]
            for key in sorted(rows):
                yield table, key, rows[key]

    # -- the one primitive -----------------------------------------------------------------------------------

    def put(self, table: str, key: str, row: Row | None) -> Row | None:
        """Sets or removes (None) one row, keeps all derived things true, returns the row that was there."""
        rows = self.tables[table]
        old: Any = rows.get(key)
        new: Any = row
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
        if table == "pods":
            self._pod_changed(key, old, new)
        elif table == "nodes":
            self._node_changed(old, new)
        elif table == "devices":
            self._refresh_node(key.rpartition("/")[0])
        elif table == "gangs":
            self._gang_changed(key, old, new)
        elif table == "head":
            self._head_changed(new)
        elif table == "preempted":
            self.rounds.changed(key, old, new)
        elif table == "policy":
            self._policy_changed(new)
        else:
            self._index(table, key, new or old, row is not None)
        found: Row | None = old
        return found

    def _index(self, table: str, key: str, row: Any, there: bool) -> None:
        """The row came, changed, or went (not `there`)."""
        if table == "podgroups":
            mark_under(self.groups_named, f"{row.namespace}/{row.name}", key, there)
            self._forget_shape(f"{row.namespace}/{row.name}")
        elif table == "workloads":
            for gang in self.replicas.declared(key, row, there):
                self._forget_shape(gang)
        elif table == "budgets":
            mark_under(self.budgets_in, row.namespace, key, there)
        elif table in ("evictions", "commands"):
            index = self.evicted if table == "evictions" else self.commands_of
            mark_under(index, row.uid, key, there)

    def _policy_changed(self, row: PolicyRow | None) -> None:
        self.policy = None if row is None else to_policy(row.spec)
        for gang in list(self.shapes.of):
            self._forget_shape(gang)
        for uid, pod in self.pods.items():
            self._index_waiting(uid, pod)

    def _head_changed(self, row: Head | None) -> None:
        """Masks must look anew at the nodes that are kept now, or were."""
        before, self.kept = self.kept, dict.fromkeys(row.nodes if row is not None else ())
        for name in {**before, **self.kept}:
            if (name in before) != (name in self.kept) and name in self.nodes:
                self.columns.respecify(self.nodes[name].ord)

    def _pod_changed(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (old.held_until_us or old.nominated):
            self.holding.pop(uid, None)
            self.nominated.pop(uid, None)
        if new is not None and new.held_until_us:
            self.holding[uid] = None
        if new is not None and new.nominated:
            self.nominated[uid] = None
        old_place, new_place = place_of(old), place_of(new)
        if old is None or new is None or old_place != new_place or not same_charge(old, new):
            if old is not None and old_place:
                self._charge(old_place, old, -1)
            if new is not None and new_place:
                self._charge(new_place, new, +1)
        renamed = old is None or new is None or not same_words(old, new)
        gang = self.gang_of.get(uid, "")
        if renamed:
            self._rename(uid, old, new)
        if old is not None and (
            renamed
            or new is None
            or new.node
            or old.spec != new.spec
            or old.created_us != new.created_us
        ):
            self._orders.pop(uid, None)
        if gang:
            self._forget_shape(gang)
            self.crews.changed(gang, old, None if renamed else new)
        if renamed and (gang := self.gang_of.get(uid, "")):
            self._forget_shape(gang)
            self.crews.changed(gang, None, new)
        self._index_waiting(uid, new)

    def _rename(self, uid: str, old: Pod | None, new: Pod | None) -> None:
        """The pod came, went, or belongs somewhere else."""
        if old is not None:
            mark_under(self.claims, self.claim_of(old), uid, False)
            self.gang_of.pop(uid, None)
        if new is not None:
            mark_under(self.claims, self.claim_of(new), uid, True)
            if gang := self.gang_key(new):
                self.gang_of[uid] = gang
        named = cast(Pod, new or old)
        mark_under(self.pods_named, f"{named.namespace}/{named.name}", uid, new is not None)

    def _gang_changed(self, key: str, old: Gang | None, new: Gang | None) -> None:
        mark(self.resting, key, new is not None and new.rest_until_us > 0)
        self.replicas.formed(key, new is not None)
        self._forget_shape(key)
        self.partners.changed(key, old, new)

    def _forget_shape(self, gang: str) -> None:
        self.shapes.forget(gang, parked=gang in self.parked.gangs)

    def _index_waiting(self, uid: str, pod: Pod | None) -> None:
        if uid in self.waiting:
            self._unindex_waiting(uid)
        waits = (
            pod is not None
            and not (pod.node or pod.assumed or pod.command or pod.deleted_us)
            and pod.phase not in FINISHED
            and self.is_ours(pod)
        )
        if not waits:
            return
        assert pod is not None
        self.waiting[uid] = None
        if not pod.parked:
            self.active[uid] = None
        if pod.backoff_us > 0:
            self.backing_off[uid] = None
        if pod.diagnosis is not None and pod.diagnosis.code in FOR_ROOM and not pod.nominated:
            gang = self._for_room_of[uid] = self.gang_of.get(uid, "")
            mark_under(self.for_room, gang, uid, True)
        if pod.parked and not (pod.backoff_us or pod.gates):
            self._index_parked(uid, pod)

    def _index_parked(self, uid: str, pod: Pod) -> None:
        podclass = self.class_of(pod)
        if podclass.invalid or podclass.unsupported:
            return
        if self.parked.add(pod, gang := self.gang_of.get(uid, "")):
            self.shapes.unknown[gang] = None

    def _unindex_waiting(self, uid: str) -> None:
        del self.waiting[uid]
        self.active.pop(uid, None)
        self.backing_off.pop(uid, None)
        if gang := self.parked.remove(uid):
            self.shapes.unknown.pop(gang, None)
        for_room_of = self._for_room_of.pop(uid, None)
        if for_room_of is not None:
            mark_under(self.for_room, for_room_of, uid, False)

    def _charge(self, node_name: str, pod: Pod, sign: int) -> None:
        mark_under(self.pods_on, node_name, pod.uid, sign > 0)
        if pod.allocations:
            users = self.card_users.setdefault(node_name, {})
            for held in pod.allocations:
                mark_under(users, (held.type, held.minor), pod.uid, sign > 0)
        podclass = self.class_of(pod)
        if not pod.nominated:
            count = self.placed_by_priority.get(podclass.priority, 0) + sign
            self.placed_by_priority[podclass.priority] = count
        node = self.nodes.get(node_name)
        if node is None:
            return
        columns = self.columns
        for name, amount in podclass.requests:
            axis = columns.axis(name)
            columns.used[axis, node.ord] += sign * amount
        claims = pod.nominated and podclass.cards
        if (pod.allocations or claims) and self.devices_of(node_name) is not None:
            columns.cards_free[node.ord] = self.cards_left(node_name)
        columns.touch(node.ord)

    def _node_changed(self, old: Node | None, new: Node | None) -> None:
        columns = self.columns
        moved = old is not None and (new is None or new.ord != old.ord)
        # Rows are applied in the order of names, so the ordinal may have been given on already.
        if old is not None and moved and columns.names[old.ord] == old.name:
            columns.total[:, old.ord] = 0
            columns.used[:, old.ord] = 0
            columns.cards_free[old.ord] = 0
            columns.release(old.ord)
        if new is not None:
            columns.make_room(new.ord + 1)
            columns.names[new.ord] = new.name
            self._refresh_node(new.name)

    def _refresh_node(self, node_name: str) -> None:
        """Works out a node's columns anew from its row, its pods and its devices."""
        node = self.nodes.get(node_name)
        if node is None:
            return
        columns = self.columns
        columns.total[:, node.ord] = 0
        columns.used[:, node.ord] = 0
        for name, amount in node.allocatable.items():
            axis = columns.axis(name)
            columns.total[axis, node.ord] = amount
        for uid in self.pods_on.get(node_name, ()):
            for name, amount in self.class_of(self.pods[uid]).requests:
                axis = columns.axis(name)
                columns.used[axis, node.ord] += amount
        columns.open[node.ord] = not (node.taints or node.unschedulable)
        counted = self.devices_of(node_name) is not None
        columns.cards_free[node.ord] = self.cards_left(node_name) if counted else UNCOUNTED_CARDS
        columns.respecify(node.ord)

    def cards_left(self, node_name: str) -> int:
        """How many of the node's free GPUs nobody is nominated for; can be negative until victims have left."""
        claimed = 0
        if self.nominated:
            for uid in self.pods_on.get(node_name, ()):
                if self.pods[uid].nominated:
                    claimed += self.class_of(self.pods[uid]).cards
        return len(self.free_cards(node_name)) - claimed

    def outranks_some(self, pod: Pod) -> bool:
        """Whether pods of lower priority have a node."""
        priority = self.class_of(pod).priority
        return any(n and other < priority for other, n in self.placed_by_priority.items())

    def is_leaving(self, pod: Pod) -> bool:
        """Its deletion has begun, or an eviction of it is under way."""
        return bool(pod.deleted_us) or pod.uid in self.evicted

    def free_cards(self, node_name: str, leaving: Mapping[str, object] = EMPTY_MAP) -> list[Device]:
        """The node's whole, healthy GPUs that nobody uses, or only pods that are `leaving`, by minor."""
        report = self.devices_of(node_name)
        if report is None:
            return []
        users = self.card_users.get(node_name, {})
        free = [
            card
            for card in report.devices
            if card.type == "gpu"
            and card.healthy
            and all(uid in leaving for uid in users.get(("gpu", card.minor), ()))
            and card.resources.get(GPU_CORE, 100) >= 100
        ]
        return sorted(free, key=lambda card: card.minor)


_UNSYNCED = Sync()
_NOTHING_LEFT = CycleRow()


def place_of(pod: Pod | None) -> str:
    """The node whose room an unfinished pod holds, or empty: bound (the API server's word), assumed or nominated."""
    if pod is None or pod.phase in FINISHED:
        return ""
    return pod.node or pod.assumed or pod.nominated


def same_charge(old: Pod, new: Pod) -> bool:
    """Both hold the same amounts and the same cards, or both only have them kept."""
    kept = bool(old.nominated) == bool(new.nominated)
    return kept and old.spec == new.spec and old.allocations == new.allocations
