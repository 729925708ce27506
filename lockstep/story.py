"""`lockstep story`: every observation, decision and result that touched one thing, in the order of
the log.

Reads the accepted history once, and decodes only entries whose bytes name the thing, its uids or
its commands.
"""

import json
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from lockstep.options import (
    DomainOption,
    LogOption,
    Output,
    OutputOption,
    format_time,
    object_name,
    opened_history,
    print_json,
    progress_bar,
    singular,
)

Event = dict[str, Any]

#: Kind -> observation kinds that carry it by name, its resources' first word, and tables of
#: decisions keyed by it.
_KINDS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]]] = {
    "pod": (("PodObserved", "EvictRequested"), ("pods",), ("pods", "evictions")),
    "node": (("NodeObserved", "DeviceObserved"), ("nodes", "devices"), ("nodes", "devices")),
    "gang": (
        ("PodGroupObserved", "WorkloadObserved"),
        ("podgroups", "workloads"),
        ("gangs", "podgroups", "workloads"),
    ),
    "quota": (("QuotaObserved",), ("elasticquotas",), ("quotas",)),
}
_NAMESPACED: Final = ("pod", "gang")


def story(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="pod, gang, node or quota.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="NAME or NAMESPACE/NAME.")],
    log: LogOption,
    domain: DomainOption = 0,
    output: OutputOption = Output.TABLE,
) -> None:
    """Tell everything that touched one thing; exit 1 if the log does not know it."""
    wanted = singular(kind, dict.fromkeys(_KINDS, print))
    namespace, short = object_name(name)
    if namespace is None and wanted in _NAMESPACED:
        namespace = "default"
    teller = _Teller(wanted, namespace, short)
    events = list(_told(teller, log, domain))
    if output is Output.JSON:
        print_json(events)
    else:
        for event in events:
            print(_line(event))
        if not events:
            place = f"{namespace}/{short}" if namespace else short
            print(f"{wanted} {place}: not in this log", flush=True)
    raise typer.Exit(0 if events else 1)


def _told(teller: "_Teller", log: str, domain: int) -> Iterator[Event]:
    from streams.history import accepted_decisions, accepted_records

    with opened_history(log, domain) as history, progress_bar("story") as progress:
        start = history.first()
        size = history.size(start)
        decisions = accepted_decisions(history, start)
        for count, (chain, data) in enumerate(accepted_records(history, start)):
            if count % 64 == 0:
                progress(count, size)
            if teller.concerns(data):
                yield from teller.observations(data)
            decided = next(decisions, None)
            made = decided is not None and decided[0].sequence == chain.sequence
            if decided is not None and made and teller.concerns(decided[1]):
                yield from teller.decision(decided[1])


class _Teller:
    """Picks what concerns one thing, and learns its uids and command ids on the way."""

    def __init__(self, kind: str, namespace: str | None, name: str) -> None:
        self._kind = kind
        self._namespace = namespace
        self._name = name
        #: A gang of a Workload is named after it, and after its pod group.
        self._workload = name.partition("/")[0] if kind == "gang" and "/" in name else None
        self._key = f"{namespace}/{name}" if namespace else name
        self._seen, self._resources, self._tables = _KINDS[kind]
        self._known: dict[str, None] = {}
        needles = [json.dumps(name), json.dumps(self._key), f'"{name}/']
        needles += [json.dumps(self._workload)] if self._workload else []
        self._needles: list[bytes] = [needle.encode() for needle in needles]

    def concerns(self, data: bytes) -> bool:
        """The bytes name the thing, or something that is known to belong to it."""
        return any(needle in data for needle in self._needles)

    def observations(self, data: bytes) -> Iterator[Event]:
        """The record's observations of the thing."""
        record = json.loads(data)
        for seen in record["observations"]:
            if self._is_mine(seen):
                self._learn(seen.get("uid"))
                yield _event(record, "observation", seen["kind"], seen)

    def decision(self, data: bytes) -> Iterator[Event]:
        """The decision's changes, diagnoses, commands and ends that concern the thing."""
        decision = json.loads(data)
        for change in decision["changes"]:
            if change["table"] in self._tables and self._is_key(change["key"]):
                yield _event(decision, "change", change["table"], change["row"])
        for diagnosis in decision["diagnoses"]:
            if diagnosis["key"] == self._key and self._kind in _NAMESPACED:
                yield _event(decision, "diagnosis", diagnosis["code"] or "none", diagnosis)
        for command in decision["commands"]:
            if self._is_command(command):
                self._learn(command["id"])
                yield _event(decision, "command", command["kind"], command)
        for label in ("ended", "withdrawn"):
            for command_id in decision[label]:
                if command_id in self._known:
                    yield _event(decision, label, command_id, None)

    def _is_mine(self, seen: Event) -> bool:
        if seen["kind"] == "CommandEnded":
            return seen["command_id"] in self._known
        if "resource" in seen:
            mine = seen["resource"].split(".")[0] in self._resources
            return mine and (self._is_named(seen) or seen.get("uid") in self._known)
        return seen["kind"] in self._seen and self._is_named(seen)

    def _is_named(self, item: Event) -> bool:
        of_workload = item.get("kind") == "WorkloadObserved" or item.get("resource", "").startswith(
            "workloads."
        )
        same = item.get("name") == (self._workload if of_workload else self._name)
        return same and self._namespace in (None, item.get("namespace"))

    def _is_key(self, key: str) -> bool:
        head = key.split("/")[0]
        return key in (self._key, self._name) or head == self._name or key in self._known

    def _is_command(self, command: Event) -> bool:
        if self._kind == "node":
            return command.get("node") == self._name
        resource = command.get("resource") or "pods"
        return resource.split(".")[0] in self._resources and self._is_named(command)

    def _learn(self, word: str | None) -> None:
        if word and word not in self._known:
            self._known[word] = None
            self._needles.append(json.dumps(word).encode())


def _event(entry: Event, what: str, title: str, detail: Any) -> Event:
    return {
        "sequence": entry["sequence"],
        "time": format_time(entry["timestamp_us"]),
        "what": what,
        "title": title,
        "detail": detail,
    }


_SHOWN: Final = (
    "phase", "node", "assumed", "command", "command_id", "outcome", "status", "reason", "message",
    "rv", "min_member", "unschedulable", "backoff_us", "deleted_us",
)  # fmt: skip


def _line(event: Event) -> str:
    detail = event["detail"]
    if detail is None:
        shown = "gone" if event["what"] == "change" else ""
    else:
        source = {**detail, **detail.get("fields", {})}
        shown = " ".join(f"{key}={source[key]}" for key in _SHOWN if source.get(key))
    return f"{event['sequence']:>8}  {event['time']:<27} {event['what']:<11} {event['title']:<16} {shown}"
