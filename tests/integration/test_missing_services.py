"""Where no service can be had, the run says so in its last lines; nothing passes in silence."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICE_TESTS = "tests/integration/test_services.py"


def run_without_tools(tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest as on a machine without Go, Java and Docker, and with nothing built yet."""
    environment = {
        "PATH": str(tmp_path),  # an empty folder
        "XDG_CACHE_HOME": str(tmp_path),
        "HOME": str(tmp_path),
        "DOCKER_HOST": f"unix://{tmp_path}/no-engine.sock",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [sys.executable, "-m", "pytest", SERVICE_TESTS, "-p", "no:cacheprovider", *options]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
    )


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["one", "two"])
def test_skipped_suites_are_named_at_the_end(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Each missing service is named with its reason right before pytest's closing line."""
    run = run_without_tools(tmp_path, *options)
    controlplane, kafka, closing = run.stdout.splitlines()[-3:]
    assert controlplane.startswith(
        "NOT RUN: 4 tests against a real Kubernetes control plane: Go 1.26"
    )
    assert kafka.startswith("NOT RUN: 3 tests against a real Kafka broker: Java 17")
    assert "7 skipped" in closing
    assert "passed" not in closing
    assert run.returncode == 0
