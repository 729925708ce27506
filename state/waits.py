"""How long a pod or the members of a gang waited, and for what: read from the decisions of a history.

A pure fold over accepted decisions, in their order. A gang's cause at a moment is that of its first member, by uid,
that waits with a diagnosis. Called by `lockstep explain`.
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from state.model.decision import whole_decoder
from state.model.podclass import parse_membership
from state.model.rows import DECODERS, Pod
from state.model.state import FINISHED

Json = dict[str, Any]
#: Not tried yet; and: it has a node, and its bind is under way.
QUEUED: Final = "Queued"
BINDING: Final = "Binding"
_GONE: Final = b'"row":null,"table":"pods"'


class Waits:
    """The waiting of one pod (`uid`) or of one gang (`ns/name`)."""

    def __init__(self, *, uid: str = "", gang: str = "") -> None:
        assert bool(uid) != bool(gang), "a pod or a gang"
        self._uid, self._gang = uid, gang
        self._needle = msgspec.json.encode(uid or gang.partition("/")[2])
        self._causes: dict[str, str] = {}  # uid of who waits -> for what
        self._spent: dict[str, int] = {}
        self._cause = ""
        self._since_us = 0
        self.first_us = 0

    def begin(self, pods: Iterable[Pod], timestamp_us: int) -> None:
        """The history begins with these pods, at this moment."""
        for pod in sorted(pods, key=lambda pod: pod.uid):
            self._see(pod.uid, pod)
        self._turn(timestamp_us)

    def take(self, data: bytes) -> None:
        """The next decision's bytes; those that don't name the pod or the gang are not decoded."""
        if self._needle not in data and not (self._gang and _GONE in data):
            return
        decision = whole_decoder.decode(data)
        for change in decision.changes:
            if change.table == "pods":
                raw = bytes(change.row)
                self._see(change.key, None if raw == b"null" else DECODERS["pods"].decode(raw))
        self._turn(decision.timestamp_us)

    def split(self, until_us: int) -> Json:
        """Microseconds by cause, up to `until_us`."""
        spent = dict(self._spent)
        if self._cause:
            spent[self._cause] = spent.get(self._cause, 0) + until_us - self._since_us
        causes = {cause: spent[cause] for cause in sorted(spent) if spent[cause]}
        return {
            "since_us": self.first_us or None,
            "total_us": sum(causes.values()),
            "causes_us": causes,
        }

    def _see(self, uid: str, pod: Pod | None) -> None:
        cause = _cause_of(pod) if pod is not None and self._is_mine(pod) else ""
        if cause:
            self._causes[uid] = cause
        else:
            self._causes.pop(uid, None)

    def _is_mine(self, pod: Pod) -> bool:
        if self._uid:
            return pod.uid == self._uid
        words = bytes(pod.labels), bytes(pod.annotations), pod.scheduling_group
        name = parse_membership(*words).gang
        return f"{pod.namespace}/{name}" == self._gang

    def _turn(self, timestamp_us: int) -> None:
        """From this moment on the cause is what it is now."""
        told = [self._causes[uid] for uid in sorted(self._causes)]
        rest = BINDING if BINDING in told else QUEUED
        diagnosed = (cause for cause in told if cause not in (BINDING, QUEUED))
        cause = next(diagnosed, rest) if told else ""
        if cause and not self.first_us:
            self.first_us = timestamp_us
        if cause == self._cause:
            return
        if self._cause:
            spent = self._spent.get(self._cause, 0)
            self._spent[self._cause] = spent + timestamp_us - self._since_us
        self._cause, self._since_us = cause, timestamp_us


def _cause_of(pod: Pod) -> str:
    """What the pod waits for; empty: it doesn't."""
    if pod.node or pod.deleted_us or pod.phase in FINISHED:
        return ""
    if pod.diagnosis is not None:
        return pod.diagnosis.code
    return BINDING if pod.assumed else QUEUED
