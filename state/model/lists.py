"""Who is still there: which uids an open list has named, which are gone for good, whose version wins."""

from state.model.rows import OpenList, Tombstone
from state.model.trial import Trial


def admits(trial: Trial, uid: str, epoch: str | None) -> bool:
    """False for news of a uid that is gone. Marks `uid` as named by the list `epoch`, if that is open.

    A list younger than the tombstone knows better: a uid never comes back, so it was never gone.
    """
    listing = trial.state.lists.get(epoch) if epoch else None
    if listing is not None:
        assert epoch is not None
        trial.named.setdefault(epoch, {})[uid] = None
    tombstone = trial.state.tables["tombstones"].get(uid)
    if tombstone is None:
        return True
    if listing is None or not overrules(listing, tombstone):
        return False
    trial.put("tombstones", uid, None)
    return True


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
