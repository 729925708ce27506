"""Lists: a resource is listed anew, what the list did not name is gone; and messages that could not be taken in."""

from typing import Any

from msgspec.structs import replace

from state.model.facts import remove_object, remove_pod
from state.model.limits import EPOCHS_KEPT, LIST_PATIENCE_US, RESOURCES
from state.model.lists import (
    ask_resync,
    bury,
    contradict,
    doubt,
    is_rewritten,
    overrules,
    weigh_lack,
)
from state.model.policy import needed_resources
from state.model.rows import Named, OpenList, Pod, Sync
from state.model.seen import (
    KindAbsentSeen,
    RejectionSeen,
    StillThereSeen,
    SyncFinishSeen,
    SyncStartSeen,
)
from state.model.trial import Trial


def on_sync_started(trial: Trial, seen: SyncStartSeen) -> None:
    """Opens a list, once. One below the highest version known means that history was reset: its objects win.

    Or it is a list that was long under way, by an informer that slept: then what it says is wrong. Nobody can tell, so
    nothing is placed until all has been said anew. The whole list that follows a contradiction wins likewise.
    """
    known = trial.state.syncs.get(seen.resource, Sync())
    if (
        seen.resource not in RESOURCES
        or seen.epoch in trial.state.lists
        or seen.epoch in known.epochs
    ):
        return
    listing = OpenList(
        cold=seen.cold,
        heard=None if seen.heard is None else min(seen.heard, trial.sequence - 1),
        list_rv=seen.list_rv,
        producer=seen.producer,
        resource=seen.resource,
        sequence=trial.sequence,
        whole=seen.whole or seen.cold,
    )
    overturns = known.contradicted and listing.whole and listing.after >= known.doubted
    reset = overturns or seen.list_rv < _highest(trial, seen.resource, known)
    asked_us = trial.now_us if seen.cold or reset else 0
    trial.put("lists", seen.epoch, replace(listing, asked_us=asked_us, reset=reset))
    if reset:
        doubt(trial, seen.resource)


def on_still_there(trial: Trial, seen: StillThereSeen) -> None:
    """An unchanged object of an open list; one that we don't know means that we missed something: ask for all anew."""
    listing = trial.state.lists.get(seen.epoch)
    if listing is None or listing.resource != seen.resource:
        return
    trial.named.setdefault(seen.epoch, {})[seen.uid] = None
    row = _row_of(trial, listing.resource, seen.uid)
    if row is not None:
        if is_rewritten(listing, seen.rv, row.rv):
            contradict(trial, seen.resource)
        elif isinstance(row, Pod) and row.told_at and row.rv <= listing.list_rv:
            weigh_lack(
                trial, listing, row.told_at
            )  # unchanged is what was published; a result told more
        return
    tombstone = trial.state.tables["tombstones"].get(seen.uid)
    if tombstone is None or overrules(listing, tombstone):
        doubt(trial, seen.resource)


def on_sync_finished(trial: Trial, seen: SyncFinishSeen) -> None:
    """Closes a list: objects that it did not name, and that are not newer, are gone.

    Lists of no later version go with it: whoever began them says nothing that is not known now.
    """
    state = trial.state
    listing = state.lists.get(seen.epoch)
    if listing is None or listing.resource != seen.resource:
        return
    named = dict(trial.named.get(seen.epoch, {}))
    for key in _chunks(trial, seen.epoch):
        row = state.tables["named"][key]
        assert isinstance(row, Named)
        named.update(dict.fromkeys(row.uids))
    for uid, rv in _objects(trial, seen.resource):
        if uid not in named and (listing.reset or rv <= seen.list_rv):
            _remove(
                trial, seen.resource, uid, seen.list_rv if listing.reset else max(rv, seen.list_rv)
            )
    _forget_tombstones(trial, listing)
    old = state.syncs.get(seen.resource, Sync())
    doubted, doubted_us = old.doubted, old.doubted_us
    contradicted, reset_at = old.contradicted, old.reset_at
    if listing.reset:
        doubted, doubted_us, reset_at = trial.sequence, trial.now_us, trial.sequence
        contradicted = False
    elif listing.whole and listing.after >= doubted and not contradicted:
        doubted, doubted_us = 0, 0
    closed = [
        epoch
        for epoch, other in sorted(state.lists.items())
        if other.resource == seen.resource
        and (other.sequence < listing.sequence or other.list_rv <= seen.list_rv)
        and not (doubted and other.whole and other.after >= doubted)  # it will settle the doubt
        and epoch != seen.epoch
    ]
    list_rv = seen.list_rv if listing.reset else max(old.list_rv, seen.list_rv)
    epochs = _close(trial, old, [*closed, seen.epoch])
    # Who listed may have yet to hear what was asked for when the doubt arose.
    to_hear = listing.heard is not None and listing.heard < doubted and not listing.reset
    if doubted and not to_hear:
        ask_resync(trial, seen.resource)
    trial.put(
        "syncs",
        seen.resource,
        replace(
            old,
            absent=False,
            contradicted=contradicted,
            doubted=doubted,
            doubted_us=doubted_us,
            epochs=epochs,
            list_rv=list_rv,
            listed_at=max(old.listed_at, listing.sequence),
            reset_at=reset_at,
            synced=True,
        ),
    )
    trial.wake = True


def on_kind_absent(trial: Trial, seen: KindAbsentSeen) -> None:
    """The resource's CRD is missing: it counts as listed, and empty."""
    if seen.resource not in RESOURCES:
        return
    for uid, rv in _objects(trial, seen.resource):
        _remove(trial, seen.resource, uid, rv)
    lists = trial.state.lists
    old = trial.state.syncs.get(seen.resource, Sync())
    closed = [epoch for epoch in sorted(lists) if lists[epoch].resource == seen.resource]
    epochs = _close(trial, old, closed)
    settled = replace(old, contradicted=False, doubted=0, doubted_us=0)
    new = replace(settled, absent=True, epochs=epochs, synced=True)
    if new != old:
        trial.put("syncs", seen.resource, new)
        trial.wake = True


def on_message_rejected(trial: Trial, seen: RejectionSeen) -> None:
    """A message was dead-lettered: what it said must be listed again."""
    for resource in needed_resources(trial.state.policy):
        if RESOURCES[resource][2] == seen.topic:
            ask_resync(trial, resource)


def ask_again(trial: Trial) -> None:
    """Asks for lists anew where one that everything waits for does not finish, or never began: who was asked for it
    may be gone.
    """
    lists = trial.state.lists
    for epoch in sorted(lists):
        listing = lists[epoch]
        if 0 < listing.asked_us <= trial.now_us - LIST_PATIENCE_US:
            trial.put("lists", epoch, replace(listing, asked_us=trial.now_us))
            ask_resync(trial, listing.resource)
    for resource, row in sorted(trial.state.syncs.items()):
        if 0 < row.doubted_us <= trial.now_us - LIST_PATIENCE_US:
            trial.put("syncs", resource, replace(row, doubted_us=trial.now_us))
            ask_resync(trial, resource)
    sync = trial.state.syncs.get("pods")
    if sync is not None and 0 < sync.unseen_us <= trial.now_us - LIST_PATIENCE_US:
        _ask_for_unseen(trial, sync)


def _ask_for_unseen(trial: Trial, sync: Sync) -> None:
    """Asks for a list if what results told is still unseen, and again until it has come; else it is settled."""
    unseen = any(0 < pod.told_at <= sync.unseen_at for pod in trial.state.pods.values())
    if unseen:
        ask_resync(trial, "pods")
        trial.put("syncs", "pods", replace(sync, unseen_us=trial.now_us))
    else:
        trial.put("syncs", "pods", replace(sync, unseen_at=0, unseen_us=0))


def _row_of(trial: Trial, resource: str, uid: str) -> Any:
    """The row of that uid; None: we don't know it."""
    table = RESOURCES[resource][0]
    rows = trial.state.tables[table]
    if uid in rows or table in ("pods", "podgroups", "workloads", "quotas", "budgets"):
        return rows.get(uid)
    return next((row for row in rows.values() if row.uid == uid), None)


def _highest(trial: Trial, resource: str, known: Sync) -> int:
    """The highest version that was ever known of the resource, in the history that counts."""
    versions = [known.list_rv, *(rv for _, rv in _objects(trial, resource))]
    tombstones = trial.state.tables["tombstones"].values()
    versions += [row.rv for row in tombstones if row.resource == resource]
    versions += [row.list_rv for row in trial.state.lists.values() if row.resource == resource]
    return max(versions)


def _objects(trial: Trial, resource: str) -> list[tuple[str, int]]:
    """(uid, rv) of the rows of a resource, sorted by key."""
    table, origin, _ = RESOURCES[resource]
    rows = trial.state.tables[table]
    return [
        (rows[key].uid, rows[key].rv)
        for key in sorted(rows)
        if not origin
        or origin == getattr(rows[key], "group", None)
        or origin == getattr(rows[key], "source", None)
    ]


def _remove(trial: Trial, resource: str, uid: str, rv: int) -> None:
    table = RESOURCES[resource][0]
    if table == "pods":
        remove_pod(trial, trial.state.pods[uid], rv)
    else:
        remove_object(trial, table, uid)
        bury(trial, resource, uid, rv)


def _forget_tombstones(trial: Trial, listing: OpenList) -> None:
    """Those below the list have done their work. After a reset there is no higher version than the list's."""
    tombstones, list_rv = trial.state.tables["tombstones"], listing.list_rv
    own = [uid for uid, row in tombstones.items() if row.resource == listing.resource]
    for uid in sorted(own):
        if tombstones[uid].rv < list_rv:
            trial.put("tombstones", uid, None)
        elif listing.reset and tombstones[uid].rv > list_rv:
            bury(trial, listing.resource, uid, list_rv)


def _close(trial: Trial, known: Sync, epochs: list[str]) -> tuple[str, ...]:
    """Forgets the lists `epochs` and what they named; returns the closed epochs to remember."""
    for epoch in epochs:
        trial.named.pop(epoch, None)
        for key in _chunks(trial, epoch):
            trial.put("named", key, None)
        trial.put("lists", epoch, None)
    return (*known.epochs, *epochs)[-EPOCHS_KEPT:]


def _chunks(trial: Trial, epoch: str) -> list[str]:
    """Keys of what the list named in records before this one."""
    return sorted(key for key in trial.state.tables["named"] if key.rpartition("#")[0] == epoch)
