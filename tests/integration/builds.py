"""Local builds of the services that the integration tests run against.

The control plane is one Go executable, the Kafka broker a folder of jars. Each is built once into
`$XDG_CACHE_HOME/lockstep` (default `~/.cache/lockstep`) under a key of all that goes into it, and
reused until that changes. Must not start a service: `kafka_broker.py` and `cluster.py` do.
Called by `make services` (`python -m tests.integration.builds`) and by the fixtures.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
GO_SOURCES = tuple(HERE / "controlplane" / name for name in ("go.mod", "go.sum", "main.go"))
POM = HERE / "kafka" / "pom.xml"
BUILD_SECONDS_MAX = 3600  # two cores, all caches empty: ten minutes; slow networks take longer


class Missing(Exception):
    """A tool that a build needs is not on this machine; the message says what and how to get it."""


def cache_directory() -> Path:
    """Where builds are kept, outside the tree so that clones share them."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "lockstep"


def controlplane() -> Path:
    """The path that the control plane's executable has once built. Raises Missing without Go."""
    go_version = _go_version()
    return cache_directory() / "controlplane" / _key(GO_SOURCES, go_version) / "controlplane"


def kafka_jars() -> Path:
    """The folder that holds the broker's jars once built. Raises Missing without Java."""
    if shutil.which("java") is None:
        raise Missing(
            "Java 17 or newer is missing (Debian: apt-get install openjdk-17-jre-headless)"
        )
    return cache_directory() / "kafka" / _key((POM,)) / "lib"


def build_controlplane() -> Path:
    """Build the control plane unless it stands. Raises Missing, or CalledProcessError on failure."""
    binary = controlplane()
    if binary.exists():
        return binary
    binary.parent.mkdir(parents=True, exist_ok=True)
    unfinished = binary.with_name(f"{binary.name}.{os.getpid()}")
    # Without the version stamp clients see version 0 and refuse features.
    version = _kubernetes_version()
    stamp = "k8s.io/component-base/version"
    major, minor = version.removeprefix("v").split(".")[:2]
    flags = {"gitVersion": version, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    ldflags = " ".join(["-s", "-w", *(f"-X {stamp}.{key}={value}" for key, value in flags.items())])
    _run(
        [
            "go",
            "build",
            "-trimpath",
            "-buildvcs=false",
            f"-ldflags={ldflags}",
            "-o",
            str(unfinished),
            ".",
        ],
        cwd=HERE / "controlplane",
        environment={"CGO_ENABLED": "0"},
    )
    unfinished.rename(binary)
    return binary


def build_kafka_jars() -> Path:
    """Fetch the broker's jars unless they stand. Raises Missing, or CalledProcessError on failure."""
    jars = kafka_jars()
    if jars.exists():
        return jars
    if shutil.which("mvn") is None:
        raise Missing("Maven is missing (Debian: apt-get install maven)")
    jars.parent.mkdir(parents=True, exist_ok=True)
    unfinished = jars.with_name(f"{jars.name}.{os.getpid()}")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"]
    _run(["mvn", "--batch-mode", "--quiet", "--file", str(POM), *goal])
    unfinished.rename(jars)
    return jars


def _run(argv: list[str], cwd: Path = HERE, environment: dict[str, str] | None = None) -> None:
    subprocess.run(
        argv, cwd=cwd, env=os.environ | (environment or {}), check=True, timeout=BUILD_SECONDS_MAX
    )


def _key(sources: tuple[Path, ...], *more: str) -> str:
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return "-".join([digest.hexdigest()[:16], *more])


def _go_version() -> str:
    if shutil.which("go") is None:
        raise Missing(f"Go {_go_wanted()} or newer is missing (see go.dev/dl)")
    version = subprocess.run(
        ["go", "env", "GOVERSION"], cwd="/", capture_output=True, text=True, check=True
    ).stdout.strip()
    numbers = re.match(r"go(\d+)\.(\d+)", version)
    if numbers is None or tuple(map(int, numbers.groups())) < tuple(
        map(int, _go_wanted().split("."))
    ):
        raise Missing(f"Go {_go_wanted()} or newer is missing, {version} is here (see go.dev/dl)")
    return version


def _go_wanted() -> str:
    return _first_match(r"^go (\d+\.\d+)")


def _kubernetes_version() -> str:
    return _first_match(r"^\s*k8s\.io/kubernetes (v\S+)")


def _first_match(pattern: str) -> str:
    match = re.search(pattern, GO_SOURCES[0].read_text(), re.MULTILINE)
    assert match is not None, f"go.mod has no line {pattern}"
    return match[1]


def main() -> int:
    """Build what can be built; a missing tool is said and is no failure, a failed build is one."""
    failed = 0
    for name, build in (("Kafka broker", build_kafka_jars), ("control plane", build_controlplane)):
        try:
            print(f"{name}: building, unless it stands ...", flush=True)
            print(f"{name}: {build()}", flush=True)
        except Missing as missing:
            print(f"{name}: not built, its tests will be skipped: {missing}", flush=True)
        except subprocess.SubprocessError as error:
            print(f"{name}: the build failed: {error}", file=sys.stderr, flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
