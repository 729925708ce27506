"""`lockstep topics create` and `lockstep topics check`: the topics of a log, with the right
settings.
"""

from typing import Annotated

import typer

from lockstep.options import LogOption, Output, OutputOption, print_json

app = typer.Typer(
    help="Create the topics of a log, or check their settings.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
DomainsOption = Annotated[
    int, typer.Option(help="Scheduling domains: partitions of each topic.", min=1)
]


@app.command("create")
def create(
    log: LogOption,
    domains: DomainsOption = 1,
    replication: Annotated[
        int | None,
        typer.Option(help="Copies of each topic; default 3, or the number of brokers.", min=1),
    ] = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Create the topics that are missing."""
    from streams.log import create_topics

    created = create_topics(log, domains, replication)
    if output is Output.JSON:
        print_json({"created": created})
    else:
        print(f"created: {', '.join(created)}" if created else "nothing to create")


@app.command("check")
def check(log: LogOption, domains: DomainsOption = 1, output: OutputOption = Output.TABLE) -> None:
    """Say what differs from the right settings; exit 1 if anything does."""
    from streams.log import check_topics

    differences = check_topics(log, domains)
    if output is Output.JSON:
        print_json({"differences": differences})
    else:
        print("\n".join(differences) or "all topics are as they should be")
    raise typer.Exit(1 if differences else 0)
