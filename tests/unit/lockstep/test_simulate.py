"""The command line of `lockstep simulate`: reading, steps, outputs, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.manifests import read_documents, read_policy
from lockstep.simulate import ReportForm, run
from lockstep.simulate_engine import Engine
from lockstep.simulate_play import START_US
from lockstep.simulate_steps import Step, read_step
from schemas.errors import Fatal, InvalidMessage, LockstepError
from streams.history import LogHistory
from streams.log import open_reader
from streams.log_memory import drop_memory_log
from streams.verify import verify

NODE = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: a, creationTimestamp: 2026-01-01T00:00:00Z}
spec:
  schedulerName: lockstep
  containers: [{name: main, image: busybox, resources: {requests: {cpu: "1"}}}]
"""
SETTLE = "\napiVersion: lockstep.dev/v1\nkind: Step\nsettle: true\n"
RESTART = "\napiVersion: lockstep.dev/v1\nkind: Step\nrestart: {wipe: true}\n"


def written(folder: Path, name: str, *documents: str) -> str:
    """A file with the documents; its path."""
    file = folder / name
    file.write_text("---".join(documents), encoding="utf-8")
    return str(file)


def printed(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The reports on standard output, one a line."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_documents_are_numbered_over_all_files(tmp_path: Path) -> None:
    """YAML and JSON mix; empty documents do not count; times stay text."""
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n2"}}
    files = [
        written(tmp_path, "a.yaml", "# only a comment\n", NODE, POD),
        written(tmp_path, "b.json", json.dumps(node) + "\n" + json.dumps(node)),
    ]
    documents = read_documents(files)
    assert [0, 1, 2, 3] == [document.number for document in documents]
    assert ["Node", "Pod", "Node", "Node"] == [document.raw["kind"] for document in documents]
    assert "2026-01-01T00:00:00Z" == documents[1].raw["metadata"]["creationTimestamp"]
    assert f"{files[0]}: document 1 (Pod a)" == documents[1].where


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "bad.yaml: line 2, column 1: not YAML"),
        ("a: 1\nb: 2\na: 3", "bad.yaml: line 3, column 1: not YAML: the key 'a' stands twice"),
        ("- a", "bad.yaml: document 0: a map is wanted, not list"),
        ('{"a": 1} {', "bad.yaml: .*not YAML"),
        ('{"a": ' + "[" * 100_000, "bad.yaml: .*not YAML"),
        ("a: " + "9" * 5_000, "bad.yaml: .*not YAML: Exceeds the limit"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, text: str, said: str) -> None:
    """The message holds the file and the place."""
    with pytest.raises(LockstepError, match=said):
        read_documents([written(tmp_path, "bad.yaml", text)])
    with pytest.raises(LockstepError, match=r"none\.yaml: cannot be read: No such file"):
        read_documents([str(tmp_path / "none.yaml")])


def test_a_policy_is_a_document_or_its_spec(tmp_path: Path) -> None:
    """Both forms give the same fields, durations in microseconds; anything else is refused, in one line."""
    spec = "{schedulerNames: [mine], gangs: {defaultTimeout: 90s}}"
    whole = f"apiVersion: lockstep.dev/v1\nkind: Policy\nspec: {spec}"
    forms = [written(tmp_path, f"{index}.yaml", text) for index, text in enumerate((spec, whole))]
    fields = {"schedulerNames": ["mine"], "gangs": {"defaultTimeout": 90_000_000}}
    assert [fields] * 2 == [read_policy(form) for form in forms]
    with pytest.raises(LockstepError, match="kind Policy with a spec is wanted"):
        read_policy(written(tmp_path, "node.yaml", NODE))
    with pytest.raises(LockstepError, match=r"bad\.yaml: policy field schedulerName: "):
        read_policy(written(tmp_path, "bad.yaml", "{schedulerName: mine}"))
    with pytest.raises(LockstepError, match=r"bad\.yaml: policy field gangs\.defaultTimeout: .*$"):
        read_policy(written(tmp_path, "bad.yaml", "gangs: {defaultTimeout: soon}"))
    with pytest.raises(LockstepError, match=r"none\.yaml: cannot be read: No such file"):
        read_policy(str(tmp_path / "none.yaml"))


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ({"settle": True}, Step(verb="settle")),
        ({"advance": "1m30s"}, Step(verb="advance", duration_us=90_000_000)),
        (
            {"delete": {"kind": "Node", "name": "n"}},
            Step(verb="delete", kind="Node", name="n"),
        ),
        (
            {"slowEvict": {"namespace": "x", "name": "a", "seconds": 2}},
            Step(verb="slowEvict", namespace="x", name="a", duration_us=2_000_000),
        ),
        (
            {"refuseBind": {"name": "a", "status": 403}},
            Step(verb="refuseBind", name="a", number=403),
        ),
        ({"restart": {"wipe": True}}, Step(verb="restart", flag=True)),
    ],
)
def test_steps_are_read(step: dict[str, Any], expected: Step) -> None:
    """Each verb with its fields and defaults."""
    assert expected == read_step({"apiVersion": "lockstep.dev/v1", "kind": "Step", **step})


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({}, "exactly one step is wanted, found none"),
        ({"settle": True, "advance": "1s"}, "exactly one step is wanted, found advance, settle"),
        ({"settle": 1}, "settle: true is wanted"),
        ({"advance": 30}, "advance: a duration such as 30s is wanted"),
        ({"advance": "soon"}, "advance: 'soon' is not a duration"),
        ({"setPhase": {"name": "a"}}, "setPhase.phase: a text is wanted, not nothing"),
        ({"duplicate": {"times": True}}, "duplicate.times: a whole number is wanted"),
        ({"duplicate": {"times": 0}}, "duplicate.times: 1 to 1000 times are possible"),
        ({"duplicate": {"times": 10**30}}, "duplicate.times: 1 to 1000 times are possible"),
        ({"refuseBind": {"name": "a", "status": 200}}, "refuseBind.status: an HTTP status"),
        ({"slowEvict": {"name": "a", "seconds": -1}}, "slowEvict.seconds: 0 to "),
        ({"gap": {"kind": "Pod", "for": "1s"}}, "gap.for: no such field; there are kind"),
        ({"gap": "Pod"}, "gap: a map is wanted"),
        ({"restart": {"wipe": False}}, "restart.wipe: only true is possible"),
    ],
)
def test_a_step_that_is_wrong_names_its_field(step: dict[str, Any], said: str) -> None:
    """Every mistake is an error that says what is wanted."""
    with pytest.raises(InvalidMessage, match=said):
        read_step({"apiVersion": "lockstep.dev/v1", "kind": "Step", **step})


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("apiVersion: v1\nkind: List\nitems: [5]\n", "field items: a list of objects is wanted"),
        ("apiVersion: lockstep.dev/v1\nkind: Policy\n", "spec: a map of policy fields is wanted"),
        (
            "apiVersion: lockstep.dev/v1\nkind: Policy\nspec: []\n",
            "spec: a map of policy fields is wanted",
        ),
        (
            "\n---".join(["\napiVersion: lockstep.dev/v1\nkind: Step\nadvance: 2500000h\n"] * 29),
            "advance: time would leave the year 9999",
        ),
    ],
)
def test_a_document_that_says_nothing_sound_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], document: str, said: str
) -> None:
    """Never ignored, never a traceback."""
    assert 2 == run([written(tmp_path, "a.yaml", document)], None, ReportForm.JSON, "memory")
    error = capsys.readouterr().err
    assert said in error
    assert 1 == len(error.splitlines())


def test_one_report_a_settle_point(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """jsonl prints each report with its document's number, and the end only if it is one."""
    file = written(tmp_path, "a.yaml", NODE, SETTLE, POD)
    assert 0 == run([file], None, ReportForm.JSONL, "memory")
    reports = printed(capsys)
    assert [1, 2] == [report["step"] for report in reports]
    assert [0, 1] == [len(report["pods"]) for report in reports]
    file = written(tmp_path, "b.yaml", NODE, POD, SETTLE)
    assert 0 == run([file], None, ReportForm.JSONL, "memory")
    assert [2] == [report["step"] for report in printed(capsys)]


def test_json_prints_the_last_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One object with everything that the design lists."""
    file = written(tmp_path, "a.yaml", NODE, SETTLE, POD)
    assert 0 == run([file], None, ReportForm.JSON, "memory")
    (report,) = printed(capsys)
    assert "2026-01-01T00:00:00Z" == report["time"]
    wanted = "step sequence digest time pods gangs quotas nodes reservations migrations commands"
    assert sorted(wanted.split()) == sorted(report)
    command = {field: report["commands"][0][field] for field in ("kind", "name", "node")}
    assert {"kind": "BindPod", "name": "a", "node": "n1"} == command


def test_tables_name_pods_and_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For people: a line for each report, then tables."""
    assert 0 == run([written(tmp_path, "a.yaml", NODE, POD)], None, ReportForm.TABLE, "memory")
    shown = capsys.readouterr().out
    assert [] == [text for text in ("default/a", "n1", "cpu 1/4", "step 1") if text not in shown]


def test_the_same_input_gives_the_same_bytes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two runs print the same digests, and so does one on the embedded log."""
    file = written(
        tmp_path, "a.yaml", NODE, POD, SETTLE, RESTART, POD.replace("name: a", "name: b")
    )
    digests = []
    for log in ("memory", "memory", f"embedded://{tmp_path / 'log'}"):
        assert 0 == run([file], None, ReportForm.JSONL, log)
        digests.append([report["digest"] for report in printed(capsys)])
    assert digests[0] == digests[1] == digests[2]


def test_the_history_of_an_embedded_log_verifies(tmp_path: Path) -> None:
    """What simulate writes is a history as any other; writing over it is refused."""
    url = f"embedded://{tmp_path / 'log'}"
    file = written(tmp_path, "a.yaml", NODE, POD)
    assert 0 == run([file], None, ReportForm.JSON, url)
    reader = open_reader(url)
    found = verify(LogHistory(reader, reader))
    reader.close()
    assert (None, found.records) == (found.difference, found.compared)
    assert found.compared > 2
    assert 2 == run([file], None, ReportForm.JSON, url)


@pytest.mark.parametrize("log", ["kafka://h:1", "memory://x", "nowhere"])
def test_other_logs_are_refused(
    tmp_path: Path, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A simulation never writes to a log that others read."""
    assert 2 == run([written(tmp_path, "a.yaml", NODE)], None, ReportForm.JSON, log)
    assert "memory or embedded:///path is wanted" in capsys.readouterr().err


def test_a_policy_file_starts_the_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under a policy that names another scheduler the pod is not ours."""
    policy = written(tmp_path, "p.yaml", "{schedulerNames: [other]}")
    assert 0 == run([written(tmp_path, "a.yaml", NODE, POD)], policy, ReportForm.JSON, "memory")
    (report,) = printed(capsys)
    assert [] == report["commands"]


def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line names file, document, object and kind."""
    file = written(
        tmp_path, "a.yaml", NODE, "\napiVersion: x/v1\nkind: Widget\nmetadata: {name: w}\n"
    )
    assert 2 == run([file], None, ReportForm.JSON, "memory")
    lines = capsys.readouterr().err.splitlines()
    assert 1 == len(lines)
    assert f"{file}: document 1 (Widget w): kind Widget of x/v1" in lines[0]


def test_a_restart_that_differs_is_fatal() -> None:
    """A digest other than the one before the restart ends the play."""
    engine = Engine("memory://differs", {})
    try:
        assert engine.step(START_US) is not None
        engine.restart()
        engine.decider.decisions.digest = "1" * 64
        with pytest.raises(Fatal, match="after the restart"):
            engine.restart()
    finally:
        drop_memory_log("differs")
