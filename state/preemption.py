"""Makes room for a unit by evicting less important pods: all members of it get a node, or nobody is evicted.

A plan is worked out on copies of what nodes have (`Room`), then carried out: victims get their eviction, members are
nominated, which keeps their room until they are bound, or the policy's time is over. Victims are lower in priority,
don't refuse it by label, aren't covered by an exhausted PodDisruptionBudget, and aren't put back by their owner again
and again. Called by `state.units` once nothing else helps.
"""

import heapq
from typing import Final

from msgspec import Struct

from state.candidates import pick_node, refresh
from state.evictions import last_minute, preempt
from state.model.diagnoses import Diagnosis
from state.model.limits import MINUTE_US, VICTIM_NODES_MIN, VICTIM_NODES_PERCENT
from state.model.podclass import parse_labels
from state.model.rows import Pod, Preempted
from state.model.scores import MAY, ClassScores
from state.model.state import FINISHED, State
from state.placement import Placement
from state.rules.explain import eviction_futile, evictions_limited, gave_way, preempting

_NOT_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
_QUOTA_PREEMPTIBLE: Final = "quota.scheduling.koordinator.sh/preemptible"
Cost = tuple[int, ...]


class Claim(Struct, frozen=True):
    """Who needs room. `name`: for people; `claimant`: owner or uid, to count futile rounds by; `priority`: above it
    nobody is evicted.
    """

    name: str
    claimant: str
    priority: int
    gang: bool


class Room:
    """A node as it would be: `free` by axis, victims it could give up, and those it gives up, for members put on it."""

    def __init__(self, state: State, name: str, leaving: list[Pod], victims: list[Pod]) -> None:
        self.name = name
        self.ord = state.nodes[name].ord
        self.state = state
        self.victims = victims  # the least important first
        self.taken: dict[str, Pod] = {}
        self.gone: dict[str, None] = {pod.uid: None for pod in leaving}
        self.cards_claimed = 0
        columns = state.columns
        free = columns.total[:, self.ord] - columns.used[:, self.ord]
        self.free: list[int] = free.tolist()
        for pod in leaving:
            self.give(pod, +1)
        if state.devices_of(name) is not None:
            self.cards_claimed = len(state.free_cards(name)) - state.cards_left(name)

    def give(self, pod: Pod, sign: int) -> None:
        """The node gets the pod's room back, or loses it."""
        axes = self.state.columns.axes
        for resource, amount in self.state.class_of(pod).requests:
            self.free[axes[resource]] += sign * amount

    def fits(self, scores: ClassScores) -> bool:
        """Whether a pod of the class fits as things are."""
        if any(self.free[axis] < amount for axis, amount in scores.request.items()):
            return False
        cards = scores.podclass.cards
        if not cards:
            return True
        if self.state.devices_of(self.name) is None:
            return scores.podclass.by_kubelet
        return len(self.state.free_cards(self.name, self.gone)) - self.cards_claimed >= cards

    def put(self, scores: ClassScores) -> None:
        """One member is put here."""
        for axis, amount in scores.request.items():
            self.free[axis] -= amount
        if self.state.devices_of(self.name) is not None:
            self.cards_claimed += scores.podclass.cards

    def take(self, victim: Pod) -> None:
        """One more victim."""
        self.taken[victim.uid] = victim
        self.gone[victim.uid] = None
        self.give(victim, +1)

    def spare(self, victim: Pod) -> bool:
        """Keeps a victim after all, if what was put here still fits."""
        self.give(victim, -1)
        del self.gone[victim.uid], self.taken[victim.uid]
        if min(self.free) >= 0 and self._cards_suffice():
            return True
        self.take(victim)
        return False

    def _cards_suffice(self) -> bool:
        if not self.cards_claimed:
            return True
        return len(self.state.free_cards(self.name, self.gone)) >= self.cards_claimed


class Preemption:
    """Plans and carries out evictions within one cycle's placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state
        self._rooms: dict[str, Room] = {}
        self._left: dict[str, int] = {}  # budget uid -> disruptions that it still allows
        self._hit: dict[str, None] = {}  # jobs that lose a pod already
        self._futile = ""
        self._heaps: dict[bytes, list[tuple[Cost, str]]] = {}  # class -> nodes by cost

    def make_room(self, claim: Claim, members: list[Pod]) -> Diagnosis | None:
        """Evicts for all `members` and nominates them; None: not possible, and nothing has changed.

        The diagnosis that comes back has not been written where it says that evictions are futile or limited.
        """
        if any(self.state.class_of(pod).spec.preemption_policy == "Never" for pod in members):
            return None
        self._rooms, self._left, self._hit, self._futile = {}, {}, {}, ""
        self._heaps = {}
        mark = self.placement.mark()
        chosen: dict[str, str] = {}
        for pod in members:
            node = self._node_for(claim, pod)
            if not node:
                self.placement.back_to(mark)
                return eviction_futile(claim.name, self._futile) if self._futile else None
            chosen[pod.uid] = node
        self._spare_some(claim)
        victims = [pod for name in sorted(self._rooms) for pod in self._rooms[name].taken.values()]
        victims.sort(key=lambda pod: (pod.namespace, pod.name, pod.uid))
        until_us = self._limited_until(victims)
        if until_us:
            self.placement.back_to(mark)
            return evictions_limited(claim.name, until_us)
        return self._carry_out(claim, chosen, victims)

    # -- planning --------------------------------------------------------------------------------------------

    def _node_for(self, claim: Claim, pod: Pod) -> str:
        """A node for the member: one with room now, else one that gives up victims; empty: none."""
        state = self.state
        scores = state.scores_of(pod)
        if not self._rooms:
            node_ord = pick_node(state, scores)
            if node_ord >= 0:
                node = state.columns.names[node_ord]
                self.placement.nominate(pod, node)
                return node
        heap = self._heaps.get(bytes(pod.spec))
        if heap is None:
            heap = self._heaps[bytes(pod.spec)] = self._costs(claim, scores)
        while heap:
            cost, name = heapq.heappop(heap)
            now = self._cost(claim, self._rooms[name], scores)
            if now is not None and now > cost:  # others were put there meanwhile
                heapq.heappush(heap, (now, name))
            elif now is not None:
                self._put(claim, self._rooms[name], scores, heap)
                return name
        return ""

    def _costs(self, claim: Claim, scores: ClassScores) -> list[tuple[Cost, str]]:
        """A heap of nodes that could take a member, by what that costs."""
        heap: list[tuple[Cost, str]] = []
        enough = self._enough(scores)
        for name in self._names(scores):
            cost = self._cost(claim, self._room(claim, name), scores)
            if cost is not None:
                heap.append((cost, name))
                if not claim.gang and (not any(cost) or len(heap) >= enough):
                    break
        heapq.heapify(heap)
        return heap

    def _put(
        self, claim: Claim, room: Room, scores: ClassScores, heap: list[tuple[Cost, str]]
    ) -> None:
        for victim in self._needed_victims(room, scores) or ():
            self._within_budgets(victim, self._left)
            self._hit[self._job(victim)] = None
            room.take(victim)
        room.put(scores)
        cost = self._cost(claim, room, scores)
        if cost is not None:
            heapq.heappush(heap, (cost, room.name))

    def _names(self, scores: ClassScores) -> list[str]:
        """Nodes that the class may use and that are large enough, in the order of their ordinals."""
        columns = self.state.columns
        refresh(self.state, scores)
        may = scores.reason == MAY
        for axis, amount in scores.request.items():
            may &= columns.total[axis] >= amount
        return [columns.names[node_ord] for node_ord in may.nonzero()[0].tolist()]

    def _enough(self, scores: ClassScores) -> int:
        nodes = int((scores.reason == MAY).sum())
        return max(nodes * VICTIM_NODES_PERCENT // 100, VICTIM_NODES_MIN)

    def _room(self, claim: Claim, name: str) -> Room:
        room = self._rooms.get(name)
        if room is None:
            state = self.state
            there = [state.pods[uid] for uid in sorted(state.pods_on.get(name, ()))]
            there = [pod for pod in there if not pod.nominated and pod.phase not in FINISHED]
            leaving = [pod for pod in there if state.is_leaving(pod)]
            victims = [
                pod for pod in there if not state.is_leaving(pod) and self._may_evict(claim, pod)
            ]
            victims.sort(key=self._importance, reverse=True)
            room = self._rooms[name] = Room(state, name, leaving, victims)
        return room

    def _may_evict(self, claim: Claim, pod: Pod) -> bool:
        state = self.state
        if state.class_of(pod).priority >= claim.priority:
            return False
        labels = parse_labels(bytes(pod.labels))
        if labels.get(_NOT_PREEMPTIBLE) == "true" or labels.get(_QUOTA_PREEMPTIBLE) == "false":
            return False
        return not self._is_futile(claim, pod)

    def _is_futile(self, claim: Claim, pod: Pod) -> bool:
        """Whether that owner's pods, or this one, were evicted there for the claimant as often as policy allows."""
        assert self.state.policy is not None
        owner, node = f"{pod.namespace}/{pod.owner or pod.uid}", pod.node or pod.assumed
        preempted: dict[str, Preempted] = self.state.tables["preempted"]
        rounds = sum(
            1
            for note in preempted.values()
            if (note.claimant, note.owner, note.node) == (claim.claimant, owner, node)
        )
        if rounds < self.state.policy.evictions.futileMax:
            return False
        self._futile = self._futile or f"{owner} on {node}, {rounds} times"
        return True

    def _importance(self, pod: Pod) -> tuple[int, int, str, str]:
        """Sorts victims from the most to the least important; of equals the one that ran longer is more important."""
        return (
            -self.state.class_of(pod).priority,
            pod.started_us or pod.created_us,
            self._job(pod),
            pod.uid,
        )

    def _job(self, pod: Pod) -> str:
        """The gang that suffers with the pod, or the pod itself."""
        return self.state.gang_key(pod) or pod.uid

    def _needed_victims(self, room: Room, scores: ClassScores) -> list[Pod] | None:
        """The fewest and least important victims that let a member in; None: it would not fit without all of them."""
        assert self.state.policy is not None
        if room.fits(scores):
            return []
        strict = self.state.policy.preemption.respectBudgets
        left = dict(self._left)
        taken = []
        for pod in room.victims:
            if pod.uid in room.taken:
                continue
            if not self._within_budgets(pod, left) and strict:
                continue
            taken.append(pod)
            room.take(pod)
        fits = room.fits(scores)
        kept: dict[str, None] = {}
        if fits:
            for pod in reversed(taken):  # the most important first
                room.give(pod, -1)
                del room.gone[pod.uid]
                if room.fits(scores):
                    kept[pod.uid] = None
                else:
                    room.give(pod, +1)
                    room.gone[pod.uid] = None
        for pod in taken:
            if pod.uid not in kept:
                room.give(pod, -1)
                del room.gone[pod.uid]
            del room.taken[pod.uid]
        return [pod for pod in taken if pod.uid not in kept] if fits else None

    def _within_budgets(self, pod: Pod, left: dict[str, int]) -> bool:
        """Whether the budgets over the pod allow one more disruption; notes it in `left`."""
        budgets = self.state.budgets_of(pod)
        for budget in budgets:
            left.setdefault(budget.uid, self._allowed(budget.uid))
        if any(left[budget.uid] <= 0 for budget in budgets):
            return False
        for budget in budgets:
            left[budget.uid] -= 1
        return True

    def _allowed(self, budget_uid: str) -> int:
        """Disruptions that the budget allows, less the evictions under way that its status can't show yet."""
        state = self.state
        budget = state.budgets[budget_uid]
        under_way = sum(
            1
            for uid in state.evicted
            if uid in state.pods
            and not state.pods[uid].deleted_us
            and budget in state.budgets_of(state.pods[uid])
        )
        return budget.disruptions_allowed - under_way

    def _cost(self, claim: Claim, room: Room, scores: ClassScores) -> Cost | None:
        """What it costs to put a member there, to compare; None: it does not fit. All 0: nobody is evicted.

        Budgets broken, the highest priority, for a gang the jobs hit that were spared so far, the sum of priorities,
        how many they are, and how young the most important ones.
        """
        victims = self._needed_victims(room, scores)
        if victims is None:
            return None
        if not victims:
            return (0,) * 6
        left = dict(self._left)
        broken = sum(1 for pod in victims if not self._within_budgets(pod, left))
        priorities = [self.state.class_of(pod).priority for pod in victims]
        highest = max(priorities)
        jobs = {self._job(pod): None for pod in victims if self._job(pod) not in self._hit}
        started = min(
            pod.started_us or pod.created_us
            for pod, priority in zip(victims, priorities, strict=True)
            if priority == highest
        )
        offset = 1 << 31
        return (
            broken,
            highest + offset,
            len(jobs) if claim.gang else 0,
            sum(priorities) + offset * len(priorities),
            len(victims),
            -started,
        )

    def _spare_some(self, claim: Claim) -> None:
        """Members that came later may have made a victim unnecessary: keeps those, the most important first."""
        if not claim.gang:
            return
        for name in sorted(self._rooms):
            room = self._rooms[name]
            for victim in sorted(room.taken.values(), key=self._importance):
                room.spare(victim)

    def _limited_until(self, victims: list[Pod]) -> int:
        """When policy's limits allow so many evictions; 0: now."""
        assert self.state.policy is not None
        rules = self.state.policy.evictions
        counts: dict[tuple[str, str], int] = {}
        for victim in victims:
            for key in (("", ""), ("node", victim.node), ("namespace", victim.namespace)):
                counts[key] = counts.get(key, 0) + 1
        limits = {
            "": rules.perMinute,
            "node": rules.perNodePerMinute,
            "namespace": rules.perNamespacePerMinute,
        }
        if not victims or not any(limits.values()):
            return 0
        oldest_us = 0
        for note in last_minute(self.trial):
            oldest_us = note.at_us
            for key in (("", ""), ("node", note.node), ("namespace", note.namespace)):
                if key in counts:
                    counts[key] += 1
        if all(not limits[kind] or count <= limits[kind] for (kind, _), count in counts.items()):
            return 0
        return (oldest_us or self.trial.now_us) + MINUTE_US

    # -- carrying out ----------------------------------------------------------------------------------------

    def _carry_out(self, claim: Claim, chosen: dict[str, str], victims: list[Pod]) -> Diagnosis:
        names = [f"{victim.namespace}/{victim.name}" for victim in victims]
        for victim in victims:
            if victim.held_until_us:
                self.placement.let_go(victim, gave_way(self.state.gang_key(victim), claim.name))
            else:
                preempt(self.trial, victim, claim.claimant, claim.name)
        told = preempting(claim.name if claim.gang else "", sorted({*chosen.values()}), names)
        for uid, node in chosen.items():
            self.placement.nominate(self.state.pods[uid], node, told)
        return told
