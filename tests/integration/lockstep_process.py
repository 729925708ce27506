"""`lockstep` as its users run it: `run` as a child process, other commands to their end.

Called by the integration tests. Must not look inside the process: what it did is in the log and on the API server.
"""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any

from tests.integration.api import wait_for

STOP_SECONDS_MAX = 60
COMMAND = (sys.executable, "-m", "lockstep.main")


class LockstepRun:
    """One `lockstep run`; `start` may be called again after `stop` or `kill`."""

    def __init__(self, directory: Path, url: str, *arguments: str) -> None:
        self.url = url
        self.datadir = directory / "data"
        self._argv = [
            *COMMAND,
            "run",
            "--log",
            url,
            "--datadir",
            str(self.datadir),
            *arguments,
        ]
        self.output = directory / "lockstep.log"
        self._file: IO[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts it; returns when its roles run."""
        before = self.said("running")
        self.spawn()
        wait_for(
            f"lockstep to run ({self.output})",
            lambda: self.said("running") > before or self._died(),
        )

    def spawn(self) -> None:
        """Starts it, without waiting."""
        self._file = self.output.open("ab")
        self._process = subprocess.Popen(self._argv, stdout=self._file, stderr=self._file)

    def said(self, name: str) -> int:
        """How often the event `name` stands in its log."""
        if not self.output.exists():
            return 0
        return self.output.read_text(errors="replace").count(f'"event": "{name}"')

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def terminate(self) -> None:
        """SIGTERM, without waiting; `wait` waits."""
        self.send(signal.SIGTERM)

    def wait(self) -> int:
        """Waits for its end; returns the exit code."""
        assert self._process is not None
        code = self._process.wait(STOP_SECONDS_MAX)
        if self._file is not None:
            self._file.close()
        return code

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it does nothing any more, and does not know."""
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self.send(signal.SIGCONT)

    def send(self, number: int) -> None:
        """Sends a signal, without waiting for what comes of it."""
        assert self._process is not None
        self._process.send_signal(number)

    @property
    def running(self) -> bool:
        """It has been started and has not ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Of the process that was started last."""
        assert self._process is not None
        return self._process.pid

    def stop_if_running(self) -> None:
        """What a fixture does at the end, however the test went."""
        if self.running:
            self.resume()
            self.stop()

    def _end(self, number: int) -> int:
        self.send(number)
        return self.wait()

    def _died(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"lockstep ended:\n{self.output.read_text()[-3000:]}")
        return False


def lockstep(*arguments: str) -> tuple[int, Any]:
    """Runs a command with `--output json`; its exit code and what it printed."""
    argv = [*COMMAND, *arguments, "--output", "json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def open_commands(url: str) -> list[Any]:
    """Commands of the log that have no end yet."""
    commands: list[Any] = lockstep("state", "commands", "--log", url)[1]["commands"]
    return commands
