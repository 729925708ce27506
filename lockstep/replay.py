"""`lockstep replay`: derives every decision of a history again, and with `--verify` compares bytes
and digests.
"""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.options import (
    DomainOption,
    LogOption,
    Output,
    OutputOption,
    opened_history,
    parse_moment,
    print_json,
    progress_bar,
)
from schemas.errors import LockstepError

if TYPE_CHECKING:
    from streams.verify import Verification


def replay(
    *,
    log: LogOption,
    start: Annotated[
        int | None, typer.Option("--from", metavar="S", help="First sequence that counts.", min=1)
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="S|TIME", help="Last sequence, or moment.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare with the decisions in the log.")
    ] = False,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Derive every decision again; exit 1 at the first difference."""
    from streams.history import Bound
    from streams.verify import verify as verify_history

    bound = parse_moment(until, "--until")
    began = time.monotonic()
    with opened_history(log, domain) as history, progress_bar("replay") as progress:
        begin = None if start is None else history.start(Bound(sequence=start - 1))
        found = verify_history(
            history,
            start=begin,
            bound=bound,
            compare_from=start or 1,
            compare=verify,
            progress=progress,
        )
    if start is not None and found.difference is None and found.last < start:
        raise LockstepError(
            f"--from {start}: nothing there; the history that was asked for ends at sequence"
            f" {found.last}"
        )
    seconds = time.monotonic() - began
    if output is Output.JSON:
        print_json(_as_json(found, seconds))
    else:
        _print(found, seconds, compared=verify)
    raise typer.Exit(1 if found.difference is not None else 0)


def _as_json(found: "Verification", seconds: float) -> dict[str, Any]:
    difference = found.difference
    first = None
    if difference is not None:
        first = {"sequence": difference.sequence, "detail": difference.detail}
    return {
        "from": found.first,
        "until": found.last,
        "records": found.records,
        "observations": found.observations,
        "compared": found.compared,
        "undecided": found.undecided,
        "stale": found.stale,
        "digest": found.digest,
        "differences": 0 if difference is None else 1,
        "first_difference": first,
        "seconds": round(seconds, 3),
    }


def _print(found: "Verification", seconds: float, *, compared: bool) -> None:
    rate = found.observations / seconds if seconds > 0 else 0
    print(
        f"{found.records} records ({found.first} to {found.last}), {found.observations}"
        f" observations in {seconds:.1f} s ({rate:,.0f}/s); stale entries: {found.stale}"
    )
    if found.undecided:
        print(f"{found.undecided} records have no decision in the log yet")
    print(f"digest {found.digest}")
    difference = found.difference
    if difference is not None:
        print(f"FIRST DIFFERENCE at sequence {difference.sequence}: {difference.detail}")
    elif compared:
        print(f"0 differences in {found.compared} decisions, compared byte for byte")
