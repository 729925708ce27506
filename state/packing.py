"""Other orders for members that are not alike, for when the queue's order had no node for some of them.

Each member goes to the best node of its class as ever; what changes is who is asked first. No search: a fit may be
missed. Called by `state.units` and `state.preemption`.
"""

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from state.model.rows import Pod

Wanted = list[tuple[int, list[Pod]]]  # of each list so many, in the order of the queue


class Roominess(Struct, frozen=True):
    """Of one class: `slots` of them would fit if nobody else came, on `nodes` nodes."""

    slots: int
    nodes: int


def other_orders(wanted: Wanted, measure: Callable[[Pod], Roominess]) -> Iterator[list[Pod]]:
    """As many members of each list as are wanted, those with the most room, in orders worth a try; none if all are
    alike, or too few have room at all.

    Those with the least room are first: by how many would fit, then by how many nodes they could be on.
    """
    classes: dict[bytes, Roominess] = {}
    for _, pods in wanted:
        for pod in pods:
            if bytes(pod.spec) not in classes:
                classes[bytes(pod.spec)] = measure(pod)
    taken = _take(wanted, classes) if len(classes) > 1 else []
    if not taken:
        return

    def room(pod: Pod) -> Roominess:
        return classes[bytes(pod.spec)]

    first = sorted(taken, key=lambda pod: (room(pod).slots, room(pod).nodes, bytes(pod.spec)))
    yield first
    second = sorted(taken, key=lambda pod: (room(pod).nodes, room(pod).slots, bytes(pod.spec)))
    if second != first:
        yield second


def may_fit(wanted: Wanted, measure: Callable[[Pod], Roominess]) -> bool:
    """Whether as many of each list as are wanted would fit if nobody else came; else no order helps."""
    for count, pods in wanted:
        alike: dict[bytes, list[Pod]] = {}
        for pod in pods:
            alike.setdefault(bytes(pod.spec), []).append(pod)
        if count > sum(min(len(each), measure(each[0]).slots) for each in alike.values()):
            return False
    return True


def _take(wanted: Wanted, classes: Mapping[bytes, Roominess]) -> list[Pod]:
    """Of each list the members with the most room, as many as are wanted; empty: too few have any."""
    left = {spec: each.slots for spec, each in classes.items()}
    taken: list[Pod] = []
    for count, pods in wanted:
        enough = len(taken) + count
        for pod in sorted(pods, key=lambda pod: -classes[bytes(pod.spec)].slots):
            if len(taken) < enough and left[bytes(pod.spec)] > 0:
                left[bytes(pod.spec)] -= 1
                taken.append(pod)
        if len(taken) < enough:
            return []
    return taken
