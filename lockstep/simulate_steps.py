"""The steps of `lockstep simulate`, read and checked: one verb each, with its fields.

Only reading: a step is carried out in `lockstep.simulate_play`. A missing, unknown or ill-typed
field raises `InvalidMessage` that names it.
"""

from dataclasses import dataclass
from typing import Any, Final

from schemas.errors import InvalidMessage
from schemas.policy import duration_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step. Which fields say something depends on `verb`; durations in microseconds.

    `text`: phase, device type or reason. `number`: HTTP status or minor. `name` of setHealth is the
    node.
    """

    verb: str
    kind: str = ""
    namespace: str = "default"
    name: str = ""
    text: str = ""
    number: int = 0
    times: int = 1
    flag: bool = False
    duration_us: int = 0


#: Bounds of a step: more is a slip of the pen.
TIMES_MAX: Final = 1_000
SECONDS_MAX: Final = 10**9

#: Verb -> field of the manifest -> (field of `Step`, type, must be given).
_Fields = dict[str, tuple[str, type, bool]]
_POD: Final[_Fields] = {"namespace": ("namespace", str, False), "name": ("name", str, True)}
_KIND: Final[_Fields] = {"kind": ("kind", str, True)}
_TIMES: Final[_Fields] = {"times": ("times", int, True)}
_VERBS: Final[dict[str, _Fields]] = {
    "delete": {**_KIND, **_POD},
    "setPhase": {**_POD, "phase": ("text", str, True)},
    "setHealth": {
        "node": ("name", str, True),
        "type": ("text", str, True),
        "minor": ("number", int, True),
        "healthy": ("flag", bool, True),
    },
    "refuseBind": {**_POD, "status": ("number", int, True), "times": ("times", int, False)},
    "delayBind": _POD,
    "slowEvict": {**_POD, "seconds": ("duration_us", int, True)},
    "evict": {**_POD, "reason": ("text", str, True)},
    "gap": _KIND,
    "relist": _KIND,
    "duplicate": _TIMES,
    "restart": {"wipe": ("flag", bool, True)},
}


def read_step(document: dict[str, Any]) -> Step:
    """The step of a document. Raises `InvalidMessage` with the field at fault."""
    fields = {key: value for key, value in document.items() if key not in _ENVELOPE}
    if len(fields) != 1:
        found = ", ".join(sorted(fields)) or "none"
        raise _wrong("Step", f"exactly one step is wanted, found {found}")
    verb, value = next(iter(fields.items()))
    if verb == "settle":
        if value is not True:
            raise _wrong("settle", f"true is wanted, not {value!r}")
        return Step(verb=verb)
    if verb == "advance":
        return Step(verb=verb, duration_us=_duration(value))
    if verb not in _VERBS:
        known = ", ".join(("settle", "advance", *_VERBS))
        raise _wrong(verb, f"no such step; there are {known}")
    if not isinstance(value, dict):
        raise _wrong(verb, f"a map is wanted, not {value!r}")
    return _with_fields(verb, value)


_ENVELOPE: Final = ("apiVersion", "kind", "metadata")


def _with_fields(verb: str, given: dict[str, Any]) -> Step:
    known = _VERBS[verb]
    for name in given:
        if name not in known:
            raise _wrong(f"{verb}.{name}", f"no such field; there are {', '.join(known)}")
    found: dict[str, Any] = {}
    for name, (field, wanted, required) in known.items():
        value = given.get(name)
        if value is None and not required:
            continue
        if type(value) is not wanted:
            shown = "nothing" if value is None else repr(value)
            raise _wrong(f"{verb}.{name}", f"{_TYPE_NAMES[wanted]} is wanted, not {shown}")
        found[field] = value
    if verb == "restart" and not found["flag"]:
        raise _wrong("restart.wipe", "only true is possible: a restart forgets all local state")
    if not 1 <= found.get("times", 1) <= TIMES_MAX:
        raise _wrong(f"{verb}.times", f"1 to {TIMES_MAX} times are possible")
    if not 0 <= found.get("duration_us", 0) <= SECONDS_MAX:
        raise _wrong(f"{verb}.seconds", f"0 to {SECONDS_MAX} seconds are possible")
    if verb == "refuseBind" and not 400 <= found["number"] <= 599:
        raise _wrong("refuseBind.status", "an HTTP status from 400 to 599 is wanted")
    if verb == "slowEvict":
        found["duration_us"] *= 1_000_000
    return Step(verb=verb, **found)


_TYPE_NAMES: Final = {str: "a text", int: "a whole number", bool: "true or false"}


def _duration(value: Any) -> int:
    if not isinstance(value, str):
        raise _wrong("advance", f"a duration such as 30s is wanted, not {value!r}")
    try:
        return duration_us(value)
    except ValueError as error:
        raise _wrong("advance", str(error)) from None


def _wrong(field: str, problem: str) -> InvalidMessage:
    return InvalidMessage("InvalidField", f"{field}: {problem}")
