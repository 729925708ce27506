"""`lockstep log export` and `lockstep log import`: a piece of history as a file."""

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from schemas.errors import Fatal

if TYPE_CHECKING:
    from streams.export import ExportHeader

app = typer.Typer(
    help="Copy a piece of history to a file, or a file into an empty log.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="Packed if it ends in .gz.")]


@app.command("export")
def export_log(
    *,
    file: FileArgument,
    log: LogOption,
    start: Annotated[
        int | None, typer.Option("--from", metavar="S", help="First sequence.", min=1)
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="S|TIME", help="Last sequence, or moment.")
    ] = None,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Write records, decisions and the checkpoint that they begin after."""
    from streams.export import export_history
    from streams.history import log_id

    with opened_history(log, domain) as history, progress_bar("export") as progress:
        header = export_history(
            history,
            file,
            log_id=log_id(history),
            first=start,
            bound=parse_moment(until, "--until"),
            progress=progress,
        )
    _report("exported", file, header, output)


@app.command("import")
def import_log(
    file: FileArgument,
    log: LogOption,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Append a file's history to an empty log; a damaged file is refused."""
    from streams.export import import_history
    from streams.history import HistoryDamaged
    from streams.log import create_topics, open_reader, open_writer

    create_topics(log, domain + 1)
    with closing(open_writer(log, domain)) as writer, closing(open_reader(log, domain)) as reader:
        try:
            with progress_bar("import") as progress:
                header = import_history(file, reader, writer, progress)
        except HistoryDamaged as damage:
            raise Fatal(f"{damage}; nothing was imported") from damage
    _report("imported", file, header, output)


def _report(done: str, file: Path, header: "ExportHeader", output: Output) -> None:
    if output is Output.JSON:
        print_json(
            {
                "file": str(file),
                "log": header.log_id,
                "from": header.first,
                "until": header.until,
                "decided": header.decided,
                "digest": header.digest,
            }
        )
        return
    print(f"{done} sequences {header.first} to {header.until} ({file}), digest {header.digest}")
