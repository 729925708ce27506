"""Pods that are tried again only when something came that may help: derived, kept by `state.model.state`."""

from state.model.indexes import mark_under
from state.model.rows import Pod

#: Class, and nodes by the reason that speaks against them as the pod was last told.
ParkedKey = tuple[bytes, tuple[tuple[str, int], ...]]


class Parked:
    """`alone`: pods that room could help; `gangs`: members that were told with their gang."""

    def __init__(self) -> None:
        self.alone: dict[ParkedKey, dict[str, None]] = {}
        self.gangs: dict[str, dict[str, None]] = {}
        self._key: dict[str, ParkedKey | str] = {}

    def add(self, pod: Pod, gang: str) -> bool:
        """Takes the pod in; whether it was told with its gang."""
        told = _told(pod)
        if told is None:
            self._key[pod.uid] = gang
            mark_under(self.gangs, gang, pod.uid, True)
            return True
        key = self._key[pod.uid] = (bytes(pod.spec), told)
        mark_under(self.alone, key, pod.uid, True)
        return False

    def remove(self, uid: str) -> str:
        """Takes the pod out; its gang, if nobody of that is left."""
        key = self._key.pop(uid, None)
        if isinstance(key, str):
            mark_under(self.gangs, key, uid, False)
            return key if key not in self.gangs else ""
        if key is not None:
            mark_under(self.alone, key, uid, False)
        return ""


def _told(pod: Pod) -> tuple[tuple[str, int], ...] | None:
    """What speaks against a parked pod alone, as it was last told; None: a gang's member is told with its gang."""
    details = {} if pod.diagnosis is None else pod.diagnosis.details
    return None if "gang" in details else tuple(sorted(details.get("nodes", {}).items()))
