"""The command line: what each command prints, its exit code, and one line for what is wrong."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep import main
from schemas.codec import models
from schemas.topics import ADMIN
from streams.log import open_reader, open_writer
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, pod, settle

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs `lockstep ARGUMENTS`; its exit code, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lockstep", *arguments])
        with pytest.raises(SystemExit) as exit_:
            main.main()
        printed = capsys.readouterr()
        return int(exit_.value.code or 0), printed.out, printed.err

    return run


@pytest.fixture
def url(tmp_path: Path) -> str:
    """An embedded log in which a pod was bound at second 2 and another waits since second 3."""
    address = f"embedded://{tmp_path}/log"
    writer = open_writer(address)
    log = Log(address)
    log.sync_all()
    log.publish("nodes", node("n1", cpu=1_000))
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    settle(log, sequencer, decider, 1_000_000)
    log.publish("pods", pod("a", cpu=800))
    settle(log, sequencer, decider, 2_000_000)
    log.publish("pods", pod("b", cpu=800))
    settle(log, sequencer, decider, 3_000_000)
    log.close()
    writer.close()
    return address


def replies(cli: Run, *arguments: str) -> tuple[int, Any]:
    code, out, _ = cli(*arguments, "--output", "json")
    return code, json.loads(out)


def test_replay_compares_and_counts(cli: Run, url: str) -> None:
    """A sound log: no difference, exit 0, and what was read."""
    code, found = replies(cli, "replay", "--log", url, "--verify")
    assert (0, 0, None, 4, 4) == (
        code,
        found["differences"],
        found["first_difference"],
        found["records"],
        found["compared"],
    )
    code, out, _ = cli("replay", "--log", url, "--verify", "--from", "3", "--until", "3")
    assert (0, True) == (code, "0 differences in 1 decisions" in out)


def test_replay_names_the_first_difference(cli: Run, url: str, tmp_path: Path) -> None:
    """A byte flipped in an export: exit 1 and its sequence; the file is refused by an import with exit 1."""
    path = tmp_path / "piece"
    assert 0 == cli("log", "export", str(path), "--log", url)[0]
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"name":"b"', b'"name":"c"', 1))
    code, found = replies(cli, "replay", "--log", str(path), "--verify")
    assert (1, 1, 4) == (code, found["differences"], found["first_difference"]["sequence"])
    code, out, _ = cli("replay", "--log", f"file://{path}", "--verify")
    assert (1, True) == (code, "FIRST DIFFERENCE at sequence 4" in out)
    code, _, err = cli("log", "import", str(path), "--log", f"embedded://{tmp_path}/copy")
    assert (1, True) == (code, "damaged at sequence 4" in err and "nothing was imported" in err)


def test_export_and_import_carry_a_history(cli: Run, url: str, tmp_path: Path) -> None:
    """A copy of the log verifies, and the log's id is the same."""
    path, copy = str(tmp_path / "piece.gz"), f"embedded://{tmp_path}/copy"
    code, exported = replies(cli, "log", "export", path, "--log", url, "--until", "3")
    assert (0, 1, 3) == (code, exported["from"], exported["until"])
    code, imported = replies(cli, "log", "import", path, "--log", copy)
    assert (0, exported["log"]) == (code, imported["log"])
    code, found = replies(cli, "replay", "--log", copy, "--verify")
    assert (0, 3, exported["digest"]) == (code, found["compared"], found["digest"])
    code, _, err = cli("log", "import", path, "--log", copy)
    assert (2, True) == (code, "not empty" in err)


def test_state_at_any_moment(cli: Run, url: str) -> None:
    """The end, a sequence, and a time; in singular, plural, by name."""
    code, found = replies(cli, "state", "pods", "--log", url)
    assert (0, {"a": "n1", "b": None}) == (
        code,
        {row["name"]: row["assumed_node"] for row in found["pods"]},
    )
    _, found = replies(cli, "state", "pod", "--log", url, "--at", "3")
    assert (3, ["a"]) == (found["sequence"], [row["name"] for row in found["pods"]])
    _, found = replies(cli, "state", "pods", "--log", url, "--at", "1970-01-01T00:00:02.5Z")
    assert (3, "1970-01-01T00:00:02Z") == (found["sequence"], found["time"])
    code, found = replies(cli, "state", "nodes", "n1", "--log", url)
    assert (0, 800) == (code, found["nodes"][0]["used"]["cpu"])
    code, found = replies(cli, "state", "commands", "--log", url)
    assert ["BindPod"] == [row["kind"] for row in found["commands"]]


def test_state_for_people_shows_why_a_pod_waits(cli: Run, url: str) -> None:
    """The table names the diagnosis; a name that is not there is exit 1."""
    code, out, _ = cli("state", "pods", "default/b", "--log", url)
    assert (0, True) == (code, "InsufficientResources" in out)
    assert 1 == cli("state", "pods", "default/nobody", "--log", url)[0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("state", "moons"), "unknown kind 'moons'; one of pods"),
        (("state", "pods", "--at", "yesterday"), "--at yesterday: want a sequence"),
        (("state", "pods", "a/"), "want a name"),
        (("story", "moon", "x"), "unknown kind 'moon'"),
        (("replay", "--until", "soon"), "--until soon: want a sequence"),
        (("replay", "--verify", "--from", "5"), "--from 5: nothing there; the history"),
        (("replay", "--verify", "--from", "4", "--until", "2"), "ends at sequence 2"),
        (("log", "export", "/dev/null", "--from", "5"), "nothing from sequence 5 on"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    cli: Run, url: str, arguments: tuple[str, ...], told: str
) -> None:
    """The line names what is wrong and what would be right."""
    code, _, err = cli(*arguments, "--log", url)
    assert (2, 1, True) == (code, len(err.splitlines()), told in err)


def test_a_domain_is_a_partition(cli: Run, url: str) -> None:
    """A number that no partition has is refused by the option's name."""
    for domain in ("-1", "4294967296"):
        code, _, err = cli("replay", "--log", url, "--domain", domain)
        assert (2, True, False) == (code, "--domain" in err, "Traceback" in err)


def test_a_log_that_is_not_there(cli: Run, tmp_path: Path) -> None:
    """A path without a file, an address without a log, an address of no kind."""
    for log in (str(tmp_path / "none"), f"embedded://{tmp_path}/none", "ftp://x"):
        code, _, err = cli("replay", "--log", log)
        assert (2, 1) == (code, len(err.splitlines()))


def test_a_datadir_that_is_a_file_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """No traceback: the option and the path are named, and nothing is appended to the log."""
    (tmp_path / "file").touch()
    command = [sys.executable, "-m", "lockstep.main", "run", "--sequencer"]
    places = ["--log", f"embedded://{tmp_path}/log", "--datadir", f"{tmp_path}/file"]
    done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=60)
    expected = f"lockstep: --datadir {tmp_path}/file: cannot be made: File exists\n"
    assert (2, expected) == (done.returncode, done.stderr)


def test_decisions_are_printed_as_they_stand(cli: Run, url: str) -> None:
    """One a line, from a sequence on."""
    code, out, _ = cli("decisions", "--log", url, "--from", "3")
    lines = [json.loads(line) for line in out.splitlines()]
    assert (0, [3, 4]) == (code, [line["sequence"] for line in lines])


def test_story_tells_observations_changes_and_commands(cli: Run, url: str) -> None:
    """In the order of the log; a pod without a namespace is in `default`; a stranger is exit 1."""
    code, events = replies(cli, "story", "pod", "a", "--log", url)
    assert (0, [("observation", "PodObserved"), ("change", "pods"), ("command", "BindPod")]) == (
        code,
        [(event["what"], event["title"]) for event in events],
    )
    code, out, _ = cli("story", "pod", "default/b", "--log", url)
    assert (0, True) == (code, "InsufficientResources" in out)
    code, events = replies(cli, "story", "node", "n1", "--log", url)
    assert ("command", "BindPod") in [(event["what"], event["title"]) for event in events]
    assert (1, "pod default/nobody: not in this log\n", "") == cli(
        "story", "pod", "nobody", "--log", url
    )
    assert (1, []) == replies(cli, "story", "pod", "nobody", "--log", url)


def test_story_and_explanation_of_a_gang_of_a_workload(cli: Run, tmp_path: Path) -> None:
    """Its name has slashes; what the Workload said is part of the story, what a PodGroup of that name said is not."""
    address = f"embedded://{tmp_path}/log"
    writer = open_writer(address)
    log = Log(address)
    log.sync_all()
    policy = {"gangs": {"kubernetesWorkloads": True}}
    log.publish("admin", {"kind": "PolicyChanged", "id": "on", "spec": policy})
    base = {"namespace": "default", "name": "train", "rv": 1, "created_us": 1}
    workload = {**base, "kind": "WorkloadObserved", "uid": "w", "pod_groups": {"g": 2}}
    group = {**base, "kind": "PodGroupObserved", "uid": "p", "min_member": 7}
    log.publish("podgroups", workload, {**group, "group": "scheduling.k8s.io"})
    log.publish("pods", pod("a", scheduling_group="train/g/0"))
    settle(log, SequencerRole(log), DeciderRole(log), 2_000_000)
    log.close()
    writer.close()
    code, events = replies(cli, "story", "gang", "default/train/g/0", "--log", address)
    told = [(event["what"], event["title"]) for event in events]
    assert (0, True) == (code, ("observation", "WorkloadObserved") in told)
    assert {("change", "gangs"), ("change", "workloads")} < set(told)
    assert ("observation", "PodGroupObserved") not in told
    code, answer = replies(cli, "explain", "gang", "default/train/g/0", "--log", address)
    gang = answer["gangs"][0]
    assert (1, "default/train/g/0", 2, 1) == (
        code,
        gang["gang"],
        gang["min_member"],
        gang["missing"],
    )
    code, events = replies(cli, "story", "gang", "train", "--log", address)
    told = [(event["what"], event["title"]) for event in events]
    assert ("observation", "PodGroupObserved") in told
    assert ("observation", "WorkloadObserved") not in told


def test_schema_prints_every_message(cli: Run) -> None:
    """Names without KIND, JSON Schema with it in any case, the diagnoses, and exit 2 for an unknown one."""
    _, names = replies(cli, "schema")
    assert ["diagnosis", *models()] == names
    code, schema = replies(cli, "schema", "podobserved")
    assert (0, "PodObserved") == (code, schema["title"])
    _, meanings = replies(cli, "schema", "diagnosis")
    assert "WaitingForMembers" in meanings
    assert 2 == cli("schema", "moon")[0]


def test_topics_of_a_log_without_settings(cli: Run, url: str) -> None:
    """An embedded log makes its topics itself."""
    assert (0, {"created": []}) == replies(cli, "topics", "create", "--log", url)
    assert (0, {"differences": []}) == replies(cli, "topics", "check", "--log", url)


def test_evict_without_a_service_appends_to_the_log(cli: Run, url: str) -> None:
    """The request stands on `admin` with a unique id."""
    code, answer = replies(
        cli, "evict", "pod", "a", "-n", "default", "--reason", "why", "--log", url
    )
    reader = open_reader(url)
    (record,) = reader.read(ADMIN, 0, 10)
    reader.close()
    (request,) = json.loads(record.value or b"")["observations"]
    assert (0, answer["id"], "a", "why") == (
        code,
        request["id"],
        request["name"],
        request["reason"],
    )


def test_simulate_loads_no_faust_and_no_clients(tmp_path: Path) -> None:
    """The command line loads what the command needs and nothing else."""
    manifest = tmp_path / "empty.yaml"
    manifest.write_text("")
    script = (
        "import sys; sys.argv = ['lockstep', 'simulate', sys.argv[1]]\n"
        "from lockstep.main import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = ('faust', 'mode', 'aiokafka', 'kubernetes', 'confluent_kafka', 'rocksdict', 'aiohttp')\n"
        "print([name for name in heavy if name in sys.modules], file=sys.stderr)\n"
    )
    argv = [sys.executable, "-c", script, str(manifest)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True)
    assert "[]" == done.stderr.splitlines()[-1]


def test_asserts_may_not_be_stripped() -> None:
    """The core's guards are asserts: an interpreter that drops them is refused with the remedy."""
    argv = [sys.executable, "-O", "-m", "lockstep.main", "schema"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert (2, "") == (done.returncode, done.stdout)
    assert "run without -O" in done.stderr


def test_help_lists_every_command(cli: Run) -> None:
    """Each command's module can be loaded, and has a line of help."""
    code, out, _ = cli("--help")
    assert 0 == code
    for name in main.COMMANDS:
        assert name in out
