"""Sets as dict keys, so that nothing is iterated in the order of hashes: one, and one for each key."""

from typing import Any


def mark(index: dict[str, None], uid: str, there: bool) -> None:
    """Puts `uid` into the set, or takes it out."""
    if there:
        index[uid] = None
    else:
        index.pop(uid, None)


def mark_under(index: dict[Any, dict[str, None]], key: Any, uid: str, there: bool) -> None:
    """Puts `uid` into the set of `key`, or takes it out; there are no empty sets."""
    if there:
        index.setdefault(key, {})[uid] = None
    elif key in index:
        index[key].pop(uid, None)
        if not index[key]:
            del index[key]
