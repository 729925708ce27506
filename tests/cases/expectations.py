"""Does a list of reports meet an expectation of a case? One expectation has one subject and `at`,
the report's number.

A map is compared on the wanted keys only, a missing number counts as 0, and a list of wanted values
means any of them. Used by the runner of the cases only.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import Any

Report = dict[str, Any]

_LISTS = {"pod": "pods", "gang": "gangs", "quota": "quotas", "node": "nodes"}


def unmet(reports: list[Report], wanted: Report) -> Iterator[str]:
    """What is not as wanted, in words; nothing when all is."""
    report = reports[wanted.get("at", -1)]
    if "invariant" in wanted:
        for number, each in enumerate(reports):
            yield from (f"at {number}: {text}" for text in INVARIANTS[wanted["invariant"]](each))
    elif "pods" in wanted:
        yield from _unmet_pods(report, wanted["pods"])
    elif "commands" in wanted:
        yield from _unmet_commands(report, wanted["commands"])
    else:
        subject = next(key for key in _LISTS if key in wanted)
        yield from _unmet_subject(report, subject, wanted)


def _unmet_subject(report: Report, subject: str, wanted: Report) -> Iterator[str]:
    fields = {key: value for key, value in wanted.items() if key not in ("at", "absent", subject)}
    rows = [row for row in report[_LISTS[subject]] if name_of(row) == wanted[subject]]
    if wanted.get("absent", False) == bool(rows):
        yield f"{subject} {wanted[subject]}: {len(rows)} in the report"
    for row in rows:
        yield from _unmet_row(subject, fields, row)


def _unmet_row(subject: str, wanted: Report, row: Report) -> Iterator[str]:
    where = f"{subject} {name_of(row)}"
    if subject == "pod":
        diagnosis = row["diagnosis"] or {}
        row = {**row, "diagnosis": diagnosis.get("code"), "details": diagnosis.get("details")}
    plain = {key: value for key, value in wanted.items() if key != "devices"}
    yield from _differences(where, plain, row)
    if "devices" in wanted and subject == "pod":
        yield from _unmet_allocation(where, wanted["devices"], row["devices"])
    elif "devices" in wanted:
        found = {(item["type"], item["minor"]): item for item in row["devices"]}
        for item in wanted["devices"]:
            key = (item.get("type", "gpu"), item["minor"])
            yield from _differences(f"{where} {key}", item, found.get(key))


def _unmet_allocation(where: str, wanted: list[Report], found: list[Report]) -> Iterator[str]:
    """A pod's devices: as many of each type, and the minors where they are named."""
    for kind in sorted({item["type"] for item in (*wanted, *found)}):
        left = sorted((item for item in wanted if item["type"] == kind), key=_minor)
        right = sorted((item for item in found if item["type"] == kind), key=_minor)
        named = [item["minor"] for item in left if "minor" in item]
        minors = [item["minor"] for item in right]
        if len(left) != len(right) or (named and named != minors):
            yield f"{where}: {kind} {minors}, wanted {named or len(left)}"
            continue
        for item, actual in zip(left, right, strict=True):
            yield from _differences(where, item.get("resources", {}), actual["resources"])


def _unmet_pods(report: Report, wanted: Report) -> Iterator[str]:
    pods, unmatched = _selected(report["pods"], wanted["names"])
    if unmatched and "total" not in wanted:
        yield f"no pod is called {unmatched}"
    counts = {"total": len(pods), "bound": sum(pod["node"] is not None for pod in pods)}
    for key, count in counts.items():
        yield from _differences(f"{key} of {wanted['names']}", wanted.get(key, count), count)
    for pod in pods:
        yield from _unmet_row("pod", wanted.get("each", {}), pod)


def _unmet_commands(report: Report, wanted: Report) -> Iterator[str]:
    of_kind = [row for row in report["commands"] if row["kind"] == wanted["kind"]]
    commands, unmatched = _selected(of_kind, wanted.get("names", "*"))
    if "count" in wanted:
        yield from _differences(f"number of {wanted}", wanted["count"], len(commands))
    elif unmatched:
        yield f"no {wanted['kind']} for {unmatched}"


def _differences(where: str, wanted: Any, found: Any) -> Iterator[str]:
    if isinstance(wanted, dict):
        for key, value in wanted.items():
            yield from _differences(f"{where} {key}", value, (found or {}).get(key))
        return
    allowed = wanted if isinstance(wanted, list) and not isinstance(found, list) else [wanted]
    if found not in allowed and not (found is None and 0 in allowed):
        yield f"{where}: {found!r}, wanted {wanted!r}"


def _selected(rows: list[Report], names: str | list[str]) -> tuple[list[Report], list[str]]:
    """The rows that a name or glob matches, and the names that match none."""
    patterns = [names] if isinstance(names, str) else names
    chosen = [row for row in rows if any(fnmatchcase(name_of(row), name) for name in patterns)]
    unmatched = [
        name for name in patterns if not any(fnmatchcase(name_of(row), name) for row in rows)
    ]
    return chosen, unmatched


def name_of(row: Report) -> str:
    """`namespace/name`, or the name of what has no namespace."""
    return f"{row['namespace']}/{row['name']}" if row.get("namespace") else str(row["name"])


def _minor(item: Report) -> int:
    return int(item.get("minor", -1))


def _over(rows: list[Report], limit: str) -> Iterator[str]:
    for row in rows:
        for resource, used in row["used"].items():
            if used > row[limit].get(resource, used):
                yield f"{row['name']}: {resource} {used} of {row[limit][resource]}"


def _cards_over_100(report: Report) -> Iterator[str]:
    for node in report["nodes"]:
        for card in node["devices"]:
            for resource, used in card["used"].items():
                limit = card["total"].get(resource, used) if "memory" in resource else 100
                if card["healthy"] and used > limit:
                    yield f"{node['name']} {card['type']} {card['minor']}: {resource} {used}"


def _gangs_in_part(report: Report) -> Iterator[str]:
    """Groups of gangs of which some gang is placed and another one has fewer than it needs."""
    groups: dict[str, list[tuple[str, int, int]]] = {}
    for gang in report["gangs"]:
        pods = [pod for pod in report["pods"] if pod["gang"] == name_of(gang)]
        placed = sum(pod["node"] is not None for pod in pods)
        row = (name_of(gang), placed, gang["min_member"])
        groups.setdefault(str(gang["group"] or name_of(gang)), []).append(row)
    for rows in groups.values():
        some = any(placed for _, placed, _ in rows)
        if some and any(placed < needed for _, placed, needed in rows):
            yield f"placed in part: {rows}"


INVARIANTS = {
    "no-node-overcommitted": lambda report: _over(report["nodes"], "allocatable"),
    "quota-used-within-max": lambda report: _over(report["quotas"], "max"),
    "no-device-over-100": _cards_over_100,
    "gang-all-or-nothing": _gangs_in_part,
}
