"""Lists: a resource is listed anew, what the list did not name is gone; and messages that could not be taken in."""

from msgspec.structs import replace

from state.model.decision import Answer
from state.model.facts import remove_object, remove_pod
from state.model.limits import EPOCHS_KEPT, LIST_PATIENCE_US, RESOURCES
from state.model.lists import bury, overrules
from state.model.rows import Named, OpenList, Sync
from state.model.seen import (
    KindAbsentSeen,
    RejectionSeen,
    StillThereSeen,
    SyncFinishSeen,
    SyncStartSeen,
)
from state.model.trial import Trial


def on_sync_started(trial: Trial, seen: SyncStartSeen) -> None:
    """Opens a list, once. One below the newest finished one means that history was reset: its objects win.

    Or it is a list that was long under way, by an informer that slept: then what it says is wrong. Nobody can tell, so
    nothing is placed until all has been said anew.
    """
    known = trial.state.syncs.get(seen.resource, Sync())
    if (
        seen.resource not in RESOURCES
        or seen.epoch in trial.state.lists
        or seen.epoch in known.epochs
    ):
        return
    reset = seen.list_rv < known.list_rv
    listing = OpenList(
        asked_us=trial.now_us if seen.cold or reset else 0,
        cold=seen.cold,
        list_rv=seen.list_rv,
        producer=seen.producer,
        resource=seen.resource,
        sequence=trial.sequence,
        reset=reset,
        whole=seen.whole or seen.cold,
    )
    trial.put("lists", seen.epoch, listing)
    if reset:
        _doubt(trial, seen.resource)


def on_still_there(trial: Trial, seen: StillThereSeen) -> None:
    """An unchanged object of an open list; one that we don't know means that we missed something: ask for all anew."""
    listing = trial.state.lists.get(seen.epoch)
    if listing is None or listing.resource != seen.resource:
        return
    trial.named.setdefault(seen.epoch, {})[seen.uid] = None
    if not _knows(trial, listing, seen.uid):
        _doubt(trial, seen.resource)


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
            _remove(trial, seen.resource, uid, max(rv, seen.list_rv))
    _forget_tombstones(trial, seen.resource, seen.list_rv)
    closed = [
        epoch
        for epoch, other in sorted(state.lists.items())
        if other.resource == seen.resource
        and (other.sequence < listing.sequence or other.list_rv <= seen.list_rv)
        and epoch != seen.epoch
    ]
    old = state.syncs.get(seen.resource, Sync())
    list_rv = seen.list_rv if listing.reset else max(old.list_rv, seen.list_rv)
    epochs = _close(trial, old, [*closed, seen.epoch])
    doubted = old.doubted
    if listing.reset:
        doubted = trial.sequence
    elif listing.whole and listing.sequence > doubted:
        doubted = 0
    if doubted:
        ask_resync(trial, seen.resource)
    trial.put(
        "syncs",
        seen.resource,
        replace(old, absent=False, doubted=doubted, epochs=epochs, list_rv=list_rv, synced=True),
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
    new = replace(old, absent=True, doubted=0, epochs=epochs, synced=True)
    if new != old:
        trial.put("syncs", seen.resource, new)
        trial.wake = True


def on_message_rejected(trial: Trial, seen: RejectionSeen) -> None:
    """A message was dead-lettered: what it said must be listed again."""
    for resource, (_, _, topic) in RESOURCES.items():
        if topic == seen.topic:
            ask_resync(trial, resource)


def _doubt(trial: Trial, resource: str) -> None:
    """From now on what is known of the resource may be wrong: asks for a list that says all anew."""
    sync = trial.state.syncs.get(resource, Sync())
    trial.put("syncs", resource, replace(sync, doubted=trial.sequence))
    ask_resync(trial, resource)


def ask_again(trial: Trial) -> None:
    """Asks for lists anew where one that everything waits for does not finish: who began it may be gone."""
    lists = trial.state.lists
    for epoch in sorted(lists):
        listing = lists[epoch]
        if 0 < listing.asked_us <= trial.now_us - LIST_PATIENCE_US:
            trial.put("lists", epoch, replace(listing, asked_us=trial.now_us))
            ask_resync(trial, listing.resource)


def ask_resync(trial: Trial, resource: str) -> None:
    """Asks the informers to list `resource` anew, once a record."""
    request = Answer(kind="ResyncRequested", resource=resource)
    if request not in trial.requests:
        trial.requests.append(request)


def _knows(trial: Trial, listing: OpenList, uid: str) -> bool:
    table = RESOURCES[listing.resource][0]
    rows = trial.state.tables[table]
    if uid in rows:
        return True
    tombstone = trial.state.tables["tombstones"].get(uid)
    if tombstone is not None:
        return not overrules(listing, tombstone)
    return table not in ("pods", "podgroups", "quotas", "budgets") and any(
        row.uid == uid for row in rows.values()
    )


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


def _forget_tombstones(trial: Trial, resource: str, list_rv: int) -> None:
    tombstones = trial.state.tables["tombstones"]
    old = [uid for uid, row in tombstones.items() if row.resource == resource and row.rv < list_rv]
    for uid in sorted(old):
        trial.put("tombstones", uid, None)


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
