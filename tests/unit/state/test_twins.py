"""The core's twins of the wire's models: they accept the same messages, and refuse the same damage."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from pydantic import BaseModel, ValidationError

from schemas import observations
from schemas.codec import encode
from schemas.envelope import JournalRecord
from schemas.errors import InvalidMessage
from state.machine import _TRANSITIONS
from state.model.podclass import SpecSeen, parse_class
from streams.translate import to_record
from tests.builders import Json
from tests.messages import MODELS, OBSERVED, damaged


def record_of(*said: Json) -> bytes:
    """A journal record's bytes."""
    body = {"observations": list(said), "positions": {"pods": 3}, "prev": "0" * 64}
    return encode({**body, "sequence": 1, "timestamp_us": 5, "version": 1})


def as_json(value: Any) -> Any:
    """A twin as plain JSON, raw parts decoded."""
    return json.loads(msgspec.json.encode(value))


def with_defaults(model: type[BaseModel], said: Json) -> Json:
    """What pydantic makes of it, as plain JSON with every default."""
    return model.model_validate_json(json.dumps(said)).model_dump(mode="json")


@given(OBSERVED)
@settings(max_examples=200, deadline=None)
def test_the_core_reads_the_same_fields_as_the_wire(case: tuple[type[BaseModel], Json]) -> None:
    """Every observation that pydantic accepts, field for field."""
    model, said = case
    (seen,) = to_record(record_of(said)).observations
    twin, wire = as_json(seen), with_defaults(model, said)
    if wire["kind"] == "PodObserved":
        twin["spec"] = as_json(msgspec.convert(twin["spec"], SpecSeen))
    assert wire == with_defaults(model, twin)
    assert type(seen) in _TRANSITIONS


@given(OBSERVED)
@settings(max_examples=60, deadline=None)
def test_a_model_and_its_plain_form_are_one_message(case: tuple[type[BaseModel], Json]) -> None:
    """With every default spelled out, the core still reads the same."""
    model, said = case
    whole = with_defaults(model, said)
    short, long = (to_record(record_of(item)).observations[0] for item in (said, whole))
    if said["kind"] == "PodObserved":
        assert parse_class(bytes(short.spec)).requests == parse_class(bytes(long.spec)).requests
        return
    assert as_json(short) == as_json(long)


@given(damaged())
@settings(max_examples=400, deadline=None)
def test_what_pydantic_refuses_never_reaches_a_transition(said: Json) -> None:
    """Both accept, or both refuse."""
    data = record_of(said)
    try:
        JournalRecord.model_validate_json(data)
    except ValidationError:
        with pytest.raises(InvalidMessage, match="NotARecord"):
            to_record(data)
    else:
        to_record(data)


@pytest.mark.parametrize(
    "change",
    [
        {"sequence": 0},
        {"sequence": "1"},
        {"sequence": 1.5},
        {"version": 2},
        {"timestamp_us": -1},
        {"positions": {"pods": -1}},
        {"positions": {"pods": None}},
        {"observations": None},
        {"observations": [{"kind": "Unheard"}]},
        {"observations": [{}]},
        {"observations": [7]},
        {"surplus": 1},
    ],
)
def test_damage_of_the_record_itself_is_refused_by_both(change: Json) -> None:
    """The envelope is as strict as what it carries."""
    data = encode({**json.loads(record_of()), **change})
    with pytest.raises(ValidationError):
        JournalRecord.model_validate_json(data)
    with pytest.raises(InvalidMessage, match="NotARecord"):
        to_record(data)


@pytest.mark.parametrize("data", [b"", b"{", b"null", b"[]", b"\xff", b'{"sequence":1'])
def test_bytes_that_are_no_record_are_refused(data: bytes) -> None:
    """Cut off, empty, of another shape, or not even text."""
    with pytest.raises(InvalidMessage, match="NotARecord"):
        to_record(data)


def test_every_kind_of_observation_has_a_transition() -> None:
    """None is skipped in silence, and none is handled that nobody can send."""
    kinds = {model.model_fields["kind"].default for model in MODELS}
    assert kinds == {seen.__struct_config__.tag or seen.__name__ for seen in _TRANSITIONS}
    assert len(observations.Observation.__args__[0].__args__) == len(_TRANSITIONS)
