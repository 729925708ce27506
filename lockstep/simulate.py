"""`lockstep simulate`: plays manifests and steps against a simulated cluster, offline.

Only the command line of it: input, output, exit codes. The play itself is `lockstep.simulate_play`;
it is imported when the command runs, so that the command line starts fast.
"""

import json
import sys
from enum import StrEnum
from typing import Annotated, Final

import typer

from schemas.errors import Fatal, LockstepError

_MEMORY: Final = "simulate"


class ReportForm(StrEnum):
    """How reports are printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"


def simulate(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE...", help="YAML or JSON manifests; - is stdin.")
    ],
    policy: Annotated[
        str | None, typer.Option(metavar="FILE", help="Policy that the history starts with.")
    ] = None,
    output: Annotated[
        ReportForm, typer.Option(help="json: the last report; jsonl: one report a settle point.")
    ] = ReportForm.TABLE,
    log: Annotated[
        str, typer.Option(metavar="LOG", help="memory, or embedded:///path to keep the history.")
    ] = "memory",
) -> None:
    """Play manifests and steps against a simulated cluster, offline."""
    raise typer.Exit(run(files, policy, output, log))


def run(files: list[str], policy: str | None, output: ReportForm, log: str) -> int:
    """Plays the files and prints; returns the exit code: 1 a restart that differs, 2 bad input."""
    from lockstep.manifests import read_documents, read_policy
    from lockstep.simulate_play import Play
    from streams.log_memory import drop_memory_log

    play = None
    try:
        documents = read_documents(files)
        spec = read_policy(policy) if policy else None
        play = Play(_log_url(log), spec)
        for document in documents:
            shown = len(play.reports)
            play.play(document)
            if output is ReportForm.JSONL:
                _print_lines(play.reports[shown:])
        shown = len(play.reports)
        play.finish()
    except Fatal as error:
        print(f"lockstep simulate: {error}", file=sys.stderr)
        return 1
    except LockstepError as error:
        print(f"lockstep simulate: {error}", file=sys.stderr)
        return 2
    finally:
        if play is not None:
            play.engine.close()
        drop_memory_log(_MEMORY)
    if output is ReportForm.JSONL:
        _print_lines(play.reports[shown:])
    elif output is ReportForm.JSON:
        _print_lines(play.reports[-1:])
    else:
        from lockstep.simulate_tables import print_reports

        print_reports(play.reports)
    return 0


def _log_url(log: str) -> str:
    if log == "memory":
        return f"memory://{_MEMORY}"
    if not log.startswith("embedded:"):
        raise LockstepError(f"--log {log}: memory or embedded:///path is wanted")
    return log


def _print_lines(reports: list[dict[str, object]]) -> None:
    for report in reports:
        print(json.dumps(report, ensure_ascii=False, separators=(",", ":")))
