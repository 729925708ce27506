"""Who belongs together, and where that stands in the line: units, their members, what they still need. Reads only.

`ready` writes why a pod may not be tried at all. Called by `state.cycle` and all that it calls.
"""

from collections.abc import Iterable, Mapping

from msgspec import Struct

from state.model.gangs import podgroup_of
from state.model.order import OrderKey, order_key
from state.model.partners import Keys
from state.model.rows import Gang, Pod
from state.model.shapes import Entry, Shape
from state.model.state import State
from state.placement import Placement
from state.rules.gangs import ONCE_SATISFIED, still_needed

UPSTREAM = "scheduling.x-k8s.io"


class Unit(Struct, frozen=True):
    """What is tried as a whole: `gangs` empty for the single pod `uid`."""

    key: OrderKey
    uid: str
    gangs: Keys


class Line:
    """The waiting units of one cycle."""

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self.state: State = placement.state

    def units(self, uids: Iterable[str]) -> list[Unit]:
        """What pods that wait or hold room stand in the queue as, in its order; without those that may not be tried."""
        state = self.state
        singles: list[Unit] = []
        groups: dict[Keys, None] = {}
        alone: dict[str, bool] = {}
        for uid in uids:
            pod = state.pods[uid]
            if uid in state.waiting and not self.placement.is_ready(pod):
                continue
            gang_key = state.gang_of.get(uid, "")
            gang = state.gangs.get(gang_key) if gang_key else None
            if gang is not None and gang_key not in alone:
                alone[gang_key] = self.comes_alone(gang_key)
            if gang is None or alone[gang_key]:
                singles.append(self.single(pod))
            else:
                groups[state.partners.of(gang_key)] = None
        found = [*singles, *(self.group(keys) for keys in groups)]
        return sorted(found, key=lambda unit: unit.key)

    def single(self, pod: Pod) -> Unit:
        """The pod as a unit of its own."""
        return Unit(key=self.state.order_of(pod), uid=pod.uid, gangs=())

    def group(self, keys: Keys) -> Unit:
        """A gang group: it goes by its most important ready member and its oldest gang."""
        state = self.state
        pods = [pod for key in keys for pod in (*self._ready(key), *self.held(key))]
        rank = max((self._rank(pod) for pod in pods), default=(0, 0))
        created_us = min(state.gangs[key].created_us for key in keys if key in state.gangs)
        return Unit(key=order_key(rank, created_us, ",".join(keys), ""), uid="", gangs=keys)

    def alike(self, tried: Mapping[Keys, None]) -> list[list[Entry]]:
        """Waiting groups with their places in the queue, those together that ask for the same; without those `tried`.

        Of two that ask for the same one fits where the other does.
        """
        grouped = self.reshape()
        lines = [
            [entry for entry in line.values() if entry[1] not in tried]
            for line in self.state.shapes.alike.values()
        ]
        lines += [[(self.group(keys).key, keys)] for keys in grouped if keys not in tried]
        return [line for line in lines if line]

    def reshape(self) -> dict[Keys, None]:
        """Works out what parked gangs ask for that changed since; the groups of more than one."""
        state = self.state
        grouped: dict[Keys, None] = {}
        for key in list(state.shapes.unknown):
            gang = state.gangs.get(key)
            if gang is None or gang.groups:
                grouped[state.partners.of(key)] = None
            else:
                state.shapes.keep(key, self._shape(key))
        return grouped

    def _shape(self, key: str) -> Shape:
        state = self.state
        gang, ready = state.gangs[key], self.ready(key)
        runs: list[tuple[bytes, int]] = []
        for pod in ready:
            spec = bytes(pod.spec)
            if runs and runs[-1][0] == spec:
                runs[-1] = (spec, runs[-1][1] + 1)
            else:
                runs.append((spec, 1))
        group = podgroup_of(state, key)
        upstream = group is not None and group.group == UPSTREAM
        wanted = group.min_resources if group is not None and upstream else None
        needed = self.needed(key, gang)
        return Shape(
            asks=(
                needed,
                # What it may hold while it waits, and thereby whose room it may take, follows from these.
                (gang.mode, self.match(gang), gang.min_member, self.assigned(key)),
                (bool(gang.source), upstream, gang.rest_until_us),
                tuple(sorted((wanted or {}).items())),
                *runs,
            ),
            needed=needed,
            place=order_key(
                max((self._rank(pod) for pod in (*ready, *self.held(key))), default=(0, 0)),
                gang.created_us,
                key,
                "",
            ),
        )

    def comes_alone(self, key: str) -> bool:
        """Whether members of the gang have nobody to wait for: it is valid without them, and so are its partners."""
        gang = self.state.gangs.get(key)
        if gang is None or not gang.source or self.needed(key, gang) or self.held(key):
            return False
        started = gang.satisfied and self.match(gang) == ONCE_SATISFIED
        return not any(
            self._holds_back(partner, started=started)
            for partner in self.state.partners.of(key)
            if partner != key
        )

    def ready(self, key: str) -> list[Pod]:
        """The gang's members that wait and may be tried, in order."""
        return sorted(self._ready(key), key=self.state.order_of)

    def _ready(self, key: str) -> list[Pod]:
        state = self.state
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.waiting]
        return [pod for pod in pods if not pod.gates and self.placement.is_ready(pod)]

    def held(self, key: str) -> list[Pod]:
        """The gang's members that hold a node, in order."""
        state = self.state
        if not state.holding:
            return []
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.holding]
        return sorted(pods, key=self.state.order_of)

    def nominated(self, key: str) -> list[Pod]:
        """The gang's members that room is kept for, in order."""
        state = self.state
        if not state.nominated:
            return []
        pods = [state.pods[uid] for uid in state.members.get(key, ()) if uid in state.nominated]
        return sorted(pods, key=self.state.order_of)

    def _rank(self, pod: Pod) -> tuple[int, int]:
        key = self.state.order_of(pod)
        return -key.negative_priority, -key.negative_sub_priority

    def match(self, gang: Gang) -> str:
        assert self.state.policy is not None
        return gang.match or self.state.policy.gangs.defaultMatchPolicy

    def assigned(self, key: str) -> tuple[int, int]:
        """Members with a node: not known to the API server yet, and known."""
        return self.state.crews.assumed.get(key, 0), self.state.crews.bound.get(key, 0)

    def needed(self, key: str, gang: Gang) -> int:
        """Members still to be placed before the gang is valid."""
        if gang.satisfied and self.match(gang) == ONCE_SATISFIED:
            return 0
        waiting, bound = self.assigned(key)
        return still_needed(
            self.match(gang), gang.min_member, waiting, bound, satisfied=gang.satisfied
        )

    def _holds_back(self, partner: str, *, started: bool) -> bool:
        """Whether a gang waits for this partner. Where it has `started`, its once-satisfied partners have, too."""
        gang = self.state.gangs.get(partner)
        if gang is None or not gang.source:
            return not started
        if started and self.match(gang) == ONCE_SATISFIED:
            return False
        return self.needed(partner, gang) > 0 or bool(self.held(partner))
