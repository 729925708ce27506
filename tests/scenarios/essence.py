"""Reports of `simulate` as short readable text: who is where, who waits why, what was commanded.

Used by the scenario runner only. One block a report; lists come sorted, as they stand in the
report.
"""

import json
from typing import Any

Report = dict[str, Any]


def essence(reports: list[Report]) -> str:
    """All reports of one scenario."""
    blocks, shown = [], 0
    for report in reports:
        blocks.append("\n".join(_lines(report, report["commands"][shown:])))
        shown = len(report["commands"])
    return "\n\n".join(blocks) + "\n"


def _lines(report: Report, commands: list[Report]) -> list[str]:
    lines = [f"step {report['step']} at {report['time']}"]
    for title, rows in (
        ("pods", [_pod(row) for row in report["pods"]]),
        ("gangs", [_gang(row) for row in report["gangs"]]),
        ("quotas", [_quota(row) for row in report["quotas"]]),
        ("nodes", [_node(row) for row in report["nodes"]]),
        ("commands", [_command(row) for row in commands if row["kind"] in ("BindPod", "EvictPod")]),
    ):
        if rows:
            lines.append(f"  {title}")
            lines.extend(f"    {row}" for row in rows)
    return lines


def _pod(row: Report) -> str:
    place = row["node"] or (f"assumed on {row['assumed_node']}" if row["assumed_node"] else "-")
    parts = [f"{row['namespace']}/{row['name']}", row["phase"], place]
    minors: dict[str, list[str]] = {}
    for device in row["devices"]:
        minors.setdefault(device["type"], []).append(str(device["minor"]))
    parts.extend(f"{kind} {','.join(numbers)}" for kind, numbers in minors.items())
    if row["gang"]:
        parts.append(f"of {row['gang']}")
    return "  ".join([*parts, *_diagnosis(row["diagnosis"])])


def _gang(row: Report) -> str:
    counts = f"{row['bound']} bound of {row['members']}, needs {row['min_member']}"
    parts = [f"{row['namespace']}/{row['name']}", row["phase"], row["mode"], counts]
    return "  ".join([*parts, *_diagnosis(row["diagnosis"])])


def _quota(row: Report) -> str:
    return f"{row['name']}  used {_amounts(row['used'])} of max {_amounts(row['max'])}"


def _node(row: Report) -> str:
    used = [
        f"{name} {amount}/{row['allocatable'].get(name, 0)}" for name, amount in row["used"].items()
    ]
    cards = [
        f"{device['type']} {device['minor']}{'' if device['healthy'] else ' unhealthy'}"
        f"{' used' if any(device['used'].values()) else ''}"
        for device in row["devices"]
    ]
    return "  ".join([row["name"], *used, *cards])


def _command(row: Report) -> str:
    target = [row[field] for field in ("node", "reason") if row.get(field)]
    return "  ".join([row["kind"], f"{row['namespace']}/{row['name']}", *target])


def _diagnosis(diagnosis: Report | None) -> list[str]:
    if diagnosis is None:
        return []
    details = json.dumps(diagnosis["details"], sort_keys=True) if diagnosis.get("details") else ""
    return [
        f"{diagnosis['code']}{': ' if diagnosis.get('message') else ''}{diagnosis.get('message', '')}",
        *([details] if details else []),
    ]


def _amounts(amounts: dict[str, int]) -> str:
    return " ".join(f"{name} {amount}" for name, amount in sorted(amounts.items())) or "-"
