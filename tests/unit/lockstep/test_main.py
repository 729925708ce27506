"""The command as a process: output that cannot be written, and an end from outside."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from schemas.topics import DECISIONS
from streams.log import create_topics, open_writer
from tests.builders import Core

COMMAND = [sys.executable, "-m", "lockstep.main"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_output_that_cannot_be_written_is_one_line_and_exit_2(tmp_path: Path) -> None:
    """A full disk under our standard output is no traceback."""
    manifest = tmp_path / "empty.yaml"
    manifest.write_text("apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n")
    argv = [*COMMAND, "simulate", str(manifest), "--output", "json"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (2, 1) == (done.returncode, len(done.stderr.splitlines()))
    assert "cannot write" in done.stderr


def test_a_follower_that_is_ended_leaves_nothing_behind(tmp_path: Path) -> None:
    """`decisions --follow` of an embedded log removes its temporary folder at SIGTERM."""
    url = f"embedded://{tmp_path}/log"
    create_topics(url, 1)
    writer = open_writer(url)
    writer.append_many([(DECISIONS, None, decision.data) for decision in Core().decisions])
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    argv = [*COMMAND, "decisions", "--follow", "--log", url]
    follower = subprocess.Popen(argv, stdout=subprocess.PIPE, env={"TMPDIR": str(temporary)})
    assert follower.stdout is not None
    assert b'"sequence":1,' in follower.stdout.readline()
    assert list(temporary.iterdir())
    follower.send_signal(signal.SIGTERM)
    follower.communicate(timeout=30)
    writer.close()
    assert (128 + signal.SIGTERM, []) == (follower.returncode, list(temporary.iterdir()))
