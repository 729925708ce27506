"""Structured logs: one line of JSON an event, whatever the fields are."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from streams.logs import build_logging, event


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What is logged, with the settings of before restored afterwards."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers = []
    stream = io.StringIO()
    build_logging(stream=stream)
    yield stream
    root.handlers, root.level = before[0], before[1]


def test_event_with_fields(lines: io.StringIO) -> None:
    """An event is one JSON object with time, level, logger, name and its fields."""
    event(logging.getLogger("lockstep.sink"), logging.INFO, "bound", command_id="7.0", pod=None)
    (line,) = map(json.loads, lines.getvalue().splitlines())
    assert line.pop("time").endswith("Z")
    assert {
        "level": "info",
        "logger": "lockstep.sink",
        "event": "bound",
        "command_id": "7.0",
    } == line


def test_lines_of_libraries_and_strange_values(lines: io.StringIO) -> None:
    """Other packages' messages are formatted, line breaks stay inside, any value can be written."""
    logging.getLogger("aiohttp").warning("odd %s", "line\nbreak")
    event(logging.getLogger("x"), logging.INFO, "set", value=frozenset({1}), event="not this")
    first, second = map(json.loads, lines.getvalue().splitlines())
    assert "odd line\nbreak" == first["event"]
    assert ("set", "frozenset({1})") == (second["event"], second["value"])


def test_errors_carry_their_traceback(lines: io.StringIO) -> None:
    """An error that is logged while it is handled shows where it came from."""
    try:
        raise ValueError("broken")
    except ValueError:
        event(logging.getLogger("x"), logging.ERROR, "failed")
    (line,) = map(json.loads, lines.getvalue().splitlines())
    assert "ValueError: broken" in line["error"]


def test_levels_below_are_not_written(lines: io.StringIO) -> None:
    """Debug events cost nothing unless asked for."""
    event(logging.getLogger("x"), logging.DEBUG, "detail")
    assert "" == lines.getvalue()
