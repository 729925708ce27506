"""Which gangs start together: what gangs say of their groups, and what follows from it.

A gang names its partners, they theirs. Whoever is named comes along with all that it names itself, for none of them may
start without its own partners. Kept by `State`; must not change rows.
"""

from collections.abc import Iterable

from state.model.indexes import mark_under
from state.model.rows import Gang

Keys = tuple[str, ...]


class Partners:
    """The groups of all gangs."""

    def __init__(self, gangs: dict[str, Gang]) -> None:
        self._gangs = gangs
        #: Gang -> gangs whose own words name it.
        self.named_by: dict[str, dict[str, None]] = {}
        self._known: dict[Keys, Keys] = {}  # a cache, by what a gang says

    def changed(self, key: str, old: Gang | None, new: Gang | None) -> None:
        """The gang came, changed or went."""
        before = old.groups if old is not None else ()
        after = new.groups if new is not None else ()
        if before == after:
            return
        self._known.clear()
        for other in before:
            mark_under(self.named_by, other, key, False)
        for other in after:
            mark_under(self.named_by, other, key, True)

    def of(self, key: str) -> Keys:
        """The gangs that start together with the gang, by name, itself among them."""
        gang = self._gangs.get(key)
        if gang is None or not gang.groups:
            return (key,)
        found = self._known.get(gang.groups)
        if found is None:
            found = self._known[gang.groups] = self._reach(gang.groups)
        return found

    def waiting_for(self, keys: Iterable[str]) -> list[str]:
        """These gangs, and all that start only together with one of them."""
        found = dict.fromkeys(keys)
        queue = list(found)
        for key in queue:
            new = [other for other in self.named_by.get(key, ()) if other not in found]
            found.update(dict.fromkeys(new))
            queue += new
        return sorted(found)

    def _reach(self, groups: Keys) -> Keys:
        found = dict.fromkeys(groups)
        queue, heard = list(groups), {groups: None}
        for key in queue:
            gang = self._gangs.get(key)
            if gang is None or gang.groups in heard:
                continue
            heard[gang.groups] = None
            new = [other for other in gang.groups if other not in found]
            found.update(dict.fromkeys(new))
            queue += new
        return tuple(sorted(found))
