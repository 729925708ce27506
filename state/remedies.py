"""What would help a unit that does not fit: room that comes free where the least is missing, or evictions.

Works on paper, on a trial that its owner drops. Called by `state.explain`.
"""

from collections import deque
from typing import Any

import msgspec

from state.line import Unit
from state.model.rows import Pod
from state.model.state import State, place_of
from state.placement import Placement
from state.preemption import Preemption
from state.shortfall import Shortfall
from state.units import Units

Json = dict[str, Any]
#: By gang (empty for a single pod): members that fit nowhere, in order, and how many of them must.
Failed = dict[str, tuple[list[Pod], int]]


class Remedies:
    """Of one unit."""

    def __init__(self, units: Units, placement: Placement) -> None:
        self.units = units
        self.placement = placement
        self.state: State = placement.state

    def to_free(self, failed: Failed) -> Json | None:
        """What must come free for all that must fit, put one after another where that is least. None: nothing.

        `never`: so many of them fit on no node that they may use, were it empty.
        """
        if not failed:
            return None
        shortfall = Shortfall(self.state)
        pods_on: dict[str, list[str]] = {}
        never = 0
        for pods, count in failed.values():
            alike: dict[bytes, deque[Pod]] = {}
            for pod in pods:
                alike.setdefault(bytes(pod.spec), deque()).append(pod)
            for done in range(count):
                best = self._next_to_put(shortfall, alike)
                if best is None:
                    never += count - done
                    break
                spec, node_ord = best
                pod = alike[spec].popleft()
                shortfall.put(self.state.scores_of(pod), node_ord)
                pods_on.setdefault(self.state.columns.names[node_ord], []).append(name_of(pod))
        nodes = [
            {**msgspec.to_builtins(each), "pods": pods_on[each.node]} for each in shortfall.freed()
        ]
        return {"never": never, "nodes": nodes}

    def _next_to_put(
        self, shortfall: Shortfall, alike: dict[bytes, deque[Pod]]
    ) -> tuple[bytes, int] | None:
        """The class of which a pod lacks the least, of equals the class that comes first, and the node's ordinal."""
        best: tuple[int, bytes, int] | None = None
        for spec, pods in alike.items():
            found = shortfall.cheapest(self.state.scores_of(pods[0])) if pods else None
            if found is not None and (best is None or found[0] < best[0]):
                best = found[0], spec, found[1]
        return None if best is None else best[1:]

    def evictions(self, unit: Unit, needed: list[Pod]) -> Json:
        """Whom evictions for all `needed` would take, whether policy lets the unit preempt or not."""
        policy = self.state.policy
        assert policy is not None
        if unit.gangs:
            claim = self.units.claim_of_group(unit, needed)
            allowed = policy.gangs.enablePreemption
        else:
            claim, allowed = self.units.claim_of_single(needed[0]), policy.preemption.pods
        mark = self.placement.mark()
        told = Preemption(self.placement).make_room(claim, [(len(needed), needed)])
        self.placement.back_to(mark)
        if told is None:
            return {
                "allowed": allowed,
                "code": None,
                "helps": False,
                "message": self._why_in_vain(needed),
                "victims": [],
            }
        nodes = told.details.get("nodes_kept", [])
        return {
            "allowed": allowed,
            "code": told.code,
            "helps": bool(nodes),
            "message": told.message,
            "victims": self._victims(told.details.get("victims", [])),
        }

    def _why_in_vain(self, needed: list[Pod]) -> str:
        classes = [self.state.class_of(pod) for pod in needed]
        if any(each.spec.preemption_policy == "Never" for each in classes):
            return "its preemptionPolicy is Never"
        if not any(self.state.outranks_some(pod) for pod in needed):
            return "no pod of a lower priority has a node"
        return "the less important pods that may be evicted do not hold enough"

    def _victims(self, told: list[str]) -> list[Json]:
        state = self.state
        pods = [state.pods[uid] for name in told for uid in state.pods_named.get(name, ())]
        return [
            {
                "node": pod.node or pod.assumed,
                "pod": name_of(pod),
                "priority": state.class_of(pod).priority,
            }
            for pod in sorted(pods, key=lambda pod: (pod.namespace, pod.name, pod.uid))
            if place_of(pod) and not pod.nominated and not state.is_leaving(pod)
        ]


def name_of(pod: Pod) -> str:
    """The pod's `ns/name`."""
    return f"{pod.namespace}/{pod.name}"
