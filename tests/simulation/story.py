"""The story of one object: all that the API server, the journal and the decisions say of it."""

import json
from typing import Any

from producers.simulated.store import uid_of, version_of
from tests.simulation.api_server import ApiServer
from tests.simulation.audit_chain import ChainAudit

LINE_MAX = 400
LINES_MAX = 80


def story(server: ApiServer, chain: ChainAudit, uid: str) -> list[str]:
    """Lines in the order of the journal, after the API server's own; the newest are kept."""
    if not uid:
        return []
    seen = [
        f"server  rv {version_of(event.raw)} {event.type} {_short(event.raw.get('spec'))}"
        for event in server.history
        if uid_of(event.raw) == uid
    ]
    told: list[str] = []
    orders: dict[str, None] = {}
    for record in chain.records:
        told += [
            f"record  {record['sequence']} {_short(item)}"
            for item in record["observations"]
            if _mentions(item, uid) or item.get("command_id") in orders
        ]
        if record["sequence"] <= len(chain.decisions):
            decision = chain.decisions[record["sequence"] - 1]
            orders.update((each["id"], None) for each in decision["commands"] if each["uid"] == uid)
            told += [
                f"decided {record['sequence']} {part[:-1]} {_short(item)}"
                for part in ("commands", "changes")
                for item in decision[part]
                if _mentions(item, uid)
            ]
    return [*seen[-LINES_MAX:], *told[-LINES_MAX:]]


def _mentions(item: Any, uid: str) -> bool:
    return uid in json.dumps(item)


def _short(item: Any) -> str:
    text = json.dumps(item, sort_keys=True)
    return text if len(text) <= LINE_MAX else f"{text[:LINE_MAX]}…"
