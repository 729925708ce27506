"""Reports of `lockstep simulate` for people: one line a report, then tables of the last one.

Only printing; the numbers come as they stand in the JSON report. Used by `lockstep.simulate` and
`lockstep.demo`.
"""

from typing import Any, Final

from rich.console import Console
from rich.table import Table

Report = dict[str, Any]

_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10))


def print_reports(reports: list[Report], console: Console | None = None) -> None:
    """One line for each report, and the tables of the last one."""
    console = console or Console()
    for report in reports:
        console.print(summary(report), highlight=False, soft_wrap=True)
    if not reports:
        return
    for table in tables(reports[-1]):
        console.print()
        console.print(table)


def summary(report: Report) -> str:
    """A report in one line."""
    pods = report["pods"]
    bound = sum(pod["node"] is not None for pod in pods)
    waiting = sum(pod["diagnosis"] is not None for pod in pods)
    commands = sum(command["kind"] in ("BindPod", "EvictPod") for command in report["commands"])
    return (
        f"step {report['step']}  {report['time']}  sequence {report['sequence']}"
        f"  digest {report['digest'][:12]}  pods {len(pods)}, bound {bound}, waiting {waiting}"
        f"  binds and evictions {commands}"
    )


def tables(report: Report) -> list[Table]:
    """Pods, gangs, quotas and nodes, each if there are any."""
    made = [
        pods_table(report["pods"]),
        gangs_table(report["gangs"]),
        quotas_table(report["quotas"]),
        nodes_table(report["nodes"]),
    ]
    return [table for table in made if table.row_count]


def pods_table(pods: list[Report]) -> Table:
    """Where each pod is, or why it waits."""
    table = _table("pods", "pod", "phase", "node", "gang", "devices", "diagnosis")
    for pod in pods:
        node = pod["node"] or (f"({pod['assumed_node']})" if pod.get("assumed_node") else "")
        minors = [f"{device['type']} {device['minor']}" for device in pod["devices"]]
        place = f"{pod['namespace']}/{pod['name']}"
        why = _diagnosis(pod["diagnosis"])
        table.add_row(place, pod["phase"], node, pod["gang"] or "", ", ".join(minors), why)
    return table


def gangs_table(gangs: list[Report]) -> Table:
    """Gangs with their counts."""
    table = _table("gangs", "gang", "phase", "mode", "needed", "members", "bound", "diagnosis")
    for gang in gangs:
        counts = [str(gang[field]) for field in ("min_member", "members", "bound")]
        why = _diagnosis(gang["diagnosis"])
        table.add_row(
            f"{gang['namespace']}/{gang['name']}", gang["phase"], gang["mode"], *counts, why
        )
    return table


def quotas_table(quotas: list[Report]) -> Table:
    """Quotas: used of max, by resource."""
    table = _table("quotas", "quota", "parent", "used / max", "request")
    for quota in quotas:
        used = _of(quota["used"], quota["max"])
        table.add_row(quota["name"], quota["parent"] or "", used, _amounts(quota["request"]))
    return table


def nodes_table(nodes: list[Report]) -> Table:
    """Nodes: used of allocatable, by resource, and their devices."""
    table = _table("nodes", "node", "used / allocatable", "devices used")
    for node in nodes:
        healthy = [device for device in node["devices"] if device["healthy"]]
        busy = sum(any(device["used"].values()) for device in node["devices"])
        devices = f"{busy} of {len(healthy)}" if node["devices"] else ""
        if len(healthy) < len(node["devices"]):
            devices += f", {len(node['devices']) - len(healthy)} unhealthy"
        table.add_row(node["name"], _of(node["used"], node["allocatable"]), devices)
    return table


def amount_text(resource: str, amount: int) -> str:
    """An amount in base units as people write it: cpu 1500 is 1500m, memory 1073741824 is 1Gi."""
    if resource == "cpu":
        return str(amount // 1000) if amount % 1000 == 0 else f"{amount}m"
    if resource.endswith("memory") or resource == "ephemeral-storage":
        for unit, size in _BINARY:
            if amount and amount % size == 0:
                return f"{amount // size}{unit}"
    return str(amount)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _of(used: dict[str, int], limits: dict[str, int]) -> str:
    resources = [name for name in limits if used.get(name) or name in ("cpu", "memory")]
    return "  ".join(
        f"{_short(name)} {amount_text(name, used.get(name, 0))}/{amount_text(name, limits[name])}"
        for name in resources
    )


def _amounts(amounts: dict[str, int]) -> str:
    return "  ".join(
        f"{_short(name)} {amount_text(name, value)}" for name, value in amounts.items()
    )


def _short(resource: str) -> str:
    return resource.rpartition("/")[2]


def _diagnosis(diagnosis: Report | None) -> str:
    if diagnosis is None:
        return ""
    message = diagnosis.get("message") or ""
    return f"{diagnosis['code']}: {message}" if message else str(diagnosis["code"])
