"""Who is still there: which uids an open list has named, which are gone for good, whose version wins."""

from typing import Any

from msgspec.structs import replace

from state.model.decision import Answer
from state.model.limits import RESOURCES, TOMBSTONES_MIN, TOMBSTONES_STEP
from state.model.rows import (
    Budget,
    OpenList,
    Pod,
    PodGroup,
    Quota,
    Sync,
    Tombstone,
    Workload,
)
from state.model.seen import (
    BudgetSeen,
    ObjectSeen,
    PodGroupSeen,
    PodSeen,
    QuotaSeen,
    WorkloadSeen,
)
from state.model.trial import Trial


def is_namesake(
    old: Pod | PodGroup | Workload | Quota | Budget | None,
    seen: PodSeen | PodGroupSeen | WorkloadSeen | QuotaSeen | BudgetSeen,
) -> bool:
    """False for news that gives a uid another name or namespace than it has: no API server says that."""
    return old is None or (old.namespace, old.name) == (seen.namespace, seen.name)


def admits(trial: Trial, seen: ObjectSeen, resource: str, old: Any) -> bool:
    """False for news of a uid that is gone, and for late news. Marks it as named by its list, if that is open.

    A list younger than the tombstone knows better: a uid never comes back, so it was never gone. News that came
    with no open list is late if a list of its version, or a later one, has finished: that list said it, or it is gone.
    `old` is the row that is known under its name or uid; what a list says may contradict it.
    """
    uid, epoch = seen.uid, seen.epoch
    listing = trial.state.lists.get(epoch) if epoch else None
    if listing is not None:
        assert epoch is not None
        trial.named.setdefault(epoch, {})[uid] = None
        if old is not None and is_rewritten(listing, seen.rv, old.rv, other=uid != uid_of(old)):
            contradict(trial, resource)
        elif old is not None and listing.reset and seen.rv < old.rv:
            doubt(trial, resource)  # a belated list takes back what a later one has said
    tombstone = trial.state.tables["tombstones"].get(uid)
    if tombstone is None:
        listed_rv = trial.state.syncs.get(resource, _NEVER).list_rv
        if listing is None:
            return seen.rv > listed_rv
        young = listing.reset or listing.list_rv >= listed_rv
        return young or uid == uid_of(old) or seen.rv > listed_rv
    if listing is None or not overrules(listing, tombstone):
        return False
    trial.put("tombstones", uid, None)
    return True


_NEVER = Sync()


def uid_of(row: Any) -> str:
    """The row's uid; empty for no row."""
    return "" if row is None else str(row.uid)


def overrules(listing: OpenList, tombstone: Tombstone) -> bool:
    """What the list names is there, whatever the tombstone says: a list of the deletion's own version lacks the object,
    so one that names it is of another history.
    """
    younger = listing.list_rv - tombstone.rv
    return listing.reset or younger > 0 or (younger == 0 and not tombstone.told)


def resets(trial: Trial, epoch: str | None) -> bool:
    """The list `epoch` is open and says that history was reset: its objects win as they are."""
    listing = trial.state.lists.get(epoch) if epoch else None
    return listing is not None and listing.reset


def is_newer(trial: Trial, rv: int, known_rv: int, epoch: str | None) -> bool:
    """The version `rv` replaces `known_rv`: it is higher, or its list says that history was reset."""
    return rv > known_rv or resets(trial, epoch)


def is_rewritten(listing: OpenList, rv: int, known_rv: int, *, other: bool = False) -> bool:
    """The list is of another history than ours: it shows an older version than one that it should have seen, or
    (`other`) another object at the very version.
    """
    older = rv < known_rv or (other and rv == known_rv)
    return not listing.reset and older and known_rv <= listing.list_rv


def weigh_lack(trial: Trial, listing: OpenList, told_at: int) -> None:
    """The list lacks what is known of a pod, by a result at the sequence `told_at`, or (0) by an observation."""
    if told_at <= listing.after:
        contradict(trial, listing.resource)
    elif told_at < listing.sequence and not listing.whole:
        ask_resync(
            trial, listing.resource
        )  # it may be older than the result; the list to come will not be
    elif told_at <= listing.sequence:
        ask_later(trial)  # under load every list is older than some result


def contradict(trial: Trial, resource: str) -> None:
    """What we know of the resource, or what a list says, is of a history that is gone: the next whole list wins.

    Said again it changes nothing: that list has been asked for, and who is behind would never catch up with the doubt.
    """
    sync = trial.state.syncs.get(resource, _NEVER)
    if sync.contradicted:
        return
    trial.put("syncs", resource, replace(sync, contradicted=True))
    doubt(trial, resource)


def doubt(trial: Trial, resource: str) -> None:
    """From now on what is known of the resource may be wrong: asks for a list that says all anew."""
    sync = trial.state.syncs.get(resource, _NEVER)
    trial.put("syncs", resource, replace(sync, doubted=trial.sequence, doubted_us=trial.now_us))
    ask_resync(trial, resource)


def ask_resync(trial: Trial, resource: str) -> None:
    """Asks the informers to list `resource` anew, once a record."""
    request = Answer(kind="ResyncRequested", resource=resource)
    if request not in trial.requests:
        trial.requests.append(request)


def ask_later(trial: Trial) -> None:
    """A result told of a pod what a list, older or younger, lacks. As a rule an observation will soon show it; if none
    does, a restore has undone it, and no watch will ever say so: `sync.ask_again` asks for a list.
    """
    sync = trial.state.syncs.get("pods", _NEVER)
    unseen_us = sync.unseen_us or trial.now_us
    trial.put("syncs", "pods", replace(sync, unseen_at=trial.sequence, unseen_us=unseen_us))


def bury(trial: Trial, resource: str, uid: str, rv: int, *, told: bool = False) -> None:
    """Leaves a tombstone for `uid`. Only a list forgets them, and informers list when they must: many ask for one."""
    tombstones = trial.state.tables["tombstones"]
    new = uid not in tombstones
    trial.put("tombstones", uid, Tombstone(resource=resource, rv=rv, told=told))
    count, there = len(tombstones), len(trial.state.tables[RESOURCES[resource][0]])
    if new and count % TOMBSTONES_STEP == 0 and count >= max(TOMBSTONES_MIN, there):
        ask_resync(trial, resource)
