"""The rules of `deploy/kafka-acls.sh` name every topic, and give each role what `docs/topics.md` says it writes."""

import subprocess
from pathlib import Path

from schemas.topics import ADMIN, CHECKPOINTS, DEADLETTER, DECISIONS, INTAKE, JOURNAL, RESULTS

SCRIPT = Path(__file__).parents[2] / "deploy" / "kafka-acls.sh"


def rules() -> dict[tuple[str, str], set[str]]:
    """(user without `lockstep-`, operation) -> topics named one by one, without their prefix."""
    done = subprocess.run(
        [SCRIPT, "--bootstrap-server", "broker"],
        env={"PATH": "/usr/bin:/bin", "KAFKA_ACLS": "echo", "PREFIX": "t."},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[tuple[str, str], set[str]] = {}
    for line in done.stdout.splitlines():
        words = line.split()
        assert ["--bootstrap-server", "broker", "--add"] == words[:3]
        options = list(zip(words[3::2], words[4::2], strict=True))
        if ("--resource-pattern-type", "prefixed") in options:
            continue
        for user in [value for name, value in options if name == "--allow-principal"]:
            for operation in [value for name, value in options if name == "--operation"]:
                topics = {value.removeprefix("t.") for name, value in options if name == "--topic"}
                role = user.removeprefix("User:lockstep-")
                found.setdefault((role, operation), set()).update(topics)
    return found


def test_each_role_has_its_topics_and_no_others() -> None:
    """A topic that is added to the code, or a right too many, fails here."""
    history = {JOURNAL, DECISIONS, CHECKPOINTS}
    assert {
        ("informers", "Read"): history,
        ("informers", "Write"): {*INTAKE} - {ADMIN, RESULTS},
        ("device-agent", "Write"): {"devices"},
        ("sequencer", "Read"): history | {*INTAKE},
        ("sequencer", "Write"): {JOURNAL, DEADLETTER},
        ("decider", "Read"): history,
        ("decider", "Write"): {DECISIONS, CHECKPOINTS},
        ("projector", "Read"): history,
        ("sink", "Read"): history,
        ("sink", "Write"): {RESULTS},
        ("reader", "Read"): history,
        ("operator", "Read"): history | {DEADLETTER},
        ("operator", "Write"): {ADMIN},
    } == rules()
