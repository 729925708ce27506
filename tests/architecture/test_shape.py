"""Files, functions and names keep to the style guide; each rule is first tried on bad samples."""

import tomllib
from collections.abc import Callable

import pytest

from lockstep.main import COMMANDS
from tests.architecture import shape_rules
from tests.architecture.sources import (
    PACKAGES,
    ROOT,
    Finding,
    Source,
    python_sources,
    report,
)

PRODUCT = python_sources(*PACKAGES, "bench")
TESTS = python_sources("tests")
Rule = Callable[[Source], list[Finding]]


def sample(text: str, path: str = "state/sample.py") -> Source:
    return Source(path, text)


LONG_FUNCTION = "def f():\n" + "    x = 1\n" * shape_rules.FUNCTION_LINES_MAX


@pytest.mark.parametrize(
    ("rule", "bad"),
    [
        (shape_rules.find_long_modules, sample("x = 1\n" * 501)),
        (shape_rules.find_long_functions, sample(LONG_FUNCTION)),
        (shape_rules.find_long_functions, sample("def f(a, b, c, d, e, g): ...")),
        (shape_rules.find_dumping_grounds, sample("", "state/rules/quota_utils.py")),
        (shape_rules.find_dumping_grounds, sample("", "streams/common/log.py")),
        (shape_rules.find_dumping_grounds, sample("class PodManager: ...")),
        (shape_rules.find_undocumented, sample("x = 1")),
        (shape_rules.find_silent_tests, sample("def test_x():\n    assert f()")),
        (shape_rules.find_reminders, sample("x = 1  # TO" + "DO: later")),
        (shape_rules.find_reminders, sample("x = 1  # FIX" + "ME(#3): later")),
    ],
)
def test_a_bad_sample_is_seen(rule: Rule, bad: Source) -> None:
    """Each rule finds what it is there for."""
    assert len(rule(bad)) == 1


@pytest.mark.parametrize(
    ("rule", "good"),
    [
        (shape_rules.find_long_modules, sample("x = 1\n" * 500)),
        (shape_rules.find_long_functions, sample('def f():\n    """a\n' + "\n" * 60 + '    """\n')),
        (shape_rules.find_long_functions, sample("def f(self, a, b, c, d, e, *, g): ...")),
        (shape_rules.find_dumping_grounds, sample("class Database: ...", "state/commonest.py")),
        (shape_rules.find_silent_tests, sample('def test_x():\n    """It holds."""')),
        (shape_rules.find_reminders, sample("x = 'TO" + "DO'  # TO" + "DO(#12): later")),
    ],
)
def test_a_good_sample_passes(rule: Rule, good: Source) -> None:
    """Each rule lets its limit, and what only looks bad, pass."""
    assert rule(good) == []


def test_orphans_and_namesakes_are_seen() -> None:
    """A module that only itself imports is an orphan; a class of two packages has a namesake."""
    sources = [
        Source("state/a.py", "import state.a\nclass Gang: ..."),
        Source("state/b.py", ""),
        Source("streams/__init__.py", "from state import b\nLAZY = 'streams.d:main'"),
        Source("streams/c.py", "class Gang: ..."),
        Source("streams/d.py", "from . import e"),
        Source("streams/e.py", ""),
        Source("streams/f.py", ""),
    ]
    orphans = shape_rules.find_orphans(sources, roots=["streams.f"])
    assert [finding.path for finding in orphans] == ["state/a.py", "streams/c.py"]
    namesakes = shape_rules.find_namesakes(sources)
    assert [finding.path for finding in namesakes] == ["streams/c.py"]


@pytest.mark.parametrize(
    "rule",
    [
        shape_rules.find_long_modules,
        shape_rules.find_long_functions,
        shape_rules.find_dumping_grounds,
        shape_rules.find_undocumented,
        shape_rules.find_silent_tests,
        shape_rules.find_reminders,
    ],
)
def test_the_project_keeps_the_rule(rule: Rule) -> None:
    """No file of the product or of its tests breaks it."""
    found = [each for source in (*PRODUCT, *TESTS) for each in rule(source)]
    assert not found, report(found)


def test_one_class_name_has_one_meaning() -> None:
    """Edge and core twins differ by a word, not by their package."""
    found = shape_rules.find_namesakes(PRODUCT)
    assert not found, report(found)


def test_no_module_lies_unused() -> None:
    """Every module is imported by the product, or is an entry point, or a command of `lockstep`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    groups = [project["scripts"], *project["entry-points"].values()]
    roots = [target.partition(":")[0] for group in groups for target in group.values()]
    roots += [f"lockstep.{module}" for module, _ in COMMANDS.values()]
    found = shape_rules.find_orphans(PRODUCT, roots)
    assert not found, report(found)
