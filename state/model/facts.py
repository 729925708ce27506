"""How news of a pod is merged, and how an object leaves: used by observations, lists and results alike.

Some facts only ever appear (nodeName, device allocation, deletionTimestamp, a terminal phase); news without them,
or older news, takes nothing back.
"""

from msgspec.structs import replace

from state.model.gangs import (
    mark_satisfied,
    refresh_gang,
    refresh_member,
    refresh_replicas,
    unmark_satisfied,
)
from state.model.lists import bury
from state.model.podclass import refuses_preemption
from state.model.rows import Pod, same_words
from state.model.seen import PodFound, PodSeen
from state.model.state import FINISHED, place_of, same_charge
from state.model.trial import Trial


def merge_facts(old: Pod, news: PodSeen | PodFound) -> Pod:
    """`old` with the facts that `news` adds."""
    node = news.node or old.node
    phase = news.phase if news.phase in FINISHED and old.phase not in FINISHED else old.phase
    allocations = old.allocations
    if news.allocations:
        allocations = news.allocations
    elif news.node and old.assumed and (news.node != old.assumed or old.held_until_us):
        allocations = ()  # they were chosen for a bind that is not this one
    return replace(
        old,
        allocations=allocations,
        assumed="" if node else old.assumed,
        deleted_us=old.deleted_us or news.deleted_us or 0,
        node=node,
        phase=phase,
        started_us=old.started_us or _started_us(news),
    )


def forget_facts(old: Pod, news: PodSeen) -> Pod:
    """`old` with only the facts that `news` shows: history was reset, so what came after it never happened.

    An open bind is not history: it goes on until its end is folded.
    """
    assumed = "" if news.node else old.assumed
    return replace(
        old,
        allocations=news.allocations or (old.allocations if assumed else ()),
        assumed=assumed,
        deleted_us=news.deleted_us or 0,
        node=news.node or "",
        phase=news.phase,
        started_us=_started_us(news),
        told_at=0,
    )


def _started_us(news: PodSeen | PodFound) -> int:
    """When the pod started, 0 if the news doesn't say so; the sink's never does."""
    return (news.started_us or 0) if isinstance(news, PodSeen) else 0


def store_pod(trial: Trial, old: Pod | None, new: Pod) -> None:
    """Writes the pod; wakes parked pods if it let go of room; keeps its gangs' rows."""
    state = trial.state
    if new.node or new.phase in FINISHED or new.deleted_us:
        new = replace(new, attempts=0, backoff_us=0, diagnosis=None, parked=False)
        if new.held_until_us or new.nominated:
            new = let_go(new)
    regrouped = old is not None and not same_words(old, new)
    if regrouped and new.held_until_us:
        new = let_go(new)  # it held the node for a gang that may not be its own any more
    if new == old:
        return
    trial.put("pods", new.uid, new)
    held = place_of(old)
    if held and (place_of(new) != held or (old is not None and not same_charge(old, new))):
        trial.wake = True
    if old is not None and place_of(new) and old.labels != new.labels:
        before, now = refuses_preemption(bytes(old.labels)), refuses_preemption(bytes(new.labels))
        trial.wake = trial.wake or (before and not now)  # a possible victim
    if old is None or regrouped:
        refresh_member(trial, state.gang_of.get(new.uid, ""))
        if old is not None:
            refresh_member(trial, state.gang_key(old))
    if new.node and (old is None or not old.node):
        mark_satisfied(trial, new)
        _end_rounds(trial, new)
    elif old is not None and old.node and not new.node:
        unmark_satisfied(trial, new)


def _end_rounds(trial: Trial, pod: Pod) -> None:
    """The pod is bound: evictions for it, or for its gang, led somewhere, and speak against no more of them."""
    state = trial.state
    for claimant in (pod.uid, state.gang_key(pod)):
        for key in sorted(state.rounds.of.get(claimant, ())):
            note = state.tables["preempted"][key]
            trial.put("preempted", key, replace(note, for_gangs=(), for_pod=""))
            trial.wake = True


def let_go(pod: Pod) -> Pod:
    """`pod` without the node that it holds for its gang, or is nominated for."""
    return replace(
        pod,
        allocations=pod.allocations if pod.node else (),
        assumed="",
        held_until_us=0,
        nominated="",
        nominated_until_us=0,
    )


def remove_pod(trial: Trial, pod: Pod, rv: int, *, told: bool = False) -> None:
    """The pod's uid is gone: everything it held is free. A command of it stays open until its end is folded.

    `told`: by a result, which has no version of its own.
    """
    trial.put("pods", pod.uid, None)
    bury(trial, "pods", pod.uid, rv, told=told)
    if place_of(pod):
        trial.wake = True
    refresh_member(trial, trial.state.gang_key(pod))


def remove_object(trial: Trial, table: str, uid: str) -> None:
    """Removes the row with that uid from a table of anything but pods, if it is there."""
    rows = trial.state.tables[table]
    row = rows.get(uid)
    key = uid
    if row is None:
        key = min((name for name, other in rows.items() if other.uid == uid), default="")
        row = rows.get(key)
    if row is None:
        return
    trial.put(table, key, None)
    if table == "podgroups":
        refresh_gang(trial, f"{row.namespace}/{row.name}")
        trial.wake = trial.wake or row.disruption == "all"  # its pods may be victims now
    elif table == "workloads":
        refresh_replicas(trial, f"{row.namespace}/{row.name}")
    elif table in ("nodes", "devices", "budgets"):
        trial.wake = True
