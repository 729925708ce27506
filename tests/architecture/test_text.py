"""What is committed names no machine, no registry host, and is not large."""

import re

import pytest

from tests.architecture.sources import ROOT, Finding, project_files, report

FILE_BYTES_MAX = 1024 * 1024
# Written in pieces, or this file would find itself.
MACHINE_PATHS = re.compile(
    r"(?<![\w.<])/(?:" + "|".join(["work", "root", "farm", "tmp", "home"]) + r")/\w"
)
REGISTRY_HOSTS = re.compile(
    "|".join(
        [
            r"py" + r"pi\.org",
            r"python" + r"hosted\.org",
            r"(?:proxy|sum)\.go" + r"lang\.org",
            r"registry\.np" + r"mjs\.org",
            r"repo1?\.ma" + r"ven",
            r"crates\." + r"io",
            r"index-" + r"url",
            r"GO" + r"PROXY=",
        ]
    )
)
PERSONAL = ("Co-authored" + "-by",)


def find_in_text(path: str, text: str) -> list[Finding]:
    """Machine paths, registry hosts and authors' lines, line by line."""
    found = []
    for number, line in enumerate(text.splitlines(), start=1):
        if match := MACHINE_PATHS.search(line):
            found.append(Finding(path, number, f"path of a machine: {match[0]}"))
        if match := REGISTRY_HOSTS.search(line):
            found.append(Finding(path, number, f"host of a package registry: {match[0]}"))
        if any(word in line for word in PERSONAL):
            found.append(Finding(path, number, "names a person"))
    return found


@pytest.mark.parametrize(
    "line",
    [
        "cd /wo" + "rk/main",
        'open("/tm' + 'p/x")',
        "see https://py" + "pi.org/simple",
        "export GO" + "PROXY=direct",
    ],
)
def test_a_bad_line_is_seen(line: str) -> None:
    """Paths and hosts are found wherever they stand in a line."""
    assert len(find_in_text("a", f"first\n{line}\n")) == 1


@pytest.mark.parametrize(
    "line", ["/apis/apps/v1/workloads", "network/main", "$TMPDIR/x", "https://pypi.example/simple"]
)
def test_a_good_line_passes(line: str) -> None:
    """What only looks like a machine's path passes."""
    assert find_in_text("a", line) == []


def test_no_file_names_a_machine_or_a_registry() -> None:
    """A clone works anywhere, with whatever registries its user has set up."""
    found = []
    for path in project_files():
        data = (ROOT / path).read_bytes()
        if b"\0" not in data[:8192]:
            found += find_in_text(path, data.decode(errors="replace"))
    assert not found, report(found)


def test_no_file_is_large() -> None:
    """Nothing over 1 MiB is committed."""
    sizes = {path: (ROOT / path).stat().st_size for path in project_files()}
    assert [path for path, size in sizes.items() if size > FILE_BYTES_MAX] == []


def test_every_package_says_that_it_is_typed() -> None:
    """Users of the packages get our types."""
    files = project_files()
    packages = ["schemas", "producers", "state", "streams", "lockstep"]
    assert [name for name in packages if f"{name}/py.typed" not in files] == []
