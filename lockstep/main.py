"""The command `lockstep`: registers the commands, each in its own module.

Modules of commands import at their top only what the command line itself needs; what does the work
is imported when the command runs, so that `lockstep --help` and `lockstep simulate` start fast.
"""

import typer

from lockstep.simulate import simulate

app = typer.Typer(
    name="lockstep",
    help="Schedules gangs, quotas and GPUs on Kubernetes; every decision is a pure function of a log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Without a command: help."""


app.command()(simulate)


def main() -> None:
    """Entry point of the console script."""
    app()
