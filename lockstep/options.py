"""Options that several commands share, and what they mean: the log, moments, output, progress.

Imports only what the command line itself needs; logs and histories are opened on use.
"""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from schemas.errors import LockstepError

if TYPE_CHECKING:
    from rich.console import Console

    from streams.history import Bound, History, Progress

#: How long a command may take before it shows a progress bar.
QUIET_S: Final = 2.0
#: The highest partition that can be asked for; Kafka's clusters end far below.
DOMAIN_MAX: Final = 99_999


class Output(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"


LogOption = Annotated[
    str,
    typer.Option(
        "--log",
        metavar="LOG",
        envvar="LOCKSTEP_LOG",
        help="kafka://host:9092, embedded:///path, or an export file.",
    ),
]
DatadirOption = Annotated[
    Path | None,
    typer.Option(help="Tables and the admin socket; default: beside an embedded log."),
]
DomainOption = Annotated[
    int,
    typer.Option(help="Scheduling domain: the partition number.", min=0, max=DOMAIN_MAX),
]
OutputOption = Annotated[Output, typer.Option(help="table for people, json for machines.")]


def datadir_of(log: str, datadir: Path | None) -> Path:
    """The folder of a service's tables and its admin socket: as given, or the one that belongs to the log."""
    from streams.log import LogAddress

    if datadir is not None:
        return datadir
    address = LogAddress.parse(log)
    if address.scheme == "embedded":
        return Path(f"{address.place}.data")
    home = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return home / "lockstep" / re.sub(r"[^\w.-]", "_", f"{address.place}-{address.prefix}")


@contextmanager
def opened_history(log: str, domain: int) -> "Iterator[History]":
    """The history at `--log`, closed at the end."""
    history = _open_history(log, domain)
    try:
        yield history
    finally:
        history.close()


def _open_history(log: str, domain: int) -> "History":
    """The history at `--log`: a log's address, a path, or `file:///path` of an export."""
    if "://" in log and not log.startswith("file://"):
        from streams.history import LogHistory
        from streams.log import open_reader

        return LogHistory(open_reader(log, domain), open_reader(log, domain))
    from streams.export import ExportHistory

    path = Path(log.removeprefix("file://"))
    if not path.is_file():
        raise LockstepError(
            f"--log {log}: no such file, and not an address such as kafka://host:9092"
        )
    return ExportHistory(path)


def parse_moment(text: str | None, option: str) -> "Bound":
    """A sequence (digits) or a time (ISO 8601, UTC unless it says otherwise) as a bound of
    history.
    """
    from streams.history import Bound

    if text is None:
        return Bound()
    if text.isdigit():
        return Bound(sequence=int(text))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise LockstepError(
            f"{option} {text}: want a sequence such as 42 or a time such as 2026-01-31T12:00:00Z"
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    elapsed = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return Bound(
        timestamp_us=(elapsed.days * 86_400 + elapsed.seconds) * 1_000_000 + elapsed.microseconds
    )


def format_time(timestamp_us: int) -> str:
    """UTC with the fraction that is there."""
    moment = datetime.fromtimestamp(timestamp_us // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{timestamp_us % 1_000_000:06d}".rstrip("0")
    return f"{moment}.{fraction}Z" if fraction else f"{moment}Z"


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, sort_keys=True, ensure_ascii=False))


def wide_console() -> "Console":
    """A console for tables: as wide as the terminal, and wide enough for everything where there is none."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 240, soft_wrap=False)


@contextmanager
def progress_bar(title: str) -> "Iterator[Progress]":
    """A function to report progress to; a bar appears on a terminal when the work takes long."""
    if not sys.stderr.isatty():
        yield _no_progress
        return
    import time

    from rich.console import Console
    from rich.progress import Progress as Bar
    from rich.progress import TimeRemainingColumn

    with Bar(
        *Bar.get_default_columns()[:2],
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=False,
    ) as bar:
        task = bar.add_task(title, total=None, visible=False)
        began = time.monotonic()

        def report(done: int, total: int) -> None:
            visible = time.monotonic() - began >= QUIET_S
            bar.update(task, completed=done, total=max(total, 1), visible=visible)

        yield report


def _no_progress(done: int, total: int) -> None:
    """Nobody watches."""
    del done, total


def object_name(text: str) -> tuple[str | None, str]:
    """(namespace, name) of `namespace/name`, or (None, name). A gang of a Workload has slashes in its name."""
    namespace, slash, name = text.partition("/")
    if not slash:
        namespace, name = "", text
    if not name or (slash and not namespace):
        raise LockstepError(f"{text!r}: want a name, or namespace/name")
    return (namespace or None), name


def singular(kind: str, kinds: dict[str, Callable[..., Any]]) -> str:
    """The key of `kinds` that `kind` names, in singular or plural. Raises `LockstepError` that
    lists them.
    """
    for name in (kind, f"{kind}s", re.sub("s$", "", kind)):
        if name in kinds:
            return name
    raise LockstepError(f"unknown kind {kind!r}; one of {', '.join(kinds)}")
