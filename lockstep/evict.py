"""`lockstep evict pod`: asks for an eviction; Lockstep carries it out through the eviction subresource."""

import getpass
import json
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lockstep.options import (
    DatadirOption,
    DomainOption,
    LogOption,
    Output,
    OutputOption,
    datadir_of,
    print_json,
)
from schemas.errors import LockstepError

if TYPE_CHECKING:
    from streams.log import LogReader

app = typer.Typer(
    help="Ask for the eviction of a pod.", add_completion=False, pretty_exceptions_enable=False
)


@app.callback()
def _root() -> None:
    """Sub-commands only."""


@app.command("pod")
def evict_pod(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    log: LogOption,
    reason: Annotated[str, typer.Option(help="Why; shown in the pod's events and story.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n")] = "default",
    uid: Annotated[str, typer.Option(help="Only if the pod has this uid.")] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Until the eviction has ended.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds to wait with --wait.", min=0)] = 900.0,
    domain: DomainOption = 0,
    datadir: DatadirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Ask for the eviction of one pod; exit 1 if it is refused or does not end in time."""
    from schemas.codec import encode
    from schemas.observations import EvictRequested, IntakeMessage
    from schemas.topics import DECISIONS, JOURNAL
    from streams.log import open_reader

    request = EvictRequested(
        id=str(uuid.uuid4()),
        namespace=namespace,
        name=name,
        uid=uid,
        reason=reason,
        requester=_requester(),
    )
    message = encode(IntakeMessage(producer="lockstep evict", observations=(request,)))
    answer: dict[str, Any] = {"id": request.id, "outcome": None}
    with closing(open_reader(log, domain)) as reader:
        before = reader.end_offset(DECISIONS), reader.end_offset(JOURNAL)
        answer["offset"] = _append(log, domain, datadir_of(log, datadir), message)
        if wait:
            answer["outcome"] = _wait(reader, before, request, time.monotonic() + timeout)
    if output is Output.JSON:
        print_json(answer)
    else:
        outcome = f", {answer['outcome']}" if wait else ""
        print(f"eviction of {namespace}/{name} asked for ({request.id}){outcome}")
    raise typer.Exit(1 if wait and answer["outcome"] != "Applied" else 0)


def _append(log: str, domain: int, datadir: Path, message: bytes) -> int:
    """Through the service that holds an embedded log, else straight into the log; returns the offset."""
    from lockstep.admin import ask
    from schemas.topics import ADMIN
    from streams.log import LogAddress, open_writer

    if LogAddress.parse(log).scheme == "embedded":
        offset = ask(datadir, message)
        if offset is not None:
            return offset
    writer = open_writer(log, domain)
    try:
        return writer.append(ADMIN, None, message)
    finally:
        writer.close()


def _wait(reader: "LogReader", before: tuple[int, int], request: Any, until_s: float) -> str:
    """Follows `decisions` until the eviction's command ended, or there will be none.

    `before`: ends of `decisions` and `journal` before the request was appended. Acceptance is not asked: a decision
    that names the request or its command was derived from an accepted record, whoever wrote it.
    """
    from schemas.topics import DECISIONS

    offset, journal = before
    command_id = None
    while time.monotonic() < until_s:
        for record in reader.read(DECISIONS, offset, 64, timeout_s=0.5):
            offset = record.offset + 1
            decision = json.loads(record.value or b"{}")
            for answer in decision.get("requests", ()):
                if (answer["kind"], answer.get("id")) == ("EvictionRejected", request.id):
                    return str(answer["message"])
            for change in decision.get("changes", ()):
                if (change["table"], change["key"]) == ("evictions", request.id):
                    row = change["row"]
                    if row is None and command_id is None:
                        return "Stale"
                    command_id = (row or {}).get("command") or command_id
            if command_id is not None and command_id in decision.get("ended", ()):
                return _outcome(reader, journal, command_id)
    return "TimedOut"


def _outcome(reader: "LogReader", offset: int, command_id: str) -> str:
    from schemas.topics import JOURNAL
    from streams.history import read_entries

    for _, data in read_entries(reader, JOURNAL, offset):
        for seen in json.loads(data)["observations"]:
            if seen["kind"] == "CommandEnded" and seen["command_id"] == command_id:
                return str(seen["outcome"])
    raise LockstepError(f"command {command_id} ended, but its result is not in the journal")


def _requester() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return "unknown"
