"""PodDisruptionBudget -> observation: the selector in one canonical form, and what the status allows."""

import copy
from typing import Any

import pytest

from producers.observe import observe_budget
from producers.observe.fields import OBSERVATION_BYTES_MAX
from schemas.errors import InvalidMessage
from schemas.observations import LabelRequirement
from tests.unit.producers.raw_objects import RAW, metadata

A = LabelRequirement(key="app", operator="In", values=("a",))
NOT_B = LabelRequirement(key="tier", operator="NotIn", values=("b",))


def raw(selector: Any = None, status: Any = None, **meta: Any) -> dict[str, Any]:
    """A raw budget."""
    spec = {} if selector is None else {"selector": selector}
    return {"metadata": metadata(**meta), "spec": spec, "status": status}


def expressions(*items: tuple[Any, ...]) -> dict[str, Any]:
    """A selector of expressions: key, operator, values."""
    found = [{"key": key, "operator": what, "values": [*values]} for key, what, *values in items]
    return {"matchExpressions": found}


def test_a_budget_carries_whom_it_covers_and_how_many_may_go() -> None:
    """The amounts of its spec are left to the disruption controller."""
    found = observe_budget(RAW["poddisruptionbudgets.policy"], "e")
    assert ("u1", 7, "ns", "a", "e") == (
        found.uid,
        found.rv,
        found.namespace,
        found.name,
        found.epoch,
    )
    assert ((A, NOT_B), 1) == (found.selector, found.disruptions_allowed)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, None),
        ({}, ()),
        ({"matchLabels": {}, "matchExpressions": []}, ()),
        ({"matchLabels": {"app": "a"}}, (A,)),
        (expressions(("app", "In", "a")), (A,)),
        (expressions(("app", "In", "a", "a")), (A,)),
        ({**expressions(("app", "In", "a")), "matchLabels": {"app": "a"}}, (A, A)),
        (expressions(("tier", "NotIn", "b"), ("app", "In", "a")), (A, NOT_B)),
        (expressions(("x", "Exists")), (LabelRequirement(key="x", operator="Exists"),)),
        (expressions(("x", "DoesNotExist")), (LabelRequirement(key="x", operator="DoesNotExist"),)),
        (expressions(("x", "NotIn")), None),
        (expressions(("x", "In")), None),
        (expressions(("x", "Exists", "a")), None),
        (expressions(("x", "Gt", "1")), None),
        (expressions(("app", "In", "a"), ("x", "Gt", "1")), None),
    ],
)
def test_equal_selectors_have_equal_forms(selector: Any, expected: Any) -> None:
    """Labels are requirements, too, sorted; what Kubernetes could not read selects nothing."""
    assert expected == observe_budget(raw(selector)).selector


@pytest.mark.parametrize(
    ("generation", "status", "expected"),
    [
        (None, None, 0),
        (1, None, 0),
        (1, {"disruptionsAllowed": 2, "observedGeneration": 1}, 2),
        (1, {"disruptionsAllowed": 2, "observedGeneration": 2}, 2),
        (2, {"disruptionsAllowed": 2, "observedGeneration": 1}, 0),
        (1, {"disruptionsAllowed": 2}, 0),
        (None, {"disruptionsAllowed": 2}, 2),
        (1, {"observedGeneration": 1}, 0),
        (1, {"disruptionsAllowed": -1, "observedGeneration": 1}, 0),
    ],
)
def test_a_status_that_is_out_of_date_allows_nothing(
    generation: int | None, status: Any, expected: int
) -> None:
    """As the eviction API judges it."""
    meta = {} if generation is None else {"generation": generation}
    assert expected == observe_budget(raw({}, status, **meta)).disruptions_allowed


@pytest.mark.parametrize(
    ("selector", "named"),
    [
        ([], "spec.selector"),
        ({"matchLabels": {"a": 1}}, "spec.selector.matchLabels.a"),
        (expressions((1, "Exists")), "spec.selector.matchExpressions.key"),
        (expressions(("a", 1)), "spec.selector.matchExpressions.operator"),
        (expressions(("a", "In", 1)), "spec.selector.matchExpressions.values"),
    ],
)
def test_a_selector_of_the_wrong_shape_is_named(selector: Any, named: str) -> None:
    """The message tells object and field."""
    with pytest.raises(InvalidMessage, match=f"PodDisruptionBudget ns/a: field {named}"):
        observe_budget(raw(selector))


def test_a_budget_that_is_too_large_lets_no_pod_go() -> None:
    """Its selector is cut, so it must cover every pod of the namespace, and allow nothing."""
    large = copy.deepcopy(RAW["poddisruptionbudgets.policy"])
    large["spec"]["selector"] = expressions(("a", "In", "x" * OBSERVATION_BYTES_MAX))
    found = observe_budget(large)
    assert ((), 0) == (found.selector, found.disruptions_allowed)
