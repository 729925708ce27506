"""The core keeps the determinism rules that no linter sees; each rule is first tried on bad samples."""

import pytest

from tests.architecture import core_rules
from tests.architecture.sources import Finding, Source, python_sources, report

CORE = python_sources("state")


def sample(text: str) -> Source:
    return Source("state/sample.py", text)


def lines(findings: list[Finding]) -> list[int]:
    return sorted(finding.line for finding in findings)


def set_walks(source: Source) -> list[Finding]:
    return core_rules.find_set_walks(source, core_rules.set_names([source]))


@pytest.mark.parametrize(
    "text",
    [
        "for x in {1, 2}: pass",
        "for x in set(y): pass",
        "a = set()\nb = [x for x in a]",
        "a: frozenset[int] = f()\nb = list(a)",
        "def f(a: set[int]) -> None:\n    for x in a: pass",
        "def f() -> set[int]: ...\nb = tuple(f())",
        "class A:\n    seen: set[str]\n    def f(self):\n        for x in self.seen: pass",
        "a = set()\nb = a | c\nd = [*b]",
        "for x in a.keys() & b.keys(): pass",
        "for x in a.union(b): pass",
        "a = set()\nb = a.pop()",
        "a = set()\nb = ','.join(a)",
        "a = set()\nb = min(a, key=f)",
        "a: 'set[int] | None' = None\nfor x in a or (): pass",
        "x = {k: 1 for k in {1, 2}}",
        "a = set()\ndef f():\n    yield from a",
    ],
)
def test_a_walk_over_a_set_is_seen(text: str) -> None:
    """Each way of walking a set is found."""
    assert set_walks(sample(text)) != []


@pytest.mark.parametrize(
    "text",
    [
        "a = {1: 2}\nfor x in a: pass\nfor x in a.keys(): pass",
        "a = set()\nfor x in sorted(a): pass",
        "a = set()\nb = len(a) + max(a)\nc = 1 in a\na.add(2)\na.discard(2)",
        "for x in [1, 2]: pass\nb = list((1, 2))",
        "a = []\nb = a.pop()",
    ],
)
def test_ordered_walks_pass(text: str) -> None:
    """Dicts and lists have an order, and a sorted set has one too."""
    assert set_walks(sample(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "x = 1 / 2",
        "x /= 2",
        "x = 0.5",
        "y = float(x)",
        "y = a.astype(np.float64)",
        "y = a.mean()",
        "y = a @ b",
    ],
)
def test_a_float_is_seen(text: str) -> None:
    """Each way of making a float is found."""
    assert core_rules.find_floats(sample(text)) != []


def test_integers_pass() -> None:
    """Named integer division and int64 columns are what the core is made of."""
    text = "x = a // b\ny = np.zeros(3, dtype=np.int64)\nz = '0.5'\n"
    assert core_rules.find_floats(sample(text)) == []


def test_identity_and_outside_calls_are_seen() -> None:
    """`hash`, `id` and `popitem` are found, and builtins that reach outside."""
    bad = sample("a = hash(x)\nb = id(x)\nc = d.popitem()\nwith open(p) as f: pass\nprint(1)\n")
    assert lines(core_rules.find_identity(bad)) == [1, 2, 3]
    assert lines(core_rules.find_outside_calls(bad)) == [4, 5]


def test_no_set_is_walked() -> None:
    """Nothing in the core depends on the order of a set."""
    names = core_rules.set_names(CORE)
    found = [each for source in CORE for each in core_rules.find_set_walks(source, names)]
    assert not found, report(found)


def test_no_float_is_made() -> None:
    """Decisions are made of integers."""
    found = [each for source in CORE for each in core_rules.find_floats(source)]
    assert not found, report(found)


def test_no_object_identity_is_used() -> None:
    """No decision hangs on an address, a hash seed or a dict's last item."""
    found = [each for source in CORE for each in core_rules.find_identity(source)]
    assert not found, report(found)


def test_nothing_reaches_outside() -> None:
    """The core neither reads, prints nor evaluates."""
    found = [each for source in CORE for each in core_rules.find_outside_calls(source)]
    assert not found, report(found)
