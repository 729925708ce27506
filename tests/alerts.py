"""The alerts of `deploy/alerts.yaml` for tests: which test produces which, and whether an expression
holds for what was scraped.

Expressions are read as Python over `Vector`, so in `alerts.yaml` both sides of `and` and `or` stand in
brackets. Of PromQL only what the alerts use is here; a range is every scrape that was given.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import yaml
from prometheus_client.parser import text_string_to_metric_families

ALERTS = Path(__file__).parents[1] / "deploy" / "alerts.yaml"
SELECTOR = re.compile(r"\b((?:lockstep|process)_[a-z_]+)(?:\{([^}]*)\})?(\[\d+m\])?")
MATCHER = re.compile(r'(\w+)(=~|!~|!=|=)"([^"]*)"')

Labels = frozenset[tuple[str, str]]
Scrape = dict[str, dict[Labels, float]]
Test = TypeVar("Test", bound=Callable[..., Any])


def produces(*alerts: str) -> Callable[[Test], Test]:
    """Says that a test brings the condition of these alerts about; `tests/architecture` looks for it."""
    unknown = [alert for alert in alerts if alert not in expressions()]
    assert not unknown, unknown
    return lambda test: test


def expressions() -> dict[str, str]:
    """Alert -> its expression."""
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def parse(text: bytes | str) -> Scrape:
    """What `/metrics` said: metric -> labels -> value."""
    text = text.decode() if isinstance(text, bytes) else text
    scrape: Scrape = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            scrape.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return scrape


def fires(alert: str, *scrapes: bytes | str) -> bool:
    """The alert's expression holds at the last of these scrapes; its `for` is not looked at."""
    given = [parse(scrape) for scrape in scrapes]
    names: dict[str, Any] = {**FUNCTIONS}

    def select(found: re.Match[str]) -> str:
        name = f"v{len(names)}"
        series = [_matching(scrape, found[1], found[2] or "") for scrape in given]
        names[name] = series if found[3] else Vector(series[-1])
        return name

    expression = SELECTOR.sub(select, expressions()[alert])
    expression = expression.replace(" and ", " & ").replace(" or ", " | ")
    result = eval(expression, {"__builtins__": {}}, names)
    assert isinstance(result, Vector)
    return bool(result.values)


def _matching(scrape: Scrape, name: str, matchers: str) -> dict[Labels, float]:
    wanted = MATCHER.findall(matchers)
    return {
        labels: value
        for labels, value in scrape.get(name, {}).items()
        if all(_matches(dict(labels).get(key, ""), how, text) for key, how, text in wanted)
    }


def _matches(value: str, how: str, text: str) -> bool:
    equal = bool(re.fullmatch(text, value)) if "~" in how else value == text
    return equal != how.startswith("!")


@dataclass(eq=False)
class Vector:
    """An instant vector; comparisons keep what they hold for."""

    values: dict[Labels, float]

    def _keep(self, holds: Callable[[float], bool]) -> "Vector":
        return Vector({labels: value for labels, value in self.values.items() if holds(value)})

    def __gt__(self, limit: float) -> "Vector":
        return self._keep(lambda value: value > limit)

    def __lt__(self, limit: float) -> "Vector":
        return self._keep(lambda value: value < limit)

    def __eq__(self, limit: object) -> "Vector":  # type: ignore[override]
        return self._keep(lambda value: value == limit)

    def __and__(self, other: "Vector") -> "Vector":
        return Vector({key: value for key, value in self.values.items() if key in other.values})

    def __or__(self, other: "Vector") -> "Vector":
        return Vector(other.values | self.values)


Series = Sequence[dict[Labels, float]]


def _over(series: Series, reduce: Callable[[list[float]], float]) -> Vector:
    keys = {key: None for each in series for key in each}
    return Vector({key: reduce([each[key] for each in series if key in each]) for key in keys})


def _whole(reduce: Callable[[Iterable[float]], float]) -> Callable[[Vector], Vector]:
    return lambda vector: Vector(
        {frozenset(): reduce(vector.values.values())} if vector.values else {}
    )


FUNCTIONS: dict[str, Any] = {
    "abs": lambda vector: Vector({key: abs(value) for key, value in vector.values.items()}),
    "absent": lambda vector: Vector({} if vector.values else {frozenset(): 1.0}),
    "changes": lambda series: _over(series, lambda v: float(sum(a != b for a, b in pairwise(v)))),
    "increase": lambda series: _over(series, lambda values: values[-1] - values[0]),
    "max": _whole(max),
    "max_over_time": lambda series: _over(series, max),
    "sum": _whole(sum),
}
