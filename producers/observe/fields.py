"""Readers of single fields of a raw object: each checks the type and names the field that is wrong.

Must not know any kind. The modules beside it build observations from what these return; `observing`
turns whatever they raise into one `InvalidMessage` that names the object.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import wraps
from typing import Any, Final, TypeVar

from schemas.envelope import INTAKE_BYTES_MAX
from schemas.errors import InvalidMessage
from schemas.labels import canonical_resource
from schemas.observations import Observed
from schemas.quantities import AMOUNT_MAX, resource_amount

#: An observation may take at most half of an intake message.
OBSERVATION_BYTES_MAX: Final = INTAKE_BYTES_MAX // 2

_SHAPES: Final = {dict: "an object", list: "a list", str: "a text", int: "a number"}
_EPOCH_START: Final = datetime(1970, 1, 1, tzinfo=UTC)

Seen = TypeVar("Seen", bound=Observed)


def observing(
    what: str, minimal: Callable[[Seen, str], Seen]
) -> Callable[[Callable[[dict[str, Any], str | None], Seen]], Callable[..., Seen]]:
    """Makes a reader of one kind of object safe: `InvalidMessage` is all that it raises.

    `minimal(seen, why)` is what is left of an observation that is too large; `why` tells its size.
    """

    def decorate(read: Callable[[dict[str, Any], str | None], Seen]) -> Callable[..., Seen]:
        @wraps(read)
        def observe(raw: Any, epoch: str | None = None) -> Seen:
            try:
                seen = read(mapping(raw, "object"), epoch)
                size_bytes = len(seen.model_dump_json())
                if size_bytes > OBSERVATION_BYTES_MAX:
                    seen = minimal(seen, f"{size_bytes} bytes, at most {OBSERVATION_BYTES_MAX}")
                    _require_size(seen)
            except InvalidMessage as error:
                raise InvalidMessage(
                    error.reason, f"{what} {object_name(raw)}: {error.detail}"
                ) from error
            except ValueError as error:
                # A model refused a value: its message names the field in the second line.
                lines = [line.strip() for line in str(error).splitlines()[1:3]]
                raise InvalidMessage(
                    "InvalidField", f"{what} {object_name(raw)}: field {': '.join(lines)}"
                ) from error
            return seen

        return observe

    return decorate


def object_name(raw: Any) -> str:
    """`namespace/name` of a raw object, or what there is of it, for messages."""
    metadata = raw.get("metadata") if isinstance(raw, dict) else None
    if not isinstance(metadata, dict):
        return "without metadata"
    parts = [str(metadata[key]) for key in ("namespace", "name") if metadata.get(key)]
    return "/".join(parts) or "without name"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which object, and which version of it. `namespace` is empty for a cluster-wide kind."""

    uid: str
    rv: int
    namespace: str
    name: str


def object_identity(raw: Any) -> Identity:
    """The identity of a raw object of any kind. Raises `InvalidMessage`."""
    metadata = mapping(mapping(raw, "object").get("metadata"), "metadata")
    return Identity(
        uid=text(metadata.get("uid"), "metadata.uid"),
        rv=version(metadata),
        namespace=text(metadata.get("namespace"), "metadata.namespace", default=""),
        name=text(metadata.get("name"), "metadata.name"),
    )


def mapping(value: Any, path: str) -> dict[str, Any]:
    """The object at `path`; absent means empty."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(path, "an object", value, show=False)
    return value


def sequence(value: Any, path: str) -> list[dict[str, Any]]:
    """The list of objects at `path`; absent means empty."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise _wrong(path, "a list of objects", value, show=False)
    for item in value:
        if not isinstance(item, dict):
            raise _wrong(path, "a list of objects", value, show=False)
    return value


def text(value: Any, path: str, default: str | None = None) -> str:
    """The text at `path`; absent or empty means `default`, and without a default is an error."""
    if isinstance(value, str) and value:
        return value
    if (value is None or value == "") and default is not None:
        return default
    raise _wrong(path, "a text", value)


def texts(value: Any, path: str) -> tuple[str, ...]:
    """The list of texts at `path`; absent means empty."""
    if value is None:
        return ()
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _wrong(path, "a list of texts", value, show=False)
    return tuple(value)


def strings(value: Any, path: str) -> dict[str, str]:
    """The text-to-text map at `path`, such as labels; absent means empty."""
    found = mapping(value, path)
    for key, item in found.items():
        if not isinstance(item, str) or not isinstance(key, str):
            raise _wrong(f"{path}.{key}", "a text", item, show=False)
    return found


def whole(value: Any, path: str, default: int | None = None) -> int:
    """The 64-bit whole number at `path`; absent means `default`, without one it is an error."""
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or not -(2**63) <= value < 2**63:
        raise _wrong(path, "a whole number", value)
    return value


def natural(value: Any, path: str, default: int | None = None) -> int:
    """A `whole` number that is not negative."""
    found = whole(value, path, default)
    if found < 0:
        raise _wrong(path, "a number from 0 on", value)
    return found


def flag(value: Any, path: str, default: bool = False) -> bool:
    """The truth value at `path`; absent means `default`."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise _wrong(path, "true or false", value)
    return value


def version(metadata: dict[str, Any]) -> int:
    """The resourceVersion as the number that orders versions of one resource."""
    found = text(metadata.get("resourceVersion"), "metadata.resourceVersion")
    if not (found.isascii() and found.isdigit() and len(found) <= 19):
        raise _wrong("metadata.resourceVersion", "a decimal number", found)
    return int(found)


def micros(value: Any, path: str) -> int | None:
    """Microseconds since 1970 of the RFC 3339 time at `path`, whole seconds or with a fraction."""
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(text(value, path))
        if moment.tzinfo is None:
            raise ValueError(value)
        return max(0, (moment - _EPOCH_START) // timedelta(microseconds=1))
    except (ValueError, OverflowError) as error:
        raise _wrong(path, "a time such as 2026-01-01T00:00:00Z", value) from error


def created_us(metadata: dict[str, Any]) -> int:
    """The creationTimestamp in microseconds since 1970."""
    found = micros(metadata.get("creationTimestamp"), "metadata.creationTimestamp")
    if found is None:
        raise _wrong("metadata.creationTimestamp", "a time", None)
    return found


def amounts(value: Any, path: str) -> dict[str, int]:
    """The resource list at `path` by canonical name, negatives too. Aliases add up."""
    found: dict[str, int] = {}
    for name, quantity in mapping(value, path).items():
        if not isinstance(name, str):
            raise _wrong(path, "a resource list", value, show=False)
        try:
            amount = resource_amount(name, quantity)
        except InvalidMessage as error:
            raise InvalidMessage(error.reason, f"field {path}.{error.detail}") from error
        known = canonical_resource(name)
        found[known] = found.get(known, 0) + amount
    return found


def capacity(value: Any, path: str) -> dict[str, int]:
    """Like `amounts`, cut to the range from 0 to `AMOUNT_MAX`, sorted by name."""
    return {
        name: min(max(amount, 0), AMOUNT_MAX)
        for name, amount in sorted(amounts(value, path).items())
    }


def _require_size(seen: Observed) -> None:
    size_bytes = len(seen.model_dump_json())
    if size_bytes > OBSERVATION_BYTES_MAX:
        raise InvalidMessage(
            "TooLarge", f"{size_bytes} bytes even without labels, at most {OBSERVATION_BYTES_MAX}"
        )


def _wrong(path: str, wanted: str, value: Any, show: bool = True) -> InvalidMessage:
    """`show`: a word or a number that stands there is quoted; never more, it may hold what is secret."""
    if value is None:
        found = "nothing"
    elif show and not isinstance(value, dict | list):
        found = repr(value)[:80]
    else:
        found = _SHAPES.get(type(value), "something else")
    return InvalidMessage("InvalidField", f"field {path}: {wanted} is wanted, not {found}")
