"""Keeps nodes for the unit that has waited too long at the head of the queue, so that backfill can't starve it.

Backfill goes on until the head has been the head for `queue.holdAfter`. Then the nodes that it would fit on, those with
the least in use first, are kept for it and for what comes before it in the queue: what leaves them is not given to
others. At most `queue.holdNodesPercent` of the nodes, at most for `queue.holdFor`; after that others have their turn as
long as the first time. Called by `state.cycle` and `state.units`.
"""

import heapq
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from typing import Final

import numpy as np
from msgspec.structs import replace

from state.candidates import refresh
from state.line import Line, Unit
from state.model.columns import UNCOUNTED_CARDS, Ints
from state.model.limits import HEADS_MAX
from state.model.order import OrderKey
from state.model.partners import Keys
from state.model.rows import Head
from state.model.scores import MAY, ClassScores
from state.model.state import State
from state.packing import Wanted
from state.placement import Placement

Asked = list[tuple[ClassScores, int]]  # so many pods of each class
_CARDS: Final = -1  # the row of `room` that counts cards


class HeadOfQueue:
    """The head of the queue in one cycle."""

    def __init__(self, line: Line, placement: Placement) -> None:
        self.line = line
        self.placement = placement
        self.trial = placement.trial
        self.state: State = placement.state

    @contextmanager
    def opened(self, unit: Unit) -> Iterator[None]:
        """While the unit is tried: kept nodes are open to the head, and to what comes before it."""
        row = self.state.head()
        if row is None or not row.nodes or unit.key > place_of_head(row):
            yield
            return
        self.trial.put("head", "head", replace(row, nodes=()))
        self.placement.forget_misfits()
        yield
        self.placement.forget_misfits()
        self.trial.put("head", "head", row)

    def waiting(self) -> list[str]:
        """Uids of the head that nodes are kept for: whatever comes free may be what it waits for."""
        row, state = self.state.head(), self.state
        if row is None or not row.nodes:
            return []
        uids = [row.uid] if row.uid else []
        for key in () if row.uid else self._gangs_of(row):
            uids += sorted(state.members.get(key, ()))
        return [uid for uid in uids if uid in state.waiting]

    def check(self) -> None:
        """Looks who is the head, when it is time to; begins and ends keeping."""
        state, now_us = self.state, self.trial.now_us
        assert state.policy is not None
        rules, row = state.policy.queue, state.head()
        if not rules.holdAfter or not state.waiting:
            if row is not None:
                self._write(None)
            return
        place = self._place_now(row) if row is not None else None
        in_time = row is not None and now_us < row.next_us and place is not None
        if row is not None and in_time and place == place_of_head(row):
            return
        if row is not None and row.nodes:  # they are open to all who may be next
            self._write(replace(row, nodes=()))
        head = self._first()
        if head is None:
            if row is not None:
                self._write(None)
            return
        same = row is not None and place == head.key
        if row is not None and same and in_time:  # the first in line still, from another place
            since = {"next_us": row.next_us, "since_us": row.since_us}
            self._write(replace(self._begun(head), **since, nodes=row.nodes))
            return
        if row is None or not same or row.nodes:  # new, or its nodes were kept long enough
            self._write(self._begun(head))
            return
        nodes = self._nodes_for(head)
        kept = replace(
            row, next_us=now_us + (rules.holdFor if nodes else rules.holdAfter), nodes=nodes
        )
        self._write(kept)

    def _write(self, row: Head | None) -> None:
        old = self.state.head()
        if old is not None and old.nodes and (row is None or row.nodes != old.nodes):
            self.placement.let_some_go = True  # others may use them now
        self.trial.put("head", "head", row)

    def _begun(self, head: Unit) -> Head:
        assert self.state.policy is not None
        key = head.key
        return Head(
            created_us=key.created_us,
            name=key.name,
            negative_priority=key.negative_priority,
            negative_sub_priority=key.negative_sub_priority,
            next_us=self.trial.now_us + self.state.policy.queue.holdAfter,
            since_us=self.trial.now_us,
            uid=key.uid,
        )

    def _place_now(self, row: Head) -> OrderKey | None:
        """The place in the queue of whom the row names: members and PodGroups come and go. None: it waits no more."""
        state = self.state
        if row.uid:
            key = state.gang_of.get(row.uid, "")
            alone = key not in state.gangs or self.line.comes_alone(key)
            waits = alone and row.uid in state.waiting
            return state.order_of(state.pods[row.uid]) if waits else None
        keys = self._gangs_of(row)
        together = [key for key in keys if not self.line.comes_alone(key)]
        if not any(uid in state.waiting for key in together for uid in state.members.get(key, ())):
            return None
        shape = state.shapes.of.get(row.name)
        return shape.place if shape is not None else self.line.group(keys).key

    def _gangs_of(self, row: Head) -> Keys:
        """The gangs whose group the row names; empty: there is no such group any more. Names may hold commas."""
        gangs = self.state.gangs
        named = gangs.get(row.name)
        if named is not None and not named.groups:
            return (row.name,)
        likely = row.name.split(",")
        known = (key for key in chain(likely, gangs) if key in gangs and gangs[key].groups)
        groups = map(self.state.partners.of, known)
        return next((keys for keys in groups if ",".join(keys) == row.name), ())

    def _first(self) -> Unit | None:
        """The first unit in line that waits for room and for which nodes could be kept; else the first."""
        units = self._first_few()
        return next((unit for unit in units if self._nodes_for(unit)), units[0] if units else None)

    def _first_few(self) -> list[Unit]:
        """The first units in line that wait for room."""
        state, line = self.state, self.line
        line.reshape()
        units: dict[Unit, None] = {}
        places: list[tuple[OrderKey, str]] = []
        for key in state.for_room:
            shape, gang = state.shapes.of.get(key), state.gangs.get(key)
            if shape is not None and shape.needed and gang is not None and not gang.groups:
                places.append((shape.place, key))  # it comes as a whole
            elif gang is None or line.comes_alone(key):
                pods = (state.pods[uid] for uid in state.for_room[key])
                for pod in heapq.nsmallest(HEADS_MAX, pods, key=state.order_of):
                    units[line.single(pod)] = None
            else:
                units[line.group(state.partners.of(key))] = None
        for _, key in heapq.nsmallest(HEADS_MAX, places):
            units[line.group((key,))] = None
        return heapq.nsmallest(HEADS_MAX, units, key=lambda unit: unit.key)

    # -- which nodes -----------------------------------------------------------------------------------------

    def _nodes_for(self, head: Unit) -> tuple[str, ...]:
        """Nodes on which all that the unit still needs would fit, were they empty; empty: there are not enough.

        A gang's members are those that come first in the queue, or else those with the most room.
        """
        assert self.state.policy is not None
        columns = self.state.columns
        bound = max(len(self.state.nodes) * self.state.policy.queue.holdNodesPercent // 100, 1)
        wanted = self._wanted(head)
        cards = any(self.state.class_of(pod).cards for _, pods in wanted for pod in pods)
        room = np.vstack((columns.total, self._cards() if cards else columns.cards_free))
        for asked in self._choices(wanted, room):
            chosen = self._put(asked, room.copy())
            if chosen:
                return tuple(sorted([columns.names[node_ord] for node_ord in chosen][:bound]))
        return ()

    def _put(self, asked: Asked, room: Ints) -> dict[int, None]:
        """Ordinals of nodes on which all fit in `room`, which is used up; empty: they don't."""
        chosen: dict[int, None] = {}
        # Who could be on few nodes chooses first; sorting keeps the order of the queue among equals.
        for scores, count in sorted(asked, key=lambda each: len(self._emptied(each[0], room, {}))):
            left = count
            for node_ord, slots in self._emptied(scores, room, chosen):
                if left <= 0:
                    break
                chosen[node_ord] = None
                put = min(slots, left)
                left -= put
                for axis, amount in scores.request.items():
                    room[axis, node_ord] -= put * amount
                room[_CARDS, node_ord] -= put * scores.podclass.cards
            if left > 0:
                return {}
        return chosen

    def _cards(self) -> Ints:
        """Healthy whole cards by ordinal, as if nobody used them."""
        state, columns = self.state, self.state.columns
        cards = np.full(columns.capacity, UNCOUNTED_CARDS, dtype=np.int64)
        for name, node in state.nodes.items():
            if state.devices_of(name) is not None:
                cards[node.ord] = len(state.free_cards(name, state.pods_on.get(name, {})))
        return cards

    def _wanted(self, head: Unit) -> Wanted:
        """The ready members of each gang in order, and how many of them it needs; a single pod."""
        if head.uid:
            return [(1, [self.state.pods[head.uid]])]
        gangs = ((key, self.state.gangs.get(key)) for key in head.gangs)
        return [
            (self.line.needed(key, gang) if gang is not None else 0, self.line.ready(key))
            for key, gang in gangs
        ]

    def _choices(self, wanted: Wanted, room: Ints) -> Iterator[Asked]:
        """Which classes the unit may need room for, and how many pods of each; without those that would not fit in
        `room`.
        """
        classes = {
            bytes(pod.spec): self.state.scores_of(pod)
            for _, pods in wanted
            for pod in {bytes(pod.spec): pod for pod in pods}.values()
        }
        slots = {spec: int(self._slots(each, room)[1].sum()) for spec, each in classes.items()}
        first = _count(wanted, slots)
        yield [(classes[spec], count) for spec, count in first.items()]
        by_room = [
            (count, sorted(pods, key=lambda pod: -slots[bytes(pod.spec)])) for count, pods in wanted
        ]
        second = _count(by_room, slots)
        if second != first:
            yield [(classes[spec], count) for spec, count in second.items()]

    def _slots(self, scores: ClassScores, room: Ints) -> tuple[Ints, Ints]:
        """Ordinals of the nodes that the class may use, and how many pods of it fit in `room` on each."""
        refresh(self.state, scores)
        ords = (scores.reason == MAY).nonzero()[0]
        slots = np.full(len(ords), np.iinfo(np.int64).max >> 32, dtype=np.int64)
        for axis, amount in scores.request.items():
            if amount:
                np.minimum(slots, room[axis].take(ords) // amount, out=slots)
        if scores.podclass.cards:
            cards = room[_CARDS].take(ords)
            np.minimum(slots, cards // scores.podclass.cards, out=slots)
            if not scores.podclass.by_kubelet:
                slots[cards >= UNCOUNTED_CARDS // 2] = 0
        return ords, np.maximum(slots, 0)

    def _emptied(
        self, scores: ClassScores, room: Ints, chosen: dict[int, None]
    ) -> list[tuple[int, int]]:
        """(ordinal, pods of the class that fit in `room`), `chosen` nodes first, then those with the least in use."""
        columns = self.state.columns
        ords, slots = self._slots(scores, room)
        in_use = np.zeros(len(ords), dtype=np.int64)
        for axis, amount in scores.request.items():
            if amount:
                total = columns.total[axis].take(ords)
                share = columns.used[axis].take(ords) * 1_000 // np.maximum(total, 1)
                np.maximum(in_use, share, out=in_use)
        in_use[np.isin(ords, list(chosen))] = -1
        order = np.lexsort((ords, in_use))
        return [(int(ords[i]), int(slots[i])) for i in order.tolist() if slots[i] > 0]


def _count(wanted: Wanted, slots: Mapping[bytes, int]) -> dict[bytes, int]:
    """How many of each class: as many of each list as are wanted, the first that have a slot; empty: too few have."""
    left, counts = dict(slots), dict.fromkeys(slots, 0)
    for count, pods in wanted:
        missing = count
        for pod in pods:
            if missing and left[bytes(pod.spec)] > 0:
                left[bytes(pod.spec)] -= 1
                counts[bytes(pod.spec)] += 1
                missing -= 1
        if missing:
            return {}
    return {spec: count for spec, count in counts.items() if count}


def place_of_head(row: Head) -> OrderKey:
    """Its place in the queue."""
    return OrderKey(
        row.negative_priority, row.negative_sub_priority, row.created_us, row.name, row.uid
    )
