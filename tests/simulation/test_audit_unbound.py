"""The auditor's account of a pod: when it may lose its node."""

from types import SimpleNamespace
from typing import Any

import pytest

from schemas.topics import RESOURCES
from tests.simulation.audit_orders import OrdersAudit
from tests.simulation.violation import Violation

Json = dict[str, Any]
POD: Json = {"kind": "PodObserved", "uid": "p", "namespace": "default", "name": "p"}
BOUND: Json = {**POD, "rv": 50, "node": "n"}
LISTED: Json = {**POD, "rv": 15, "epoch": "e"}
STALE: Json = {"kind": "CommandEnded", "command_id": "1.0", "outcome": "Stale"}
GONE: Json = {"kind": "ObjectGone", "resource": "pods", "uid": "p", "rv": 60}


@pytest.mark.parametrize("gone", [STALE, GONE], ids=["a result", "the watch"])
def test_a_pod_that_was_gone_and_is_listed_in_one_record_may_have_lost_its_node(gone: Json) -> None:
    """A restore took the bind back. In two records its row goes and comes, in one it only loses the node."""
    assert "node" not in audited([gone, LISTED], list_rv=1_100).rows["pods"]["p"]


@pytest.mark.parametrize(
    ("seen", "list_rv"),
    [([LISTED], 1_100), ([GONE, LISTED], 55), ([LISTED, GONE], 1_100), ([GONE], 1_100)],
    ids=["listed", "listed before it went", "gone afterwards", "gone"],
)
def test_no_other_pod_loses_its_node(seen: list[Json], list_rv: int) -> None:
    """A list that shows less than is known is doubted, and who is gone has no row."""
    with pytest.raises(Violation, match="is on no node now"):
        audited(seen, list_rv=list_rv)


def audited(seen: list[Json], list_rv: int) -> OrdersAudit:
    """A bound pod that is to leave, a list that begins, and what was seen then, at which its row loses the node."""
    absent: list[Json] = [{"kind": "KindAbsent", "resource": name} for name in RESOURCES]
    eviction = {"id": "1.0", "kind": "EvictPod", "uid": "p", "name": "p", "reason": "asked for"}
    begun = {"kind": "SyncStarted", "resource": "pods", "epoch": "e", "list_rv": list_rv}
    ended = ["1.0"] if STALE in seen else []
    chain: Any = SimpleNamespace(records=[], decisions=[], read=lambda: None)
    for items, decided in (
        ([*absent, BOUND], {"commands": [eviction], "changes": [row(node="n")]}),
        ([{**begun, "cold": False}], {}),
        (seen, {"ended": ended, "changes": [row()]}),
    ):
        sequence = len(chain.records) + 1
        chain.records.append({"sequence": sequence, "observations": items})
        nothing: Json = {"commands": [], "ended": [], "changes": []}
        chain.decisions.append(
            {**nothing, "sequence": sequence, "timestamp_us": sequence, **decided}
        )
    audit = OrdersAudit(chain)
    audit.read()
    return audit


def row(**said: str) -> Json:
    """The pod's row."""
    return {"table": "pods", "key": "p", "row": {"name": "p", **said}}
