"""The auditor's account of what was known when, and of every command: may it be given, has it
ended, once.

Folds record and decision of one sequence after the other, by the contract alone (design sections 2
to 4). Must not import `state`. The audit of the cluster asks it what had been folded when.
"""

import json
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

from schemas.labels import GANG_GROUPS, GANG_MIN_AVAILABLE, GANG_NAME
from schemas.topics import RESOURCES
from tests.simulation.audit_chain import ChainAudit
from tests.simulation.audit_room import RoomAudit
from tests.simulation.violation import Violation

Json = dict[str, Any]
KUBERNETES_GROUPS = ("podgroups.scheduling.k8s.io", "workloads.scheduling.k8s.io")
GROUP_LABEL = "pod-group.scheduling.sigs.k8s.io"


@dataclass
class Order:
    """A `BindPod` or `EvictPod` of an accepted decision, and how it ended."""

    body: Json
    sequence: int
    ended_at: int = 0
    outcome: str = ""

    def open_at(self, sequence: int) -> bool:
        """Whether it had been given and had not ended after the decision of `sequence`."""
        return self.sequence <= sequence and not 0 < self.ended_at <= sequence


@dataclass
class Group:
    """A PodGroup by name: its minimum (None: not there), and what is known of its pods."""

    minimum: int | None = None
    uid: str = ""
    version: int = 0
    members: dict[str, None] = field(default_factory=dict)
    ever_bound: bool = False
    partners: tuple[str, ...] = ()


class Gate:
    """Whether every resource has been listed, and no cold list is under way: since it began, no
    list that began later, or is of its version or a later one, has finished.

    `resets`: lists that may show what was known as undone. They began below the highest version known
    of their resource, or after a list that showed less than was known, as after a restore of etcd.
    `finished`: lists that have been folded to their end.
    """

    def __init__(self) -> None:
        self.resets: dict[str, None] = {}  # epochs
        self._highest: dict[str, int] = {}  # resource -> highest version of an object
        self._denied: dict[str, None] = {}  # resources of which a list showed less than was known
        self._listed_rv: dict[str, int] = {}  # resource -> version of its highest finished list
        self._started: dict[str, int] = {}  # epoch -> place
        self._lists: dict[str, tuple[str, int]] = {}  # epoch -> resource, version
        self._cold: dict[str, tuple[int, int]] = {}  # resource -> place, version of its cold list
        self._listed: dict[str, None] = {}  # resources of which some list has finished
        self.finished: dict[str, str] = {}  # epoch -> resource
        self._unread: tuple[str, ...] = ()  # resources that no rule reads by the policy in force

    def fold(self, item: Json) -> None:
        """Takes a sync message in."""
        kind, resource = item["kind"], item.get("resource", "")
        if kind == "PolicyChanged" and "kubernetesWorkloads" in item["spec"].get("gangs", {}):
            reads = item["spec"]["gangs"]["kubernetesWorkloads"]
            self._unread = () if reads else KUBERNETES_GROUPS
        if kind == "SyncStarted" and item["epoch"] not in self._started:
            place = self._started[item["epoch"]] = len(self._started) + 1
            self._lists[item["epoch"]] = resource, item["list_rv"]
            if item["cold"]:
                self._cold[resource] = place, item["list_rv"]
            known = max(self._listed_rv.get(resource, 0), self._highest.get(resource, 0))
            if item["list_rv"] < known or resource in self._denied:
                self.resets[item["epoch"]] = None
            self.note(resource, item["list_rv"])
        elif kind == "SyncFinished" and item["epoch"] in self._started:
            place = self._started[item["epoch"]]
            self._listed[resource] = None
            self.finished[item["epoch"]] = resource
            begun, version = self._cold.get(resource, (0, 0))
            if place >= begun or item["list_rv"] >= version:
                self._cold.pop(resource, None)
            highest = max(self._listed_rv.get(resource, 0), item["list_rv"])
            self._listed_rv[resource] = item["list_rv"] if self._is_reset(item) else highest
            if self._is_reset(item):
                self._highest[resource] = item["list_rv"]
        elif kind == "KindAbsent":
            self._listed[resource] = None
            self._cold.pop(resource, None)

    def note(self, resource: str, rv: int) -> None:
        """An object of the resource was seen at this version."""
        self._highest[resource] = max(self._highest.get(resource, 0), rv)

    def deny(self, resource: str) -> None:
        """A list showed less than was known."""
        self._denied[resource] = None

    def list_of(self, item: Json) -> tuple[str, int]:
        """Resource and version of the list that the item came with; empty and -1: none."""
        return self._lists.get(item.get("epoch") or "", ("", -1))

    def _is_reset(self, item: Json) -> bool:
        return item["epoch"] in self.resets

    def missing(self) -> list[str]:
        """The resources that keep it shut."""
        needed = [name for name in RESOURCES if name not in self._unread]
        return [name for name in needed if name not in self._listed or name in self._cold]


class OrdersAudit:
    """Reads `chain` on. `orders` by command id, `ended` in the order of their ends; `rows` by table, as
    the changes of decisions say.
    """

    def __init__(self, chain: ChainAudit) -> None:
        self.chain = chain
        self.sequence = 0
        self.orders: dict[str, Order] = {}
        self.ended: list[str] = []
        self.groups: dict[str, Group] = {}
        self.rows: dict[str, dict[str, Json]] = {}
        self._versions: dict[str, tuple[list[int], list[int]]] = {}
        self._gone: dict[str, tuple[int, int]] = {}  # uid -> sequence and version of its deletion
        self._reset_at = 0  # sequence at which a reset of pods was last seen
        self._reset_now: dict[str, None] = {}  # uids of which a reset spoke in this record
        self._listed_now: dict[str, None] = {}  # uids of which any list spoke in this record
        self._gone_now: dict[str, int] = {}  # uid -> version at which this record said it is gone
        self._back_now: dict[str, None] = {}  # uids that a list showed in this record after that
        self._group_of: dict[str, str] = {}
        self._open_of: dict[str, str] = {}
        self._bound: dict[str, str] = {}
        self._told: dict[str, None] = {}  # uids that are bound by the word of a result alone
        self._leaving: dict[str, None] = {}  # uids whose eviction a result told
        self._gate = Gate()
        self._room = RoomAudit(self.rows)

    def read(self) -> None:
        """Takes in what was appended since. Raises `Violation`."""
        chain = self.chain
        chain.read()
        while self.sequence < min(len(chain.records), len(chain.decisions)):
            record, decision = chain.records[self.sequence], chain.decisions[self.sequence]
            self.sequence += 1
            ends: dict[str, Json] = {}
            self._reset_now, self._listed_now = {}, {}
            self._gone_now, self._back_now = {}, {}
            for item in record["observations"]:
                self._fold(item, ends)
            self._check_decision(decision, ends)

    def version_known(self, uid: str, sequence: int) -> int:
        """The highest resourceVersion of `uid` that was folded up to `sequence`; -1: none."""
        sequences, versions = self._versions.get(uid, ((), ()))
        place = bisect_right(sequences, sequence)
        return versions[place - 1] if place else -1

    def listed(self, epoch: str) -> str:
        """The resource of that list, once all of it has been folded; empty before."""
        return self._gate.finished.get(epoch, "")

    def gone(self, uid: str) -> bool:
        """Whether the deletion of `uid` has been folded."""
        return uid in self._gone

    # Records

    def _fold(self, item: Json, ends: dict[str, Json]) -> None:
        kind = item["kind"]
        self._gate.fold(item)
        if "uid" in item and item.get("epoch"):
            self._fold_listed(item)
        if "uid" in item and "rv" in item and kind not in ("ObjectGone", "StillThere"):
            self._note_version(item["uid"], item["rv"])
        if kind == "PodObserved":
            self._gate.note("pods", item["rv"])
            self._fold_pod(item)
        elif kind == "PodGroupObserved":
            group = self._group(f"{item['namespace']}/{item['name']}")
            is_news = item["rv"] >= group.version or item.get("epoch") in self._gate.resets
            if item["uid"] not in self._gone and is_news:
                group.version = item["rv"]
                group.minimum, group.uid = item["min_member"], item["uid"]
                group.partners = tuple(json.loads(item["annotations"].get(GANG_GROUPS, "[]")))
        elif kind == "ObjectGone":
            self._gone.setdefault(item["uid"], (self.sequence, item["rv"]))
            self._gone_now[item["uid"]] = item["rv"]
            self._gate.note(item["resource"], item["rv"])
            for group in self.groups.values():
                if group.uid == item["uid"]:
                    group.minimum, group.uid, group.version = None, "", 0
        elif kind == "CommandEnded":
            first = ends.setdefault(item["command_id"], item)
            if first is item:
                self._fold_end(item)

    def _fold_listed(self, item: Json) -> None:
        """What a list names is there, though it was gone; what it shows may be less than was known."""
        uid, (resource, list_rv) = item["uid"], self._gate.list_of(item)
        is_reset = item["epoch"] in self._gate.resets
        self._listed_now[uid] = None
        if is_reset:
            self._reset_now[uid] = None
            if resource == "pods":
                self._reset_at = self.sequence
        if uid in self._gone and (is_reset or list_rv > self._gone[uid][1]):
            del self._gone[uid]
        if uid in self._gone_now and (is_reset or list_rv > self._gone_now[uid]):
            self._back_now[uid] = None
        known = self.version_known(uid, self.sequence)
        lacks_node = uid in (self._bound if item["kind"] == "PodObserved" else self._told)
        stays = uid in self._leaving and not item.get("deleted_us")
        if item["rv"] < known <= list_rv or (lacks_node and not item.get("node")) or stays:
            self._gate.deny(resource)
        if is_reset and item["kind"] != "StillThere" and item["rv"] < known:
            self._note_version(uid, item["rv"], lower=True)

    def _fold_pod(self, item: Json) -> None:
        uid, words = item["uid"], item.get("annotations", {})
        name = item.get("labels", {}).get(GROUP_LABEL)
        if name or GANG_NAME in words:
            key = self._group_of[uid] = f"{item['namespace']}/{name or words[GANG_NAME]}"
            self._group(key).members[uid] = None
            if not name:
                self._group(key).minimum = int(words[GANG_MIN_AVAILABLE])
        if item.get("node"):
            self._note_bound(uid, item["node"])
            self._told.pop(uid, None)

    def _fold_end(self, item: Json) -> None:
        found, order = item.get("found"), self.orders.get(item["command_id"])
        if order is None or order.ended_at:
            return
        if item["outcome"] == "Stale" and (found is None or found["uid"] != order.body["uid"]):
            uid = order.body["uid"]
            self._gone_now[uid] = self.version_known(uid, self.sequence)
        # Of a successor that was found, too little is said to count it; its own news will come.
        if found is not None and found["uid"] == order.body["uid"]:
            self._note_version(found["uid"], found["rv"])
            if found.get("node"):
                self._note_bound(found["uid"], found["node"])
                self._told[found["uid"]] = None
        if order.body["kind"] != "BindPod":
            if item["outcome"] == "Applied":
                self._leaving[order.body["uid"]] = None
            return
        if item["outcome"] == "Applied":
            if order.sequence < self._reset_at:
                self._gate.deny("pods")
            self._note_bound(order.body["uid"], order.body["node"])
            self._told[order.body["uid"]] = None

    def _note_version(self, uid: str, version: int, *, lower: bool = False) -> None:
        """`lower`: history was reset, so that a lower version is the one that is known now."""
        sequences, versions = self._versions.setdefault(uid, ([], []))
        if not versions or version > versions[-1] or lower:
            sequences.append(self.sequence)
            versions.append(version)

    def _note_bound(self, uid: str, node: str) -> None:
        self._bound.setdefault(uid, node)
        if uid in self._group_of:
            self._group(self._group_of[uid]).ever_bound = True

    def _group(self, key: str) -> Group:
        return self.groups.setdefault(key, Group())

    # Decisions

    def _check_decision(self, decision: Json, ends: dict[str, Json]) -> None:
        self._check_ended(decision, ends)
        missing = self._gate.missing()
        groups: dict[str, None] = {}
        for index, command in enumerate(decision["commands"]):
            if command["id"] != f"{self.sequence}.{index}":
                detail = f"command {command['id']} stands in place {index}"
                raise Violation("command-id", self.sequence, command["uid"], detail)
            if command["kind"] in ("PatchStatus", "EmitEvent"):
                continue
            if missing:
                detail = f"{command['kind']} {command['name']} while {missing[0]} is not listed"
                raise Violation("placed-before-sync", self.sequence, command["uid"], detail)
            self._check_command(command)
            if command["kind"] == "BindPod" and command["uid"] in self._group_of:
                groups[self._group_of[command["uid"]]] = None
        for key in groups:
            self._check_group(key)
        self._keep_rows(decision)
        self._room.check(decision, self._minimums())

    def _minimums(self) -> dict[str, tuple[int, list[str]]]:
        """Of each gang that has never been bound: the members that it needs, and who they are."""
        return {
            key: (group.minimum or 0, [uid for uid in group.members if uid not in self._gone])
            for key, group in self.groups.items()
            if not group.ever_bound
        }

    def _check_ended(self, decision: Json, ends: dict[str, Json]) -> None:
        for key in decision["ended"]:
            order = self.orders.get(key)
            if order is None or order.ended_at:
                detail = f"command {key} ended " + ("twice" if order else "but was never given")
                subject = order.body["uid"] if order else ""
                raise Violation("ended-twice", self.sequence, subject, detail)
            if key not in ends:
                detail = f"command {key} ended without a result"
                raise Violation("ended-without-result", self.sequence, order.body["uid"], detail)
            order.ended_at, order.outcome = self.sequence, ends[key]["outcome"]
            self.ended.append(key)
            if order.outcome == "Withdrawn" and order.body["kind"] == "EvictPod":
                self._room.on_withdrawn(order.body["uid"])
            self._open_of.pop(order.body["uid"], None)
        for key in ends:
            order = self.orders.get(key)
            if order is not None and not order.ended_at:
                detail = f"the result of command {key} was not counted"
                raise Violation("result-not-counted", self.sequence, order.body["uid"], detail)

    def _check_command(self, command: Json) -> None:
        uid, what = command["uid"], f"{command['kind']} {command['name']}"
        if uid in self._open_of:
            detail = f"{what} while {self._open_of[uid]} of the same pod is open"
            raise Violation("two-commands", self.sequence, uid, detail)
        if command["kind"] == "BindPod":
            if uid in self._bound:
                detail = f"{what} to {command['node']}, but it is bound to {self._bound[uid]}"
                raise Violation("bound-twice", self.sequence, uid, detail)
            if uid in self._gone:
                detail = f"{what}, which was gone at sequence {self._gone[uid][0]}"
                raise Violation("bound-after-deletion", self.sequence, uid, detail)
        self.orders[command["id"]] = Order(command, self.sequence)
        self._open_of[uid] = command["id"]

    def _check_group(self, key: str) -> None:
        """Never bound before: the whole minimum is commanded, with that of each partner, or nothing."""
        group = self._group(key)
        if not group.ever_bound:
            for each in (key, *group.partners):
                self._check_minimum(each)

    def _check_minimum(self, key: str) -> None:
        group = self._group(key)
        if group.ever_bound:
            return
        if group.minimum is None:
            detail = f"members of {key} are bound, but there is no such PodGroup"
            raise Violation("gang-without-group", self.sequence, group.uid, detail)
        holding = [uid for uid in group.members if uid in self._open_of and uid not in self._gone]
        if len(holding) < group.minimum:
            detail = f"{len(holding)} of {key} are placed, at least {group.minimum} must be"
            subject = next(iter(holding), group.uid)
            raise Violation("gang-partly-bound", self.sequence, subject, detail)

    def _keep_rows(self, decision: Json) -> None:
        for change in decision["changes"]:
            rows = self.rows.setdefault(change["table"], {})
            key, row = change["key"], change["row"]
            if row is None:
                rows.pop(key, None)
                continue
            if change["table"] == "pods" and not row.get("node"):
                self._see_unbound(key, row, rows.get(key))
            rows[key] = row

    def _see_unbound(self, uid: str, row: Json, old: Json | None) -> None:
        """A pod's row says that it is on no node."""
        was = old.get("node") if old is not None else None
        if was and uid not in self._back_now:
            self._unbind(uid, f"{row['name']} was on {was}, and is on no node now")
        elif (was or old is None) and uid in self._listed_now:
            self._forget_bind(uid)  # it was gone, and a restore brought it back

    def _unbind(self, uid: str, detail: str) -> None:
        """A pod has no node any more: only a reset says so."""
        if uid not in self._reset_now:
            raise Violation("unbound", self.sequence, uid, detail)
        self._forget_bind(uid)

    def _forget_bind(self, uid: str) -> None:
        self._bound.pop(uid, None)
        if uid in self._group_of:
            group = self._group(self._group_of[uid])
            group.ever_bound = any(member in self._bound for member in group.members)
