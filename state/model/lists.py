"""Who is still there: which uids an open list has named, which are gone for good, whose version wins."""

from state.model.rows import Tombstone
from state.model.trial import Trial


def admits(trial: Trial, uid: str, epoch: str | None) -> bool:
    """False for news of a uid that is gone. Marks `uid` as named by the list `epoch`, if that is open."""
    listing = trial.state.lists.get(epoch) if epoch else None
    if listing is not None:
        assert epoch is not None
        trial.named.setdefault(epoch, {})[uid] = None
    if uid in trial.state.tables["tombstones"]:
        if listing is None or not listing.reset:
            return False
        trial.put("tombstones", uid, None)
    return True


def is_newer(trial: Trial, rv: int, known_rv: int, epoch: str | None) -> bool:
    """The version `rv` replaces `known_rv`: it is higher, or its list says that history was reset."""
    if rv > known_rv:
        return True
    listing = trial.state.lists.get(epoch) if epoch else None
    return listing is not None and listing.reset and rv != known_rv


def bury(trial: Trial, resource: str, uid: str, rv: int) -> None:
    """Leaves a tombstone for `uid`."""
    trial.put("tombstones", uid, Tombstone(resource=resource, rv=rv))
