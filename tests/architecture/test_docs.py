"""What the pages say exists, exists: links, files, modules, commands and verbs."""

import re
from pathlib import Path

import pytest

from lockstep.main import COMMANDS
from tests.architecture.sources import PACKAGES, ROOT, Finding, project_files, report

_FOLDERS = "|".join([*PACKAGES, "tests", "docs", "deploy", "bench", "examples"])
_LINK = re.compile(r"\]\(([^)#:]+)\)")
_FILE = re.compile(rf"`((?:{_FOLDERS})/[\w./-]*)`")
_MODULE = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.[a-z_]+)+)(?:`|\.[A-Z])")
_COMMAND = re.compile(r"(?:`|bin/)lockstep ([a-z][a-z-]*)")
_VERB = re.compile(r"(?m)(?:`|^)make ([a-z]+)")
_TARGETS = set(re.findall(r"(?m)^([a-z]+):", (ROOT / "Makefile").read_text()))


def find_false_words(path: str, text: str) -> list[Finding]:
    """What the page names and the tree does not have, line by line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        missing = [
            *(
                name
                for name in _LINK.findall(line)
                if not (ROOT / path).parent.joinpath(name).exists()
            ),
            *(name for name in _FILE.findall(line) if not (ROOT / name).exists()),
            *(name for name in _MODULE.findall(line) if not _is_module(name)),
            *(f"lockstep {name}" for name in _COMMAND.findall(line) if name not in COMMANDS),
            *(f"make {name}" for name in _VERB.findall(line) if name not in _TARGETS),
        ]
        found += [Finding(path, number, f"there is no {name}") for name in missing]
    return found


def _is_module(name: str) -> bool:
    """The name, or what it stands in (`state.machine.step`), is a module or a package."""
    places = (ROOT / name.replace(".", "/"), ROOT / name.rpartition(".")[0].replace(".", "/"))
    return places[0].is_dir() or any(place.with_suffix(".py").is_file() for place in places)


@pytest.mark.parametrize(
    "line",
    [
        "see [the plan](no-such-page.md)",
        "in `streams/nowhere.py`",
        "`state.nowhere.step` does it",
        "`lockstep fly --log L`",
        "`make coffee`",
    ],
)
def test_a_false_word_is_seen(line: str) -> None:
    """Each kind of name that nothing answers to is found."""
    assert [2] == [each.line for each in find_false_words("README.md", f"first\n{line}\n")]


@pytest.mark.parametrize(
    "line",
    [
        "see [the glossary](docs/glossary.md#log) and [elsewhere](https://example.com/x)",
        "in `streams/chain.py`, `tests/scenarios/`",
        "`state.machine.step` and `producers.informer`",
        "`lockstep replay --verify`; lockstep does it",
        "`make check unit`; make them sure",
    ],
)
def test_a_true_word_passes(line: str) -> None:
    """What is there is not reported, nor is prose."""
    assert [] == find_false_words("README.md", line)


def test_pages_name_only_what_is_there() -> None:
    """A newcomer who follows a page never meets a hole."""
    pages = [path for path in project_files() if path.endswith(".md")]
    found = [
        each for path in pages for each in find_false_words(path, Path(ROOT, path).read_text())
    ]
    assert not found, report(found)
