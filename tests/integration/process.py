"""A service as a child process: started, waited for, killed, started again.

Must not know what runs in it. Called by `kafka_broker.py` and `cluster.py`.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

PORTS = range(15_000, 32_000)
POLL_SECONDS = 0.05
STOP_SECONDS_MAX = 20
LOG_TAIL_CHARACTERS = 3000


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on, all different.

    They lie below the range from which outgoing connections get theirs. In it, a client that retries
    while the service is down may be given the very port that it calls, connect to itself, and hold it.
    """
    ports: list[int] = []
    for port in random.SystemRandom().sample(PORTS, len(PORTS)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports between {PORTS[0]} and {PORTS[-1]}")


class ServiceFailed(Exception):
    """The process ended or did not become ready; the message carries the end of its log."""


class Service:
    """One child process with its log file; `start` may be called again after `stop` or `kill`."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        log: Path,
        ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.argv = list(argv)
        self.log = log
        self._ready = ready
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self, seconds_max: float = 60) -> None:
        """Start and wait until ready. Raises ServiceFailed, with the process ended."""
        self.spawn()
        self.wait_ready(seconds_max)

    def spawn(self) -> None:
        """Start without waiting, to let several come up side by side."""
        assert not self.running, f"{self.argv[0]} runs already"
        # Dies with the test process even if that one is killed, where Linux offers it.
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        self._output = self.log.open("ab")
        self._process = subprocess.Popen(
            [*guard, *self.argv],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=subprocess.STDOUT,
            env=os.environ | self._environment,
            start_new_session=True,  # Ctrl-C reaches pytest alone, which then stops its services in order
        )

    def wait_ready(self, seconds_max: float = 60) -> None:
        """Wait until the ready check holds. Raises ServiceFailed, with the process ended."""
        give_up = time.monotonic() + seconds_max
        while not self._ready():
            if not self.running:
                raise ServiceFailed(f"{self.log.stem} ended early:\n{self.log_tail()}")
            if time.monotonic() > give_up:
                self.kill()
                raise ServiceFailed(
                    f"{self.log.stem}: not ready in {seconds_max} s:\n{self.log_tail()}"
                )
            time.sleep(POLL_SECONDS)

    def stop(self) -> None:
        """End the process as its operator would, then by force; does nothing when it has ended."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the process as a power cut would."""
        self._end(signal.SIGKILL)

    def ended(self, seconds_max: float = 60) -> int:
        """Wait until the process has ended by itself; its exit code."""
        assert self._process is not None, "not started"
        return self._process.wait(seconds_max)

    def terminate(self) -> None:
        """Ask it to end, and do not wait."""
        os.kill(self.pid, signal.SIGTERM)

    def pause(self) -> None:
        """Stop the process from running without ending it, as a long stall would."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Undo `pause`."""
        os.kill(self.pid, signal.SIGCONT)

    def log_tail(self) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return text[-LOG_TAIL_CHARACTERS:]

    def _end(self, how: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            self._process.send_signal(how)
            try:
                self._process.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        if self._output is not None:
            self._output.close()
        self._process = self._output = None
