"""`lockstep decisions`: the accepted decisions, one JSON a line; the way to subscribe from a
shell.
"""

import sys
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from lockstep.options import DomainOption, LogOption, opened_history

if TYPE_CHECKING:
    from streams.history import LogHistory, Start


def decisions(
    log: LogOption,
    follow: Annotated[bool, typer.Option("--follow", help="Go on as decisions are made.")] = False,
    start: Annotated[int, typer.Option("--from", metavar="S", help="First sequence.", min=1)] = 1,
    domain: DomainOption = 0,
) -> None:
    """Print accepted decisions as they stand in the log, one a line."""
    from streams.history import Bound, LogHistory, accepted_decisions

    with opened_history(log, domain) as history:
        begin = history.start(Bound(sequence=start - 1))
        if follow and isinstance(history, LogHistory):
            _follow(history, begin, start)
        for chain, data in accepted_decisions(history, begin):
            if chain.sequence >= start:
                _print(data)


def _follow(history: "LogHistory", begin: "Start", first: int) -> NoReturn:
    from schemas.topics import DECISIONS
    from streams.chain import StallWatch
    from streams.history import READ_LIMIT

    chain, offset = begin.decision_chain(), begin.decisions_offset
    watch = StallWatch(DECISIONS)
    while True:
        for record in history.decisions_reader.read(DECISIONS, offset, READ_LIMIT, timeout_s=1.0):
            offset = record.offset + 1
            accepted = chain.accept(record.value or b"")
            watch.note(chain, time.monotonic())
            if accepted and chain.sequence >= first:
                _print(record.value or b"")
        sys.stdout.flush()


def _print(data: bytes) -> None:
    sys.stdout.buffer.write(data + b"\n")
