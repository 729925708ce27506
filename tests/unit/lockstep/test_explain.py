"""`lockstep explain` on an embedded log: now, in the past, for people and for machines, and its exit codes."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from lockstep import main
from streams.checkpoints import Checkpointer, CheckpointStore
from streams.log import open_writer
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, pod, settle
from tests.unit.streams.test_history import checkpoint

LABEL = "pod-group.scheduling.sigs.k8s.io"


def member(name: str) -> dict[str, Any]:
    """A pod of the gang `train`."""
    return pod(name, 400, labels={LABEL: "train"})


@pytest.fixture
def url(tmp_path: Path) -> str:
    """A gang of three: one member at second 2, three at second 4, a node that takes two; `alone` fits at 5.
    A checkpoint at second 4.
    """
    address = f"embedded://{tmp_path}/log"
    writer = open_writer(address)
    log = Log(address)
    log.sync_all()
    log.publish("nodes", node("n1", cpu=1_000))
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    settle(log, sequencer, decider, 1_000_000)
    log.publish(
        "podgroups",
        {
            "kind": "PodGroupObserved",
            "uid": "uid-train",
            "rv": 1,
            "group": "scheduling.sigs.k8s.io",
            "namespace": "default",
            "name": "train",
            "created_us": 1,
            "min_member": 3,
        },
    )
    log.publish("pods", member("train-0"))
    settle(log, sequencer, decider, 2_000_000)
    log.publish("pods", member("train-1"), member("train-2"))
    settle(log, sequencer, decider, 4_000_000)
    checkpoint(Checkpointer(CheckpointStore(log.reader), log.writer, records=1), decider)
    log.publish("pods", pod("alone", 100))
    settle(log, sequencer, decider, 5_000_000)
    log.close()
    writer.close()
    return address


def explain(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of `lockstep explain ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["lockstep", "explain", *arguments])
    with pytest.raises(SystemExit) as exit_:
        main.main()
    printed = capsys.readouterr()
    return int(exit_.value.code or 0), printed.out, printed.err


def test_why_a_gang_waits(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of three are placeable, 300 must come free, and it waited for members, then for room; exit 1."""
    code, out, _ = explain(monkeypatch, capsys, "gang", "train", "--log", url, "--output", "json")
    answer = json.loads(out)
    gang = answer["gangs"][0]
    assert (1, "Waits", 5, 3, 2, 0) == (
        code,
        answer["verdict"],
        answer["sequence"],
        gang["seen"],
        gang["placeable"],
        gang["missing"],
    )
    assert [{"cards": 0, "node": "n1", "pods": ["default/train-2"], "resources": {"cpu": 300}}] == (
        answer["to_free"]["nodes"]
    )
    assert {"InsufficientResources": 1_000_000, "WaitingForMembers": 2_000_000} == (
        answer["waited"]["causes_us"]
    )


def test_the_same_question_about_the_past(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At sequence 3, and at that time: one member was seen, two were missing, and nothing had been waited for yet."""
    for moment in ("3", "1970-01-01T00:00:03Z"):
        code, out, _ = explain(
            monkeypatch, capsys, "gangs", "train", "--log", url, "--at", moment, "--output", "json"
        )
        answer = json.loads(out)
        gang = answer["gangs"][0]
        assert (1, 3, 1, 2, [], 0) == (
            code,
            answer["sequence"],
            gang["seen"],
            gang["missing"],
            answer["lacking"],
            answer["waited"]["total_us"],
        )


def test_for_people(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each line says one thing, and twice the same question gives the same bytes."""
    first = explain(monkeypatch, capsys, "pod", "default/train-2", "--log", url)
    assert first == explain(monkeypatch, capsys, "pod", "default/train-2", "--log", url)
    code, out, _ = first
    assert (1, "pod default/train-2 waits (sequence 5, 1970-01-01T00:00:05Z)") == (
        code,
        out.splitlines()[0],
    )
    for line in (
        "still needs 3: 2 placeable, 0 missing",
        "closest n1: 300 cpu missing (wants 400, 100 free)",
        "to free       300 cpu on n1, for default/train-2",
        "evicting      does not help: no pod of a lower priority has a node",
        "waited        1 s: InsufficientResources 1 s",
    ):
        assert line in out


def test_exit_codes(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0: it has a node; 1: nobody knows it at that moment; 2: no such kind."""
    code, out, _ = explain(monkeypatch, capsys, "pod", "alone", "--log", url)
    assert (0, True) == (code, "pod default/alone has what it needs" in out)
    code, out, _ = explain(monkeypatch, capsys, "pod", "alone", "--log", url, "--at", "4")
    assert (1, True) == (code, "pod default/alone is not known (sequence 4" in out)
    code, out, _ = explain(monkeypatch, capsys, "gang", "nobody", "--log", url, "--output", "json")
    assert (1, "Unknown") == (code, json.loads(out)["verdict"])
    code, _, err = explain(monkeypatch, capsys, "moon", "x", "--log", url)
    assert (2, "lockstep: unknown kind 'moon'; one of pod, gang\n") == (code, err)


def test_a_piece_of_history_without_its_head(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """An export of the last record alone: the gang is explained as ever, its waiting counts from the checkpoint on."""
    piece = tmp_path / "piece"
    monkeypatch.setattr(
        sys, "argv", ["lockstep", "log", "export", str(piece), "--log", url, "--from", "5"]
    )
    with pytest.raises(SystemExit):
        main.main()
    capsys.readouterr()
    whole = explain(monkeypatch, capsys, "gang", "train", "--log", url, "--output", "json")
    part = explain(monkeypatch, capsys, "gang", "train", "--log", str(piece), "--output", "json")
    answer, ever = json.loads(part[1]), json.loads(whole[1])
    assert {
        "causes_us": {"InsufficientResources": 1_000_000},
        "since_us": 4_000_000,
        "total_us": 1_000_000,
    } == answer.pop("waited")
    del ever["waited"]
    assert (1, ever) == (part[0], answer)
