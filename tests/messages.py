"""Strategies for messages of the wire: observations that the models accept, and damaged ones. For property tests."""

import json
import typing
from typing import Any

from hypothesis import strategies as st
from pydantic import BaseModel

from schemas.observations import Observation
from tests.builders import Json

MODELS: tuple[type[BaseModel], ...] = typing.get_args(typing.get_args(Observation)[0])
INT64_MAX = (1 << 63) - 1
#: Names that meet each other often, and any others.
NAMES = [
    "",
    "p1",
    "p2",
    "n1",
    "e1",
    "uid-p1",
    "uid-n1",
    "default",
    "pods",
    "nodes",
    "2.0",
    "genesis",
]
NAMES += [
    "podgroups.scheduling.x-k8s.io",
    "devices.scheduling.koordinator.sh",
    "koordinator.sh/gpu-core",
]
NAMES += [
    "pod-group.scheduling.sigs.k8s.io",
    "gang.scheduling.koordinator.sh/name",
    "2",
    "nvidia.com/gpu",
    "cpu",
]
TEXT = st.sampled_from(NAMES) | st.text(max_size=6)
NATURAL = st.integers(0, 9) | st.integers(0, INT64_MAX)
INTEGER = st.integers(-9, 9) | st.integers(-INT64_MAX, INT64_MAX)


def of_type(hint: Any, field: str = "") -> st.SearchStrategy[Any]:
    """JSON values of a field's type."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return NATURAL if args[0] is int else of_type(args[0], field)
    if origin is typing.Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(of_type(args[0]), max_size=2)
    if origin is dict:
        if args[1] is Any:
            return st.dictionaries(TEXT, st.integers(0, 9) | TEXT, max_size=2)
        return st.dictionaries(TEXT, of_type(args[1]), max_size=2)
    if args:  # a union
        return st.one_of(*(of_type(arg) for arg in args))
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return of_model(hint)
    plain = {str: TEXT, int: INTEGER, bool: st.booleans(), type(None): st.none()}
    return plain[hint]


def of_model(model: type[BaseModel]) -> st.SearchStrategy[Json]:
    """JSON objects that the model accepts: required fields, and any of the others."""
    hints = typing.get_type_hints(model, include_extras=True)
    required, optional = {}, {}
    for name, field in model.model_fields.items():
        hint = hints[name] if field.metadata == [] else typing.Annotated[hints[name], "natural"]
        wanted = field.is_required() or name == "kind"
        (required if wanted else optional)[name] = of_type(hint, name)
    return st.fixed_dictionaries(required, optional=optional)


OBSERVED = st.sampled_from(MODELS).flatmap(lambda model: st.tuples(st.just(model), of_model(model)))


@st.composite
def damaged(draw: st.DrawFn) -> Json:
    """An observation with one value, somewhere, of another type, or a field too many, or one too few."""
    _, said = draw(OBSERVED)
    said = json.loads(json.dumps(said))
    place: Any = said
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        deeper = [key for key in keys if isinstance(place[key], dict | list) and place[key]]
        if not deeper or draw(st.booleans()):
            break
        place = place[draw(st.sampled_from(deeper))]
    damage = draw(st.sampled_from(["replace", "drop", "add"]))
    junk = draw(st.sampled_from([None, True, -1, 1.5, "junk", [], [1], {}, {"junk": 1}]))
    if isinstance(place, list):
        place.append(junk)
    elif damage == "add" or not keys:
        place["surplus"] = junk
    elif damage == "drop":
        del place[draw(st.sampled_from(keys))]
    else:
        place[draw(st.sampled_from(keys))] = junk
    return said
