"""Each third-party library has one home; the layers among our packages are import-linter's work."""

import ast
import sys

import pytest

from tests.architecture.sources import PACKAGES, Finding, Source, python_sources, report

# library -> the modules (and what lies under them) that may import it
HOMES = {
    "pydantic": ("schemas",),
    "msgspec": ("schemas", "producers", "state", "streams"),  # fast JSON; no I/O, no clock
    "numpy": ("state",),
    "faust": ("streams",),
    "mode": ("streams",),
    "aiokafka": ("streams",),
    "confluent_kafka": ("producers.publisher", "streams.log"),
    "kubernetes": ("producers.kube", "streams.sink"),
    "aiohttp": ("producers.kube", "streams.sink", "streams.api", "streams.metrics"),
    "prometheus_client": ("streams.metrics",),
    "yarl": ("streams",),  # Faust's and aiohttp's URLs
    "rocksdict": ("streams.embedded",),
    "pynvml": ("producers.nvml",),
    "typer": ("lockstep",),
    "click": ("lockstep",),
    "rich": ("lockstep",),
    "yaml": ("lockstep",),
}


def find_strangers(source: Source) -> list[Finding]:
    """Imports of libraries by modules that are not their home, and of libraries without one."""
    found = []
    for line, name in _imported(source):
        library = name.split(".")[0]
        if library in sys.stdlib_module_names or library in (*PACKAGES, "bench"):
            continue
        homes = HOMES.get(library, ())
        if not any(_lies_in(source.module, home) for home in homes):
            message = f"imports {library}, whose home is {' or '.join(homes) or 'not stated'}"
            found.append(source.finding(line, message))
    return found


def _imported(source: Source) -> list[tuple[int, str]]:
    found = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.append((node.lineno, node.module))
    return found


def _lies_in(module: str, home: str) -> bool:
    """`streams.log_kafka` lies in `streams.log` as `streams.log.kafka` would."""
    return module == home or module.startswith((f"{home}.", f"{home}_"))


@pytest.mark.parametrize(
    "text",
    [
        "import faust",
        "from pydantic import BaseModel",
        "def f():\n    import numpy.random",
        "import left_pad",
    ],
)
def test_a_stranger_is_seen(text: str) -> None:
    """A library outside its home is found, at the top and inside functions; so is an unknown one."""
    assert len(find_strangers(Source("producers/sample.py", text))) == 1


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("streams/log_kafka.py", "import confluent_kafka"),
        ("streams/embedded/log.py", "from rocksdict import Rdict"),
        ("producers/sample.py", "import json\nfrom schemas import codec\nfrom . import kube"),
    ],
)
def test_a_library_at_home_passes(path: str, text: str) -> None:
    """Homes, the standard library and our own packages pass."""
    assert find_strangers(Source(path, text)) == []


def test_every_library_stays_at_home() -> None:
    """What a library's change can break is one place."""
    found = [each for source in python_sources(*PACKAGES) for each in find_strangers(source)]
    assert not found, report(found)
