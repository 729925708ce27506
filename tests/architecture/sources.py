"""The project's own files, for the architecture tests to look at. Called by them alone."""

import ast
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "producers", "state", "streams", "lockstep")


@dataclass(frozen=True, order=True)
class Finding:
    """Something that must not be, and where."""

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the root, its text and its syntax tree."""

    path: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def module(self) -> str:
        """The dotted name under which it is imported."""
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def finding(self, line: int, message: str) -> Finding:
        return Finding(self.path, line, message)


@cache
def python_sources(*folders: str) -> tuple[Source, ...]:
    """Every Python file under those folders, sorted by path."""
    return tuple(
        Source(path, (ROOT / path).read_text())
        for path in project_files()
        if path.endswith(".py") and path.split("/")[0] in folders
    )


@cache
def project_files() -> tuple[str, ...]:
    """Paths of all that is or would be committed, sorted."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    return tuple(sorted({path for path in listing.split("\0") if (ROOT / path).is_file()}))


def report(findings: list[Finding]) -> str:
    """Findings as lines that an editor can jump to."""
    return "\n".join(str(finding) for finding in sorted(findings))
