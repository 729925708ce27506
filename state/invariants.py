"""What must hold of State after every decision: derived things equal what the rows say, nothing is held twice."""

import numpy as np

from state.model.columns import UNCOUNTED_CARDS
from state.model.state import FINISHED, State, place_of


def check(state: State) -> None:
    """Raises `AssertionError` that names what is broken. Costs a pass over all rows."""
    _check_columns(state)
    _check_indexes(state)
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
        free = UNCOUNTED_CARDS if state.devices_of(name) is None else len(state.free_cards(name))
        assert columns.cards_free.item(node.ord) == free, f"free cards of {name}"


def _check_indexes(state: State) -> None:
    for uid, pod in sorted(state.pods.items()):
        assert pod.uid == uid
        assert not (pod.node and pod.assumed), f"pod {uid} is bound and assumed at once"
        assert not pod.assumed or pod.command, f"pod {uid} is assumed without a command"
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
        place = place_of(pod)
        assert not place or uid in state.pods_on[place], f"pods_on of pod {uid}"
        key = state.gang_key(pod)
        assert not key or uid in state.members[key], f"members of {key} lack {uid}"
        assert not key or key in state.gangs, f"gang {key} of pod {uid} has no row"
    indexed = sum(len(uids) for uids in state.pods_on.values())
    assert indexed == sum(1 for pod in state.pods.values() if place_of(pod)), (
        "pods_on has strangers"
    )
    assert sum(map(len, state.members.values())) == sum(
        1 for pod in state.pods.values() if state.gang_key(pod)
    )


def _check_commands(state: State) -> None:
    for uid, pod in sorted(state.pods.items()):
        if pod.command:
            command = state.commands.get(pod.command)
            assert command is not None, f"pod {uid} points at command {pod.command}"
            assert command.uid == uid, f"command {pod.command} is another pod's"
    binding: dict[str, str] = {}
    for command_id, command in sorted(state.commands.items()):
        if command.uid in state.pods:
            assert command.uid not in binding, f"pod {command.uid} has two open commands"
            binding[command.uid] = command_id
