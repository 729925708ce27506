"""Makes room for a unit by evicting less important pods: all members of it get a node, or nobody is evicted.

A plan is worked out on copies of what nodes have (`Room`), then carried out: victims get their eviction, members are
nominated, which keeps their room until they are bound, or the policy's time is over. Victims are lower in priority,
don't refuse it by label, aren't covered by an exhausted PodDisruptionBudget, and aren't put back by their owner again
and again. Called by `state.units` once nothing else helps.
"""

import heapq
from collections import Counter
from collections.abc import Iterable

from msgspec import Struct

from state.candidates import pick_node, refresh, roominess
from state.companions import Companions
from state.evictions import limited_until, preempt
from state.futility import Claim, Futility, asked_again_at
from state.model.diagnoses import Diagnosis
from state.model.limits import VICTIM_NODES_MIN, VICTIM_NODES_PERCENT
from state.model.podclass import refuses_preemption
from state.model.rows import Budget, Pod
from state.model.scores import MAY, ClassScores
from state.model.state import State, place_of
from state.packing import Roominess, Wanted, other_orders
from state.placement import Mark, Placement
from state.room import Room, comes_free
from state.rules.explain import eviction_futile, evictions_limited, gave_way, preempting

Cost = tuple[int, ...]


class Plan(Struct, frozen=True):
    """Who must leave a node for one member, the least important first; `broken`: of how many a budget forbids it."""

    victims: list[Pod]
    broken: int


class Preemption:
    """Plans and carries out evictions within one cycle's placement."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state
        self._rooms: dict[str, Room] = {}
        self._left: dict[str, int] = {}  # budget uid -> disruptions that it still allows
        self._under_way: Counter[str] | None = None  # evictions that count against a budget
        self._hit: dict[str, int] = {}  # pods that a job loses by this plan
        self._gone: dict[str, int] = {}  # pods that leave a job already, a cache
        self._companions = Companions(self.state)
        self._going: dict[str, None] = {}  # victims, and those who must leave with them
        self._whole: dict[str, bool] = {}  # gang -> it could leave as a whole, a cache
        self._tolls: dict[str, dict[str, int]] = {}  # gang that leaves whole -> by budget, a cache
        self._futility = Futility(self.trial)
        self._heaps: dict[bytes, list[tuple[Cost, str]]] = {}  # class -> nodes by cost

    def make_room(self, claim: Claim, wanted: Wanted) -> Diagnosis | None:
        """Evicts for so many pods of each list and nominates them; None: not possible, and nothing has changed.

        The diagnosis that comes back has not been written where it says that evictions are futile or limited.
        """
        pods = [pod for _, members in wanted for pod in members]
        if any(self.state.class_of(pod).spec.preemption_policy == "Never" for pod in pods):
            return None
        mark = self.placement.mark()
        chosen = self._choose(claim, wanted)
        if chosen is None and claim.gangs:
            chosen = self._choose_in_other_orders(claim, wanted, mark)
        if chosen is None:
            self.placement.back_to(mark)
            if not self._futility.why:
                return None
            self.trial.try_again_at(asked_again_at(self.trial))
            return eviction_futile(claim.name, self._futility.why)
        if claim.gangs:
            self._spare_some()
        victims = self._victims()
        until_us = limited_until(self.trial, [pod for pod in victims if not pod.held_until_us])
        if until_us is not None:
            self.placement.back_to(mark)
            self.trial.try_again_at(until_us)
            return evictions_limited(claim.name, until_us)
        return self._carry_out(claim, chosen, victims)

    # -- planning --------------------------------------------------------------------------------------------

    def _choose_in_other_orders(
        self, claim: Claim, wanted: Wanted, mark: Mark
    ) -> dict[str, str] | None:
        """As `_choose`, those first that the fewest nodes could take if they were empty."""
        for pods in other_orders(wanted, self._roominess):
            self.placement.back_to(mark)
            for known in (self._rooms, self._left, self._hit, self._heaps, self._going):
                known.clear()
            chosen = self._choose(claim, [(len(pods), pods)])
            if chosen is not None:
                return chosen
        return None

    def _roominess(self, pod: Pod) -> Roominess:
        return roominess(self.state, self.state.scores_of(pod), emptied=True)

    def _choose(self, claim: Claim, wanted: Wanted) -> dict[str, str] | None:
        """Pod uid -> node for as many as are wanted, passing over those that could be nowhere; None: too few."""
        chosen: dict[str, str] = {}
        for count, members in wanted:
            left = count
            nowhere: dict[bytes, None] = {}
            for pod in members:
                if not left:
                    break
                node = "" if bytes(pod.spec) in nowhere else self._node_for(claim, pod)
                if node:
                    chosen[pod.uid] = node
                    left -= 1
                else:
                    nowhere[bytes(pod.spec)] = None
            if left:
                return None
        return chosen

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
                if not claim.gangs and (not any(cost) or len(heap) >= enough):
                    break
        heapq.heapify(heap)
        return heap

    def _put(
        self, claim: Claim, room: Room, scores: ClassScores, heap: list[tuple[Cost, str]]
    ) -> None:
        plan = self._plan(claim, room, scores)
        for victim in plan.victims if plan is not None else ():
            for pod in (victim, *self._companions.of(victim)):
                self._take(pod)
        room.put(scores)
        cost = self._cost(claim, room, scores)
        if cost is not None:
            heapq.heappush(heap, (cost, room.name))

    def _take(self, pod: Pod) -> None:
        """The pod leaves, for its room or with others of its gang."""
        if pod.uid in self._going:
            return
        self._going[pod.uid] = None
        self._disrupt(pod, self._left)
        self._hit[self._job(pod)] = self._hit.get(self._job(pod), 0) + 1
        if (room := self._rooms.get(place_of(pod))) is not None:
            room.take(pod)

    def _victims(self) -> list[Pod]:
        """All who must leave, by name."""
        found: dict[str, Pod] = {}
        for name in sorted(self._rooms):
            for victim in self._rooms[name].taken.values():
                if victim.uid not in found:
                    found.update((pod.uid, pod) for pod in (victim, *self._companions.of(victim)))
        return sorted(found.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))

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
            kept = [pod for pod in there if pod.nominated]
            placed = [pod for pod in there if not pod.nominated]
            victims = [pod for pod in placed if self._may_evict(claim, pod)]
            room = self._rooms[name] = Room(
                state,
                name,
                leaving=[pod for pod in placed if comes_free(self.trial, pod)],
                displaced=[pod for pod in kept if self._rank(pod) < claim.priority],
                victims=sorted(victims, key=self._importance, reverse=True),
            )
            for pod in placed:
                if pod.uid in self._going:
                    room.take(pod)
        return room

    def _with_kept(self, pod: Pod) -> list[Pod]:
        """All for whom room is kept together with the pod: its gang group, or it alone."""
        state, key = self.state, self.state.gang_key(pod)
        keys = state.partners.of(key) if key in state.gangs else ()
        uids = {uid: None for each in keys for uid in state.members.get(each, ())}
        return [state.pods[uid] for uid in sorted(uids) if uid in state.nominated] or [pod]

    def _rank(self, pod: Pod) -> int:
        """How important it is that room is kept for the pod: as much as the most important of its gang group."""
        return max(map(self._priority, self._with_kept(pod)))

    def _may_evict(self, claim: Claim, pod: Pod) -> bool:
        """Whether the pod, and all who would have to leave with it, may be evicted for the claimant."""
        if pod.uid in self._going or not self._may_leave(claim, pod):
            return False
        gang = self.state.gang_key(pod)
        others = self._companions.all_of(gang)
        if others and gang not in self._whole:
            self._whole[gang] = all(self._may_leave(claim, other) for other in others)
        return not others or self._whole[gang]

    def _may_leave(self, claim: Claim, pod: Pod) -> bool:
        state = self.state
        if state.is_leaving(pod) or state.class_of(pod).priority >= claim.priority:
            return False
        if refuses_preemption(bytes(pod.labels)):
            return False
        return state.gang_key(pod) not in claim.own and not self._futility.bars(claim, pod)

    def _importance(self, pod: Pod) -> tuple[int, int, int, str, str]:
        """Sorts victims from the most to the least important: of equals those without whom many others run in vain come
        first, then those that ran longer.
        """
        return (
            -self.state.class_of(pod).priority,
            -self._in_vain(self._job(pod), 1),
            pod.started_us or pod.created_us,
            self._job(pod),
            pod.uid,
        )

    def _job(self, pod: Pod) -> str:
        """The gang that suffers with the pod, or the pod itself."""
        return self.state.gang_key(pod) or pod.uid

    def _in_vain(self, job: str, count: int) -> int:
        """How many members of a gang would run on in vain, below its minimum, if it lost so many more; of one that only
        leaves as a whole how many would go with them.
        """
        state = self.state
        gang = state.gangs.get(job)
        if gang is None:
            return 0
        running = state.crews.bound.get(job, 0) + state.crews.assumed.get(job, 0)
        running -= self._hit.get(job, 0) + self._leaving(job)
        if self._companions.all_of(job):
            return max(running - count, 0)
        return running - count if running >= gang.min_member > running - count else 0

    def _leaving(self, job: str) -> int:
        """Members of a gang that leave their nodes already."""
        state = self.state
        if job not in self._gone:
            pods = (state.pods[uid] for uid in state.members.get(job, ()))
            placed = (pod for pod in pods if pod.node or pod.assumed)
            self._gone[job] = sum(1 for pod in placed if state.is_leaving(pod))
        return self._gone[job]

    def _plan(self, claim: Claim, room: Room, scores: ClassScores) -> Plan | None:
        """The fewest and least important victims that let a member in; None: it would not fit without all of them.

        First all leave, then each comes back that can, those that a budget forbids to evict before the others, the
        most important first.
        """
        if room.fits(scores):
            return Plan([], 0)
        allowed, forbidden = self._by_budget(claim, room)
        for pod in (*forbidden, *allowed):
            room.take(pod)
        fits = room.fits(scores)
        kept: dict[str, None] = {}
        for pod in (*reversed(forbidden), *reversed(allowed)) if fits else ():
            room.give_back(pod)
            if room.fits(scores):
                kept[pod.uid] = None
            else:
                room.take(pod)
        for pod in (*forbidden, *allowed):
            if pod.uid not in kept:
                room.give_back(pod)
        if not fits:
            return None
        broken = [pod for pod in forbidden if pod.uid not in kept]
        victims = [*broken, *(pod for pod in allowed if pod.uid not in kept)]
        leaving = {pod.uid: pod for pod in (*room.taken.values(), *self._with_companions(victims))}
        return (
            None if self._futility.exceeds(claim, leaving.values()) else Plan(victims, len(broken))
        )

    def _with_companions(self, victims: Iterable[Pod]) -> list[Pod]:
        return [pod for victim in victims for pod in (victim, *self._companions.of(victim))]

    def _by_budget(self, claim: Claim, room: Room) -> tuple[list[Pod], list[Pod]]:
        """Possible victims, the least important first: whom budgets let go, and, if policy lets us, whom they don't.

        For a gang, of equals those come first whose job is hit already.
        """
        assert self.state.policy is not None
        strict, left = self.state.policy.preemption.respectBudgets, dict(self._left)
        victims = [pod for pod in room.victims if pod.uid not in room.taken]
        if claim.gangs:
            victims.sort(key=lambda pod: (self._priority(pod), self._job(pod) not in self._hit))
        allowed: list[Pod] = []
        forbidden: list[Pod] = []
        # Where budgets count most, the least important go by them; else as in kube-scheduler the most important.
        whole: dict[str, bool] = {}  # gang, counted with its first victim -> it is allowed
        for pod in victims if strict else reversed(victims):
            gang = self.state.gang_key(pod)
            toll = {} if gang in whole else self._toll(pod, gang)
            is_allowed = whole.get(gang, True) and all(
                left.get(uid, self._allowed(uid)) >= count for uid, count in toll.items()
            )
            if is_allowed or not strict:
                (allowed if is_allowed else forbidden).append(pod)
                for uid, count in toll.items():
                    left[uid] = left.get(uid, self._allowed(uid)) - count
                if self._companions.all_of(gang):
                    whole[gang] = is_allowed
        return (allowed, []) if strict else (allowed[::-1], forbidden[::-1])

    def _priority(self, pod: Pod) -> int:
        return self.state.class_of(pod).priority

    def _budgets(self, pod: Pod) -> list[Budget]:
        """The budgets that count when the pod goes; who only holds room runs nowhere yet."""
        return [] if pod.held_until_us else self.state.budgets_of(pod)

    def _toll(self, pod: Pod, gang: str) -> dict[str, int]:
        """Disruptions by budget if the pod goes, with all who must leave with it."""
        together = self._companions.all_of(gang)
        if not together:
            return Counter(budget.uid for budget in self._budgets(pod))
        if gang not in self._tolls:
            covering = [self._budgets(each) for each in together]
            self._tolls[gang] = Counter(budget.uid for budgets in covering for budget in budgets)
        return self._tolls[gang]

    def _disrupt(self, pod: Pod, left: dict[str, int]) -> None:
        """Notes one more disruption."""
        for budget in self._budgets(pod):
            left[budget.uid] = left.get(budget.uid, self._allowed(budget.uid)) - 1

    def _allowed(self, budget_uid: str) -> int:
        """Disruptions that the budget allows, less the evictions under way that its status can't show yet."""
        if self._under_way is None:
            pods = self.state.pods
            leaving = [pods[uid] for uid in self.state.evicted if uid in pods]
            covering = [self.state.budgets_of(pod) for pod in leaving if not pod.deleted_us]
            self._under_way = Counter(budget.uid for budgets in covering for budget in budgets)
        return self.state.budgets[budget_uid].disruptions_allowed - self._under_way[budget_uid]

    def _cost(self, claim: Claim, room: Room, scores: ClassScores) -> Cost | None:
        """What it costs to put a member there, to compare; None: it does not fit. All 0: nobody is evicted.

        Budgets broken, the highest priority, members of gangs that would run on in vain, for a gang the jobs hit that
        were spared so far, the sum of priorities, how many they are, and how young the most important ones.
        """
        plan = self._plan(claim, room, scores)
        if plan is None:
            return None
        if not plan.victims:
            return (0,) * 7
        priorities = [self._priority(pod) for pod in plan.victims]
        highest = max(priorities)
        jobs = Counter(self._job(pod) for pod in plan.victims)
        started = min(
            pod.started_us or pod.created_us
            for pod, priority in zip(plan.victims, priorities, strict=True)
            if priority == highest
        )
        offset = 1 << 31
        return (
            plan.broken,
            highest + offset,
            sum(self._in_vain(job, count) for job, count in jobs.items()),
            sum(job not in self._hit for job in jobs) if claim.gangs else 0,
            sum(priorities) + offset * len(priorities),
            len(priorities),
            -started,
        )

    def _spare_some(self) -> None:
        """Members that came later may have made a victim unnecessary: keeps those, the most important first."""
        for name in sorted(self._rooms):
            room = self._rooms[name]
            for victim in sorted(room.taken.values(), key=self._importance):
                room.spare(victim)

    # -- carrying out ----------------------------------------------------------------------------------------

    def _carry_out(self, claim: Claim, chosen: dict[str, str], victims: list[Pod]) -> Diagnosis:
        names = [f"{victim.namespace}/{victim.name}" for victim in victims]
        for node in sorted(self._rooms):
            for pod in self._rooms[node].displaced if node in chosen.values() else ():
                self._displace(pod, claim)
        for victim in victims:
            if victim.held_until_us:
                self.placement.let_go(victim, gave_way(self.state.gang_key(victim), claim.name))
            else:
                preempt(self.trial, victim, claim)
        told = preempting(claim.name if claim.gangs else "", sorted({*chosen.values()}), names)
        for uid, node in chosen.items():
            self.placement.nominate(self.state.pods[uid], node, told)
        if not victims:  # the plan found room that is there: nobody's going would have it tried
            self.placement.let_some_go = True
        return told

    def _displace(self, pod: Pod, claim: Claim) -> None:
        """The claimant takes room that was kept for the pod: its gang group gives up all that was, half is no use."""
        for each in self._with_kept(pod):
            if each.uid in self.state.nominated:
                self.placement.let_go(each, gave_way(self.state.gang_key(each), claim.name))
