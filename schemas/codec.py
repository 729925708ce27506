"""Canonical bytes <-> models. One encoder for every topic: JSON, sorted keys, no spaces, no floats.

`decode_intake` is the door: whatever is wrong with a message becomes one `InvalidMessage` whose reason can be
counted. Nothing here touches the core.
"""

import hashlib
import json
from functools import cache
from typing import Any, Final

from pydantic import BaseModel, TypeAdapter, ValidationError

from schemas.envelope import INTAKE_BYTES_MAX, JournalRecord
from schemas.errors import InvalidMessage
from schemas.observations import VERSION, IntakeMessage, Observation

_KINDS: Final = frozenset(
    member.model_fields["kind"].default for member in Observation.__args__[0].__args__
)


def encode(value: BaseModel | dict[str, Any]) -> bytes:
    """Canonical bytes of a model or of a plain JSON object."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def sha256_hex(data: bytes) -> str:
    """The hash that chains journal records."""
    return hashlib.sha256(data).hexdigest()


def decode_intake(data: bytes | None) -> IntakeMessage:
    """One intake message, validated. Raises `InvalidMessage` with the reason and the field at fault."""
    if data is None:
        raise InvalidMessage("Empty", "the message has no value; deletions are observations")
    if len(data) > INTAKE_BYTES_MAX:
        raise InvalidMessage(
            "TooLarge",
            f"{len(data)} bytes, at most {INTAKE_BYTES_MAX}; publish a smaller projection",
        )
    try:
        return IntakeMessage.model_validate_json(data)
    except ValidationError as error:
        raise _explain(data, error) from error


def decode_record(data: bytes) -> JournalRecord:
    """A journal record through pydantic: for people and checks; the decider has a faster way to the same fields."""
    try:
        return JournalRecord.model_validate_json(data)
    except ValidationError as error:
        raise _explain(data, error) from error


def _explain(data: bytes, error: ValidationError) -> InvalidMessage:
    try:
        plain = json.loads(data)
    except (ValueError, RecursionError) as cause:
        return InvalidMessage("NotJson", str(cause))
    if not isinstance(plain, dict):
        return InvalidMessage("NotJson", f"a JSON object is wanted, not {type(plain).__name__}")
    version = plain.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        return InvalidMessage("FutureVersion", f"version {version}, this build knows {VERSION}")
    observations = plain.get("observations")
    for item in observations if isinstance(observations, list) else ():
        kind = item.get("kind") if isinstance(item, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            return InvalidMessage("UnknownKind", f"kind {kind!r}")
    first = error.errors(include_url=False, include_input=False)[0]
    return InvalidMessage("InvalidField", f"{'.'.join(map(str, first['loc']))}: {first['msg']}")


@cache
def json_schema(name: str) -> dict[str, Any]:
    """JSON Schema of the message called `name` (a model's name). Raises `KeyError` for an unknown one."""
    return TypeAdapter(models()[name]).json_schema()


@cache
def models() -> dict[str, type[BaseModel]]:
    """Every message of the wire by name."""
    import schemas.envelope
    import schemas.observations
    import schemas.policy

    found: dict[str, type[BaseModel]] = {}
    for module in (schemas.observations, schemas.envelope, schemas.policy):
        for name, item in vars(module).items():
            if (
                isinstance(item, type)
                and issubclass(item, BaseModel)
                and item.__module__ == module.__name__
            ):
                found[name] = item
    found.pop("Observed", None)
    return dict(sorted(found.items()))
