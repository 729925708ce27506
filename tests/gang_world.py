"""A small cluster with gangs of every kind, driven by drawn steps: what is said, what is answered, what must hold.

A plan is drawn by hypothesis (`tests/unit/state/test_gang_properties`), so that a failing one is made small. After each
step `check` compares the rows with what the policy allows, by rules of its own.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from state import invariants, snapshot
from state.model.decision import Decision
from state.model.gangs import podgroup_of
from state.model.rows import Gang, Pod
from state.model.state import place_of
from tests.builders import START_US, Core, Json, gone, node, pod, podgroup, workload

SECOND_US = 1_000_000
SLOT = 100
KOORDINATOR, UPSTREAM = "scheduling.sigs.k8s.io", "scheduling.x-k8s.io"
#: Kubernetes itself: a PodGroup, and a replica of a pod group of a Workload.
NATIVE, WORKLOAD = "scheduling.k8s.io", "workloads.scheduling.k8s.io"
PREFIX = "gang.scheduling.koordinator.sh"
LABEL = {KOORDINATOR: "pod-group.scheduling.sigs.k8s.io", UPSTREAM: "scheduling.x-k8s.io/pod-group"}
MATCHES = ("once-satisfied", "waiting-and-running", "only-waiting")
NOMINATED_S = 30


@dataclass(frozen=True)
class GangKind:
    """What a gang is; its members are alike, so that whether they fit does not depend on their order."""

    mode: str = "Strict"
    match: str = MATCHES[0]
    group: str = KOORDINATOR
    slots: int = 1
    priority: int = 0
    wait_s: int = 5
    grouped: bool = False
    ring: bool = False  # it names only the next gang, which may name nobody
    disruption: str = "single"

    @property
    def resource(self) -> str:
        """Of the object that declares it."""
        return WORKLOAD if self.group == WORKLOAD else f"podgroups.{self.group}"


@dataclass(frozen=True)
class Setting:
    """The policy, and the gangs `g0`, `g1`, ... Those that are `grouped` are one gang group."""

    gangs: tuple[GangKind, ...]
    percentage: int = 0
    backoff_s: int = 0
    preempts: bool = True
    placements_max: int = 500

    def policy(self) -> Json:
        """For a `Core`."""
        return {
            "backoff": {"initial": "2s", "max": "8s"},
            "cycle": {"placementsMax": self.placements_max},
            "gangs": {
                "enablePreemption": self.preempts,
                "kubernetesWorkloads": True,
                "podGroupBackoffSeconds": self.backoff_s,
                "podGroupRejectPercentage": self.percentage,
            },
            "preemption": {"nominatedFor": f"{NOMINATED_S}s", "pods": self.preempts},
            "queue": {"holdAfter": 0},
        }

    def group_of(self, number: int, minimum: int, rv: int = 1) -> Json:
        """The PodGroup of a gang, or its Workload."""
        kind = self.gangs[number]
        said = {f"{PREFIX}/mode": kind.mode, f"{PREFIX}/match-policy": kind.match}
        if kind.grouped:
            said[f"{PREFIX}/groups"] = json.dumps(self._partners(number))
        if kind.group in (NATIVE, WORKLOAD):
            said[f"{PREFIX}/waiting-time"] = f"{kind.wait_s}s"
        if kind.group == WORKLOAD:
            return {**workload(f"g{number}", rv, a=minimum), "annotations": said}
        own = {"disruption": kind.disruption} if kind.group == NATIVE else {}
        timeout_us = None if kind.group == NATIVE else kind.wait_s * SECOND_US
        return podgroup(
            f"g{number}",
            minimum,
            rv,
            annotations=said,
            group=kind.group,
            schedule_timeout_us=timeout_us,
            **own,
        )

    def _partners(self, number: int) -> list[str]:
        group = [other for other, each in enumerate(self.gangs) if each.grouped]
        if self.gangs[number].ring:
            group = [(number + 1) % len(self.gangs)]
        return [f"default/{self.name_of(other)}" for other in group]

    def name_of(self, number: int) -> str:
        """The gang's name."""
        return f"g{number}/a/0" if self.gangs[number].group == WORKLOAD else f"g{number}"

    def pod_of(self, name: str, number: int, **fields: Any) -> Json:
        """A member of a gang, or a single pod where there is no gang of that number."""
        if number >= len(self.gangs):
            spec = {"priority": 5 * (number - len(self.gangs))}
            return pod(name, SLOT, spec=spec, **fields)
        kind = self.gangs[number]
        if kind.group in LABEL:
            fields["labels"] = {LABEL[kind.group]: f"g{number}"}
        else:
            fields["scheduling_group"] = self.name_of(number)
        return pod(name, SLOT * kind.slots, spec={"priority": kind.priority}, **fields)


@dataclass
class World:
    """The cluster's truth, and a Core that is told of it step by step."""

    setting: Setting
    pods: dict[str, Json] = field(default_factory=dict)  # uid -> as last observed
    nodes: dict[str, Json] = field(default_factory=dict)
    open: dict[str, Any] = field(default_factory=dict)  # command id -> command
    born: int = 0
    rv: int = 10
    held_until: dict[str, int] = field(default_factory=dict)
    following: dict[str, None] = field(
        default_factory=dict
    )  # uids of those of whose gang, which leaves as a whole, somebody was evicted
    ended: list[int] = field(
        default_factory=list
    )  # gangs whose PodGroup was deleted, once for each time

    def __post_init__(self) -> None:
        self.core = Core(**self.setting.policy())

    # -- steps -----------------------------------------------------------------------------------------------

    def step(self, kind: str, first: int, second: int) -> None:
        """One drawn step: `first` says of what, `second` how much."""
        getattr(self, f"_{kind}")(first, second)

    def _node(self, first: int, second: int) -> None:
        name, slots = f"n{first % 4}", second % 5
        self.nodes[name] = node(name, SLOT * slots, self._next(), unschedulable=first % 7 == 6)
        self._see(self.nodes[name])

    def _lose(self, first: int, _second: int) -> None:
        name = f"n{first % 4}"
        if self.nodes.pop(name, None) is not None:
            self._see(gone("nodes", name, self._next()))

    def _group(self, first: int, second: int) -> None:
        number = first % len(self.setting.gangs)
        made = self.setting.group_of(number, 1 + second % 4, self._next())
        self._see({**made, "uid": self._uid_of(number)})

    def _disband(self, first: int, _second: int) -> None:
        number = first % len(self.setting.gangs)
        uid, resource = self._uid_of(number), self.setting.gangs[number].resource
        self.ended.append(number)
        self._see(gone(resource, f"g{number}", self._next(), uid=uid))

    def _uid_of(self, number: int) -> str:
        """A PodGroup that is made again has another uid."""
        return f"uid-g{number}-{self.ended.count(number)}"

    def _pod(self, first: int, second: int) -> None:
        made = []
        for _ in range(1 + second % 4):
            self.born += 1
            name = f"p{self.born}"
            made.append(
                self.setting.pod_of(
                    name,
                    first % (len(self.setting.gangs) + 2),
                    rv=self._next(),
                    created_us=START_US + self.born,
                )
            )
        self.pods.update({each["uid"]: each for each in made})
        self._see(*made)

    def _delete(self, first: int, _second: int) -> None:
        uid = self._some_pod(first)
        if uid:
            self._see(self._gone(uid))

    def _finish(self, first: int, _second: int) -> None:
        uid = self._some_pod(first)
        if uid and self.pods[uid].get("node"):
            self.pods[uid] = {**self.pods[uid], "phase": "Succeeded", "rv": self._next()}
            self._see(self.pods[uid])

    def _answer(self, first: int, second: int) -> None:
        if self.open:
            command_id = sorted(self.open)[first % len(self.open)]
            self.answer(command_id, refused=second % 5 == 4)

    def _tick(self, first: int, _second: int) -> None:
        self._see(advance_us=(1, 3, 6, 11)[first % 4] * SECOND_US)

    def _restart(self, _first: int, _second: int) -> None:
        data = snapshot.encode(self.core.state)
        self.core.state = snapshot.decode(data)
        assert data == snapshot.encode(self.core.state)

    # -- the API server --------------------------------------------------------------------------------------

    def answer(self, command_id: str, *, refused: bool = False) -> None:
        """The sink has carried a command out, or the API server refused it."""
        command = self.open.pop(command_id)
        found = self.pods.get(command.uid)
        if found is None:
            self._see(self._end(command_id, "Stale", 404))
        elif refused:
            self._see(self._end(command_id, "Refused", 403))
        elif command.kind == "EvictPod":
            self._see(self._end(command_id, "Applied"), self._gone(command.uid, evicted=True))
        else:
            bound = {**found, "node": command.node, "phase": "Running", "rv": self._next()}
            self.pods[command.uid] = bound
            self._see(bound, self._end(command_id, "Applied"))

    def _end(self, command_id: str, outcome: str, status: int = 0) -> Json:
        return {
            "kind": "CommandEnded",
            "command_id": command_id,
            "outcome": outcome,
            "status": status,
        }

    def _gone(self, uid: str, *, evicted: bool = False) -> Json:
        if evicted or any(c.kind == "EvictPod" and c.uid == uid for c in self.open.values()):
            left_with = self._leaves_with(self.core.state.pods[uid])
            self.following.update((pod.uid, None) for pod in left_with if place_of(pod))
        return gone("pods", self.pods.pop(uid)["name"], self._next())

    def _next(self) -> int:
        self.rv += 1
        return self.rv

    def _some_pod(self, number: int) -> str:
        return sorted(self.pods)[number % len(self.pods)] if self.pods else ""

    def _see(self, *observations: Json, advance_us: int = 1_000) -> None:
        before = self._valid_before()
        self._check(self.core.see(*observations, advance_us=advance_us), before)
        for _ in range(60):
            if not self.core.decisions[-1].work_left:
                return
            before = self._valid_before()
            self._check(self.core.see(), before)
        raise AssertionError("there is always work left")

    def settle(self) -> None:
        """Events stop: commands are carried out, and time goes on from deadline to deadline."""
        for _ in range(40):
            while self.open:
                self.answer(min(self.open))
            due_us = self.core.decisions[-1].next_deadline_us
            if not due_us:
                return
            self._see(advance_us=max(due_us - self.core.journal.now_us, 1))

    # -- what must hold --------------------------------------------------------------------------------------

    def _valid_before(self) -> dict[str, None]:
        """Gangs whose members need not wait for each other any more."""
        gangs = self.core.state.gangs
        return {key: None for key, gang in gangs.items() if gang.satisfied and self._once(gang)}

    def _once(self, gang: Gang) -> bool:
        return (gang.match or MATCHES[0]) == MATCHES[0]

    def _check(self, decision: Decision, before: dict[str, None]) -> None:
        state = self.core.state
        invariants.check(state)
        bound: dict[str, None] = {}
        for command in decision.commands:
            if command.kind in ("BindPod", "EvictPod"):
                self.open[command.id] = command
            if command.kind == "BindPod":
                bound[state.gang_key(state.pods[command.uid])] = None
            elif command.kind == "EvictPod":
                self._check_eviction(state.pods[command.uid])
        for key, eviction in state.tables["evictions"].items():
            if key.startswith(f"preempt-{decision.sequence:020d}-"):
                self._check_plan(eviction.reason)
        for key in bound:
            if key and key not in before:
                for each in self._together(key):
                    assert self._missing(each) <= 0, f"{each} is bound in part, for {key}"
        self._check_times(decision)
        self._check_rooms(decision)

    def _missing(self, key: str, *, planned: bool = False) -> int:
        """Members that the gang lacks to be valid; `planned`: those count whose room is only kept."""
        gang = self.core.state.gangs.get(key)
        if gang is None or not gang.source:
            return 1
        if gang.satisfied and self._once(gang):
            return 0
        pods = self._members(key)
        waiting = sum(1 for p in pods if p.assumed and (planned or not p.held_until_us))
        waiting += sum(1 for p in pods if p.nominated and planned)
        running = sum(1 for p in pods if p.node)
        return gang.min_member - waiting - (running if gang.match == MATCHES[1] else 0)

    def _together(self, key: str) -> list[str]:
        """The gang, its partners, theirs, and so on."""
        found = [key]
        for each in found:
            gang = self.core.state.gangs.get(each)
            found += [
                other for other in (gang.groups if gang is not None else ()) if other not in found
            ]
        return found

    def _members(self, key: str) -> list[Pod]:
        state = self.core.state
        return [state.pods[uid] for uid in sorted(state.members.get(key, ()))]

    def _check_eviction(self, victim: Pod) -> None:
        """Somebody more important is nominated for its node, or for that of one with whom it leaves; or one of those
        has left already.
        """
        state = self.core.state
        priority = state.class_of(victim).priority
        nodes = {place_of(pod): None for pod in self._leaves_with(victim)}
        there = [state.pods[uid] for node in nodes for uid in state.pods_on.get(node, ())]
        claimed = any(p.nominated and state.class_of(p).priority > priority for p in there)
        assert claimed or victim.uid in self.following, f"{victim.name} is evicted for nobody"

    def _leaves_with(self, victim: Pod) -> list[Pod]:
        state = self.core.state
        group = podgroup_of(state, state.gang_key(victim))
        whole = group is not None and group.disruption == "all"
        return self._members(state.gang_key(victim)) if whole else [victim]

    def _check_plan(self, reason: str) -> None:
        """Where room is made for a gang, all of it has room then, and all of its group."""
        claimant = reason.rpartition(" ")[2]
        for key in self._together(claimant) if claimant in self.core.state.gangs else ():
            assert self._missing(key, planned=True) <= 0, f"evictions for half of {claimant}"

    def _check_times(self, decision: Decision) -> None:
        """Nothing is held or kept beyond its time, no time is made longer, and the next deadline is not after it."""
        state, now_us = self.core.state, self.core.journal.now_us
        held = {uid: state.pods[uid].held_until_us for uid in state.holding}
        kept = {uid: state.pods[uid].nominated_until_us for uid in state.nominated}
        for uid, until_us in (*held.items(), *kept.items()):
            assert until_us > now_us, f"{uid} has had its time"
            assert 0 < decision.next_deadline_us <= until_us, f"nobody looks when {uid} is due"
        for uid, until_us in held.items():
            assert until_us <= self.held_until.get(uid, until_us), f"{uid} holds longer"
            assert until_us <= now_us + 600 * SECOND_US
        for until_us in kept.values():
            assert until_us <= now_us + NOMINATED_S * SECOND_US
        self.held_until = held

    def _check_rooms(self, decision: Decision) -> None:
        """Where somebody is put there was room."""
        for command in decision.commands:
            if command.kind == "BindPod":
                assert self.free(command.node, nominated=False) >= 0, f"{command.node} is too full"

    def free(self, name: str, *, nominated: bool = True) -> int:
        """Cpu of the node that nobody uses, holds, or is nominated for."""
        state = self.core.state
        used = sum(
            dict(state.class_of(each).requests)["cpu"]
            for each in state.pods.values()
            if place_of(each) == name and (nominated or not each.nominated)
        )
        return int(state.nodes[name].allocatable["cpu"]) - used

    # -- what is left over -----------------------------------------------------------------------------------

    def forgotten(self) -> list[str]:
        """Who waits at rest though there is room for it: pods that wait for nobody, and gang groups that fit whole."""
        state = self.core.state
        waiting = [state.pods[uid] for uid in sorted(state.waiting)]
        ready = [p for p in waiting if not (p.nominated or p.backoff_us > state.timestamp_us)]
        found = [p.name for p in ready if not state.gang_key(p) and self._slots(p)]
        for key in {state.gang_key(p): None for p in ready if state.gang_key(p)}:
            groups = self._together(key)
            if any(state.gangs.get(each) is None or not self._may_go(each) for each in groups):
                continue
            missing = {each: max(self._missing(each, planned=True), 0) for each in groups}
            mine = [p for p in ready if state.gang_key(p) in groups]
            if any(
                count > sum(1 for p in mine if state.gang_key(p) == each)
                for each, count in missing.items()
            ):
                continue
            largest = max(mine, key=lambda p: dict(state.class_of(p).requests)["cpu"])
            if self._slots(largest) >= max(sum(missing.values()), 1):
                found.append(key)
        return found

    def _may_go(self, key: str) -> bool:
        gang = self.core.state.gangs[key]
        return bool(gang.source) and gang.rest_until_us <= self.core.state.timestamp_us

    def _slots(self, pod: Pod) -> int:
        """How many pods like this one fit now; each takes one slot for a pod that is no larger."""
        state = self.core.state
        cpu = dict(state.class_of(pod).requests)["cpu"]
        rooms = [self.free(name) for name, row in state.nodes.items() if not row.unschedulable]
        return sum(max(room, 0) // cpu for room in rooms)
