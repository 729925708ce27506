"""Statuses that wait to be written: the last one of each object, and what was written last.

Holds no connection and makes no call; the sink (`streams.sink.sink`) takes from here when binds
leave it room.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from schemas.codec import encode
from schemas.envelope import PatchStatus
from streams.sink.api import UNKNOWN, Response

#: Objects waiting, and objects whose last status is remembered. Over it the oldest is forgotten,
#: which costs at most a status that is written late (the core derives it anew) or twice.
OBJECTS_MAX: Final = 100_000
#: A condition whose only change is this field says nothing new.
_TRANSITION_TIME: Final = "since_us"

#: A conflict comes from other writers of the same object; another uid is answered with 422.
_NOT_NOW: Final = frozenset({UNKNOWN, 401, 409, 429})

#: An API server that has just started forbids everything until it has read its roles: so often a
#: status is tried again before the refusal is believed.
DENIALS_MAX: Final = 30
_DENIED: Final = 403

Key = tuple[str, str]


class StatusQueue:
    """Last one wins, by (resource, uid). `take` hands out, `done` takes back; in between the object
    is *writing*.
    """

    def __init__(self) -> None:
        self._waiting: OrderedDict[Key, PatchStatus] = OrderedDict()
        self._written: OrderedDict[Key, bytes] = OrderedDict()
        self._writing: dict[Key, asyncio.Event] = {}
        self._denials: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def offer(self, command: PatchStatus) -> None:
        """Wait in the place of an earlier status of the same object, or at the end."""
        self._waiting[_key(command)] = command
        if len(self._waiting) > OBJECTS_MAX:
            forgotten, _ = self._waiting.popitem(last=False)
            self._denials.pop(forgotten, None)

    def forget(self, resource: str, uid: str) -> None:
        """The object's status is no longer ours to write (its pod is being bound)."""
        self._waiting.pop((resource, uid), None)
        self._written.pop((resource, uid), None)
        self._denials.pop((resource, uid), None)

    def take(self) -> PatchStatus | None:
        """The next status that differs from what was last written, or None."""
        while True:
            key = next((key for key in self._waiting if key not in self._writing), None)
            if key is None:
                return None
            command = self._waiting.pop(key)
            if self._written.get(key) != _essence(command.fields):
                self._writing[key] = asyncio.Event()
                return command

    def tells_news(self, command: PatchStatus) -> bool:
        """Whether a pod's diagnosis has another code than in the status that was written last. Ask before `done`."""
        before = self._written.get(_key(command))
        code = diagnosis_code(command.fields)
        return bool(code) and (before is None or diagnosis_code(json.loads(before)) != code)

    def done(self, command: PatchStatus, answer: Response) -> bool:
        """Take the answer back. False: the server did not take it now; it waits again unless a
        later one does.
        """
        key = _key(command)
        self._writing.pop(key).set()
        denials = self._denials.pop(key, 0) + 1
        if answer.ok:
            self._remember(key, command)
            return True
        if answer.status == _DENIED and denials < DENIALS_MAX:
            self._denials[key] = denials
        elif answer.status not in _NOT_NOW and answer.status < 500:
            return True
        self._waiting.setdefault(key, command)
        return False

    def _remember(self, key: Key, command: PatchStatus) -> None:
        """Of pods only: the core repeats the status of another kind when somebody overwrote it."""
        if command.resource != "pods":
            return
        self._written[key] = _essence(command.fields)
        self._written.move_to_end(key)
        if len(self._written) > OBJECTS_MAX:
            self._written.popitem(last=False)

    async def settled(self, resource: str, uid: str) -> None:
        """Return once no status of the object is being written."""
        writing = self._writing.get((resource, uid))
        if writing is not None:
            await writing.wait()


def diagnosis_code(fields: Mapping[str, Any]) -> str:
    """What stands before the sentence in a pod condition's message; empty: nothing does."""
    code, colon, _ = str(fields.get("message", "")).partition(":")
    return code if colon else ""


def _key(command: PatchStatus) -> Key:
    return command.resource, command.uid


def _essence(fields: Mapping[str, Any]) -> bytes:
    return encode({name: value for name, value in fields.items() if name != _TRANSITION_TIME})
