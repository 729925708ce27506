"""Docs that are generated from code say what the code says (`pytest --rewrite` writes them anew)."""

from pathlib import Path

import pytest

from schemas.topics import CHECKPOINTS, DEADLETTER, DECISIONS, INTAKE, JOURNAL
from state.model.diagnoses import MEANINGS
from streams.topics import FOR_EVER_MS, SETTINGS

DOCS = Path(__file__).parents[2] / "docs"
_WRITERS = {
    "devices": ("informers, device agents", "sequencer"),
    "admin": ("command line", "sequencer"),
    "results": ("sink", "sequencer"),
    JOURNAL: ("sequencer", "decider, sequencer, everybody who replays"),
    DECISIONS: ("decider", "sink, projector, sequencer, informers, subscribers"),
    CHECKPOINTS: ("decider", "whoever recovers"),
    DEADLETTER: ("sequencer", "people"),
}
_TOPICS = """# Topics

Generated from `streams/topics.py`. Names have a prefix (`lockstep.` by default); a partition is a scheduling domain.
Messages are JSON with sorted keys, compressed by the log, at most 8 MiB; `lockstep schema` prints their schemas.

| topic | written by | read by | kept |
|---|---|---|---|
"""
_DIAGNOSES = """# Diagnoses

Generated from `state/model/diagnoses.py`. A pod with several reasons carries the one that must change first.

| code | meaning |
|---|---|
"""


def _topics() -> str:
    rows = []
    for name in (*INTAKE, JOURNAL, DECISIONS, CHECKPOINTS, DEADLETTER):
        settings = SETTINGS[name]
        writer, reader = _WRITERS.get(name, ("informers", "sequencer"))
        if settings.compacted:
            kept = "newest of each key"
        elif settings.retention_ms == FOR_EVER_MS:
            kept = "for ever"
        else:
            kept = f"{settings.retention_ms // 86_400_000} days"
        rows.append(f"| `{name}` | {writer} | {reader} | {kept} |\n")
    return _TOPICS + "".join(rows)


def _diagnoses() -> str:
    return _DIAGNOSES + "".join(f"| `{code}` | {text} |\n" for code, text in MEANINGS.items())


@pytest.mark.parametrize(("name", "make"), [("topics.md", _topics), ("diagnoses.md", _diagnoses)])
def test_the_page_is_current(name: str, make: object, request: pytest.FixtureRequest) -> None:
    """The page in `docs/` is what the code gives now."""
    assert callable(make)
    page = DOCS / name
    if request.config.getoption("--rewrite"):
        page.write_text(make())
    assert make() == page.read_text()
