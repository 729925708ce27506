"""The command `lockstep`: names the commands, and loads the module of one when it is asked for.

So `lockstep simulate` loads neither Faust nor a Kafka or Kubernetes client. A command's module has
a function of that name, or `app` for a command with sub-commands. Errors become one line and an
exit code here: 1 the answer is no, 2 bad input or a log that does not answer.
"""

import errno
import importlib
import signal
import sys
from typing import Any, Final

import typer
from typer.core import TyperGroup

from schemas.errors import Fatal, LockstepError

#: Command -> its module in this package and the name in it, in the order of `lockstep --help`.
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "run": ("run", "run"),
    "device-agent": ("device_agent", "device_agent"),
    "simulate": ("simulate", "simulate"),
    "demo": ("demo", "demo"),
    "replay": ("replay", "replay"),
    "state": ("state", "state"),
    "story": ("story", "story"),
    "explain": ("explain", "explain"),
    "decisions": ("decisions", "decisions"),
    "evict": ("evict", "app"),
    "log": ("log", "app"),
    "topics": ("topics", "app"),
    "schema": ("schema", "schema"),
    "bench": ("bench", "bench"),
}


class LazyCommands(TyperGroup):
    """The commands of `COMMANDS`, each imported when it is looked up."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002  (the library's signature)
        """Names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ARG002
        """The command called `cmd_name`, or None."""
        place = COMMANDS.get(cmd_name)
        if place is None:
            return None
        found = getattr(importlib.import_module(f"lockstep.{place[0]}"), place[1])
        if isinstance(found, typer.Typer):
            return typer.main.get_command(found)
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        single.command(cmd_name)(found)
        return typer.main.get_command(single)


app = typer.Typer(
    name="lockstep",
    cls=LazyCommands,
    help="Schedules gangs, quotas and GPUs on Kubernetes; every decision is a pure function of a log.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    """Without a command: help."""


def main() -> None:
    """Entry point of the console script."""
    if not __debug__:
        print(
            "lockstep: asserts are part of it; run without -O and PYTHONOPTIMIZE", file=sys.stderr
        )
        sys.exit(2)
    # Temporary folders of followers are removed on the way out; `run` stops by itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except LockstepError as error:
        print(f"lockstep: {error}", file=sys.stderr)
        sys.exit(1 if isinstance(error, Fatal) else 2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        print(f"lockstep: cannot write: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        sys.stderr.close()
        sys.exit(0)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
