"""`lockstep state`: any table at any moment, worked out from the log."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from lockstep.options import (
    DomainOption,
    LogOption,
    Output,
    OutputOption,
    format_time,
    object_name,
    opened_history,
    parse_moment,
    print_json,
    progress_bar,
    singular,
    wide_console,
)
from schemas.errors import Fatal

Row = dict[str, Any]


def state(
    *,
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="pods, gangs, quotas, nodes, gpus or commands.")
    ],
    log: LogOption,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="NAME or NAMESPACE/NAME.")
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="S|TIME", help="The moment; default: the end.")
    ] = None,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show a table of State; exit 1 if NAME is not in it."""
    wanted = singular(kind, TABLES)
    known = fold_state(log, domain, at)
    rows = TABLES[wanted](known)
    if name is not None:
        rows = [row for row in rows if _is_named(row, name)]
    if output is Output.JSON:
        print_json(
            {
                "sequence": known.sequence,
                "digest": known.digest,
                "time": format_time(known.timestamp_us),
                wanted: rows,
            }
        )
    else:
        print(f"sequence {known.sequence}, {format_time(known.timestamp_us)}")
        _print_table(wanted, rows)
    raise typer.Exit(1 if name is not None and not rows else 0)


def fold_state(log: str, domain: int, at: str | None) -> Any:
    """State of the log at the moment `at` (sequence, time or None for the end)."""
    from streams.recovery import start_state
    from streams.verify import verify

    bound = parse_moment(at, "--at")
    with opened_history(log, domain) as history, progress_bar("state") as progress:
        start, _ = start_state(history, bound)
        found = verify(history, start=start, bound=bound, compare=False, progress=progress)
    if found.difference is not None:
        raise Fatal(f"sequence {found.difference.sequence}: {found.difference.detail}")
    return found.state


def _pods(known: Any) -> list[Row]:
    from state.report import pod_row

    pods = sorted(known.pods.values(), key=lambda pod: (pod.namespace, pod.name, pod.uid))
    return [pod_row(known, pod) for pod in pods]


def _gangs(known: Any) -> list[Row]:
    from state.report import gang_row

    return [gang_row(known, key) for key in sorted(known.gangs)]


def _quotas(known: Any) -> list[Row]:
    from state.report import quota_row

    quotas = sorted(known.quotas.values(), key=lambda quota: (quota.name, quota.namespace))
    return [quota_row(known, quota) for quota in quotas]


def _nodes(known: Any) -> list[Row]:
    from state.report import node_row

    return [node_row(known, name) for name in sorted(known.nodes)]


def _gpus(known: Any) -> list[Row]:
    from state.report import gpu_rows

    return [row for name in sorted(known.nodes) for row in gpu_rows(known, name)]


def _commands(known: Any) -> list[Row]:
    from streams.checkpoints import open_commands

    return list(open_commands(known))


#: Kind -> its rows.
TABLES: dict[str, Callable[[Any], list[Row]]] = {
    "pods": _pods,
    "gangs": _gangs,
    "quotas": _quotas,
    "nodes": _nodes,
    "gpus": _gpus,
    "commands": _commands,
}

#: Columns of each table for people; what is not here is in the JSON.
_COLUMNS = {
    "pods": ("namespace", "name", "phase", "node", "assumed_node", "gang", "quota", "diagnosis"),
    "gangs": (
        "namespace",
        "name",
        "phase",
        "min_member",
        "members",
        "assumed",
        "bound",
        "diagnosis",
    ),
    "quotas": ("name", "namespace", "min", "max", "request", "used"),
    "nodes": ("name", "allocatable", "used", "devices"),
    "gpus": ("node", "minor", "healthy", "total", "used", "pods"),
    "commands": ("id", "kind", "namespace", "name", "node", "reason"),
}


def _is_named(row: Row, name: str) -> bool:
    namespace, short = object_name(name)
    own = row.get("name", row.get("node"))
    return own == short and namespace in (None, row.get("namespace"))


def _print_table(kind: str, rows: list[Row]) -> None:
    from rich.table import Table

    table = Table(*_COLUMNS[kind], box=None)
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in _COLUMNS[kind]))
    wide_console().print(table)


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, dict) and "code" in value:
        return f"{value['code']}: {value['message']}"
    if isinstance(value, dict):
        return " ".join(f"{key}={value[key]}" for key in sorted(value)) or "-"
    if isinstance(value, list | tuple):
        return str(len(value)) if value and isinstance(value[0], dict) else ", ".join(value) or "-"
    return str(value)
