"""`lockstep run --metrics` off the loopback: it does not start without a token, and shows nothing without it."""

import subprocess
import urllib.error
import urllib.request
from pathlib import Path

from tests.integration.api import wait_for
from tests.integration.lockstep_process import COMMAND
from tests.integration.process import Service, free_ports

TOKEN = "marker-of-the-metrics-token"


def run_arguments(tmp_path: Path, address: str) -> list[str]:
    return [
        *COMMAND,
        "run",
        "--log",
        f"embedded://{tmp_path}/log",
        "--decider",
        "--metrics",
        address,
    ]


def answer(url: str, token: str = "") -> tuple[int, str]:
    """Status and body."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=5
        ) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def test_without_a_token_it_does_not_start(tmp_path: Path) -> None:
    """One line that names the option, exit code 2, and no log was made."""
    done = subprocess.run(
        run_arguments(tmp_path, "0.0.0.0:0"), capture_output=True, text=True, timeout=60
    )
    assert (2, "") == (done.returncode, done.stdout)
    assert (1, True) == (len(done.stderr.splitlines()), "--metrics-token-file" in done.stderr)
    assert [] == list(tmp_path.iterdir())


def test_with_a_token_only_who_has_it_reads(tmp_path: Path) -> None:
    """401 without it and with another; metrics with it; health, in a word, for all; the token is in no log."""
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\n")
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    service = Service(
        [*run_arguments(tmp_path, f"0.0.0.0:{port}"), "--metrics-token-file", str(file)],
        log=tmp_path / "lockstep.log",
        ready=lambda: answer(f"{url}/healthz")[0] == 200,
    )
    service.start()
    try:
        wait_for("it to run", lambda: answer(f"{url}/healthz") == (200, "running\n"))
        assert (401, "") == answer(f"{url}/metrics")
        assert (401, "") == answer(f"{url}/metrics", "another")
        status, shown = answer(f"{url}/metrics", TOKEN)
        assert (200, True) == (status, "lockstep_running 1.0" in shown)
        assert TOKEN not in shown
    finally:
        service.stop()
    assert TOKEN not in service.log.read_text()
