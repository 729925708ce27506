"""Who is still there: which uids an open list has named, which are gone for good, whose version wins."""

from typing import Any

from state.model.rows import Budget, OpenList, Pod, PodGroup, Quota, Sync, Tombstone
from state.model.seen import BudgetSeen, ObjectSeen, PodGroupSeen, PodSeen, QuotaSeen
from state.model.trial import Trial


def is_namesake(
    old: Pod | PodGroup | Quota | Budget | None,
    seen: PodSeen | PodGroupSeen | QuotaSeen | BudgetSeen,
) -> bool:
    """False for news that gives a uid another name or namespace than it has: no API server says that."""
    return old is None or (old.namespace, old.name) == (seen.namespace, seen.name)


def admits(trial: Trial, seen: ObjectSeen, resource: str, known_uid: str) -> bool:
    """False for news of a uid that is gone. Marks it as named by the list it came with, if that is open.

    A list younger than the tombstone knows better: a uid never comes back, so it was never gone. A uid that is new
    to us (`known_uid` is another's, or empty) though a finished list of that version should have named it is gone,
    too: its tombstone went with that list, and this is late news.
    """
    uid, epoch = seen.uid, seen.epoch
    listing = trial.state.lists.get(epoch) if epoch else None
    if listing is not None:
        assert epoch is not None
        trial.named.setdefault(epoch, {})[uid] = None
    tombstone = trial.state.tables["tombstones"].get(uid)
    if tombstone is None:
        listed_rv = trial.state.syncs.get(resource, _NEVER).list_rv
        young = listing is not None and (listing.reset or listing.list_rv >= listed_rv)
        return young or uid == known_uid or seen.rv > listed_rv
    if listing is None or not overrules(listing, tombstone):
        return False
    trial.put("tombstones", uid, None)
    return True


_NEVER = Sync()


def uid_of(row: Any) -> str:
    """The row's uid; empty for no row."""
    return "" if row is None else str(row.uid)


def overrules(listing: OpenList, tombstone: Tombstone) -> bool:
    """What the list names is there, whatever the tombstone says."""
    return listing.reset or listing.list_rv > tombstone.rv


def resets(trial: Trial, epoch: str | None) -> bool:
    """The list `epoch` is open and says that history was reset: its objects win as they are."""
    listing = trial.state.lists.get(epoch) if epoch else None
    return listing is not None and listing.reset


def is_newer(trial: Trial, rv: int, known_rv: int, epoch: str | None) -> bool:
    """The version `rv` replaces `known_rv`: it is higher, or its list says that history was reset."""
    return rv > known_rv or resets(trial, epoch)


def bury(trial: Trial, resource: str, uid: str, rv: int) -> None:
    """Leaves a tombstone for `uid`."""
    trial.put("tombstones", uid, Tombstone(resource=resource, rv=rv))
