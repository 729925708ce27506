"""What a pod carries that is no business of a scheduler is stored nowhere and printed nowhere.

From manifests through `simulate` to everything that reads the log. The same with a real API server, the service's log
and its metrics is in `tests/integration/test_secrets.py`.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep import main
from schemas.topics import DECISIONS
from state.snapshot import encode
from streams.history import LogHistory
from streams.log import open_reader
from streams.projector import Projector
from streams.recovery import recover
from streams.translate import to_state
from tests.integration import manifests
from tests.secret_pods import KEPT, MARKER, places_of, secret_pod, topics_of

Say = Callable[..., str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """Runs `lockstep ARGUMENTS`, which must succeed; all that it printed."""

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["lockstep", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main.main()
        printed = capsys.readouterr()
        assert not exit_.value.code, printed.err
        return printed.out + printed.err

    return run


def test_no_secret_of_a_pod_is_kept_or_shown(say: Say, tmp_path: Path) -> None:
    """One pod is bound, one waits: topics, checkpoint, tables, export, and all commands; labels are in most."""
    url, export = f"embedded://{tmp_path}/log", tmp_path / "export"
    play = tmp_path / "play.json"
    objects = [
        manifests.node("n1", {"cpu": "4", "memory": "8Gi"}),
        secret_pod("placed", "1"),
        secret_pod("waiting", "100"),
    ]
    play.write_text("\n".join(json.dumps(each) for each in objects))
    places: dict[str, bytes | str] = {"simulate": say("simulate", str(play), "--log", url)}
    assert "n1" in places["simulate"]
    for command in (
        ("replay", "--verify"),
        ("state", "pods"),
        ("state", "nodes"),
        ("story", "pod", "placed"),
        ("story", "pod", "waiting"),
        ("decisions",),
        ("log", "export", str(export)),
    ):
        places[" ".join(command[:3])] = say(*command, "--log", url)
    places["export file"] = export.read_bytes()
    for topic, held in topics_of(url):
        places[topic] = bytes(places.get(topic, b"")) + held  # type: ignore[arg-type]
    reader = open_reader(url)
    places["checkpoint"] = encode(recover(LogHistory(reader, reader)).decider.state)
    projector = Projector(to_state(None))
    for record in reader.read(DECISIONS, 0, 1_000):
        projector.on_decision(record.value or b"")
    places["tables"] = b"".join(row or b"" for _, _, row in projector.all_rows())
    reader.close()
    assert [] == places_of(MARKER, places)
    kept = set(places_of(KEPT, places))
    assert {"topic pods", "topic journal", "checkpoint", "export file"} <= kept
