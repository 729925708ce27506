"""What must hold of State after every decision: derived things equal what the rows say, nothing is held twice."""

import numpy as np

from state.model.columns import UNCOUNTED_CARDS
from state.model.diagnoses import FOR_ROOM
from state.model.order import order_key
from state.model.rounds import claimants_of
from state.model.state import FINISHED, State, place_of
from state.model.workloads import workload_of


def check(state: State) -> None:
    """Raises `AssertionError` that names what is broken. Costs a pass over all rows."""
    _check_columns(state)
    _check_indexes(state)
    _check_counts(state)
    _check_cards(state)
    _check_groups(state)
    _check_budgets(state)
    _check_rounds(state)
    _check_commands(state)


def _check_columns(state: State) -> None:
    columns = state.columns
    used = np.zeros_like(columns.used)
    for uid in sorted(state.pods):
        pod = state.pods[uid]
        node = state.nodes.get(place_of(pod))
        if node is None:
            continue
        for name, amount in state.class_of(pod).requests:
            used[columns.axes[name], node.ord] += amount
    assert (used == columns.used).all(), "columns.used differs from the pods' requests"
    taken: dict[int, str] = {}
    for name in sorted(state.nodes):
        node = state.nodes[name]
        assert node.ord not in taken, (
            f"nodes {taken.get(node.ord)} and {name} share ordinal {node.ord}"
        )
        taken[node.ord] = name
        assert columns.names[node.ord] == name, (
            f"columns know ordinal {node.ord} as {columns.names[node.ord]}"
        )
        for resource, amount in node.allocatable.items():
            assert columns.total.item(columns.axes[resource], node.ord) == amount, (
                f"total {resource} of {name}"
            )
        free = UNCOUNTED_CARDS if state.devices_of(name) is None else state.cards_left(name)
        assert columns.cards_free.item(node.ord) == free, f"free cards of {name}"


def _check_indexes(state: State) -> None:
    for uid, pod in sorted(state.pods.items()):
        assert pod.uid == uid
        assert not (pod.node and pod.assumed), f"pod {uid} is bound and assumed at once"
        assert not pod.assumed or pod.command or pod.held_until_us, (
            f"pod {uid} is assumed without a command"
        )
        assert not (pod.nominated and (pod.node or pod.assumed)), (
            f"pod {uid} is nominated and placed"
        )
        assert (uid in state.nominated) == bool(pod.nominated), f"nominated index of pod {uid}"
        assert not pod.held_until_us or pod.assumed, f"pod {uid} holds no node"
        assert (uid in state.holding) == (pod.held_until_us > 0), f"holding index of pod {uid}"
        waits = (
            not (pod.node or pod.assumed or pod.command or pod.deleted_us)
            and pod.phase not in FINISHED
        )
        assert (uid in state.waiting) == (waits and state.is_ours(pod)), (
            f"waiting index of pod {uid}"
        )
        assert (uid in state.active) == (uid in state.waiting and not pod.parked), (
            f"active index of pod {uid}"
        )
        told = pod.diagnosis is not None and pod.diagnosis.code in FOR_ROOM
        lacks_room = uid in state.waiting and told and not pod.nominated
        assert (uid in state.for_room.get(state.gang_key(pod), ())) == lacks_room, (
            f"index of pods that lack room: {uid}"
        )
        rank = state.class_of(pod).priority, state.membership(pod).sub_priority
        order = order_key(rank, pod.created_us, f"{pod.namespace}/{pod.name}", uid)
        assert state.order_of(pod) == order, f"place in the queue of pod {uid}"
        place = place_of(pod)
        assert not place or uid in state.pods_on.get(place, ()), f"pods_on of pod {uid}"
        key = state.gang_key(pod)
        assert not key or uid in state.members.get(key, ()), f"members of {key} lack {uid}"
        assert not key or key in state.gangs, f"gang {key} of pod {uid} has no row"
        assert (uid in state.backing_off) == (uid in state.waiting and pod.backoff_us > 0), (
            f"back-off index of pod {uid}"
        )
    for index in (state.waiting, state.active, state.backing_off, state.holding):
        assert all(uid in state.pods for uid in index), "an index has pods that are gone"
    indexed = sum(len(uids) for uids in state.pods_on.values())
    assert indexed == sum(1 for pod in state.pods.values() if place_of(pod)), (
        "pods_on has strangers"
    )


def _check_counts(state: State) -> None:
    placed: dict[int, int] = {}
    for pod in state.pods.values():
        if place_of(pod) and not pod.nominated:
            priority = state.class_of(pod).priority
            placed[priority] = placed.get(priority, 0) + 1
    counted = {priority: n for priority, n in state.placed_by_priority.items() if n}
    assert placed == counted, "placed pods by priority"
    for counts, has in ((state.crews.assumed, "assumed"), (state.crews.bound, "node")):
        found: dict[str, int] = {}
        for pod in state.pods.values():
            if (key := state.gang_key(pod)) and getattr(pod, has):
                found[key] = found.get(key, 0) + 1
        assert found == counts, f"members by gang that have {has}"
    for key in state.members:
        oldest = min(
            (state.pods[uid] for uid in state.members[key]),
            key=lambda pod: (pod.created_us, pod.uid),
        )
        assert state.crews.first(key) == oldest, f"first member of {key}"
    assert sum(map(len, state.members.values())) == sum(
        1 for pod in state.pods.values() if state.gang_key(pod)
    )


def _check_cards(state: State) -> None:
    held = sum(len(state.pods[uid].allocations) for uid in state.pods if place_of(state.pods[uid]))
    users = [users for cards in state.card_users.values() for users in cards.values()]
    assert sum(map(len, users)) <= held, "cards are held by pods that are gone"
    for uid, pod in sorted(state.pods.items()):
        for card in pod.allocations if place_of(pod) else ():
            assert uid in state.card_users[place_of(pod)][card.type, card.minor], (
                f"card {card.type} {card.minor} of pod {uid}"
            )


def _check_groups(state: State) -> None:
    named: dict[str, set[str]] = {key: set() for key in state.groups_named}
    for uid, group in sorted(state.podgroups.items()):
        named[f"{group.namespace}/{group.name}"].add(uid)
    assert named == {key: set(uids) for key, uids in state.groups_named.items()}, "groups_named"
    replicas: dict[str, set[str]] = {}
    for key, gang in sorted(state.gangs.items()):
        assert gang.source or state.members.get(key), f"gang {key} is nobody's"
        if workload := workload_of(key):
            replicas.setdefault(workload, set()).add(key)
            assert state.members.get(key), f"replica {key} has no pods"
        assert (key in state.resting) == (gang.rest_until_us > 0), f"resting index of gang {key}"
        for other in gang.groups:
            assert key in state.partners.named_by[other], f"partners of gang {other} lack {key}"
    assert sum(map(len, state.partners.named_by.values())) == sum(
        len(gang.groups) for gang in state.gangs.values()
    ), "partners has strangers"
    known = {key: set(gangs) for key, gangs in state.replicas.of.items()}
    assert replicas == known, "gangs of Workloads"


def _check_rounds(state: State) -> None:
    claimed: dict[str, set[str]] = {}
    for key, note in sorted(state.tables["preempted"].items()):
        for each in claimants_of(note):
            claimed.setdefault(each, set()).add(key)
    assert claimed == {each: set(keys) for each, keys in state.rounds.of.items()}, "rounds"


def _check_budgets(state: State) -> None:
    indexed: dict[str, set[str]] = {key: set() for key in state.budgets_in}
    for uid, budget in sorted(state.budgets.items()):
        indexed[budget.namespace].add(uid)
    assert indexed == {key: set(uids) for key, uids in state.budgets_in.items()}, "budgets_in"


def _check_commands(state: State) -> None:
    for command_id, command in sorted(state.commands.items()):
        assert command_id in state.commands_of[command.uid], f"commands_of lacks {command_id}"
        pod = state.pods.get(command.uid)
        assert pod is None or pod.command == command_id, (
            f"pod {command.uid} does not know its open command {command_id}"
        )
    assert sum(map(len, state.commands_of.values())) == len(state.commands)
    for uid, pod in sorted(state.pods.items()):
        assert not pod.command or pod.command in state.commands, (
            f"pod {uid} points at command {pod.command}, which is not open"
        )
