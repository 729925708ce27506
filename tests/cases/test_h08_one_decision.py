"""Case h08 (scheduler-plugins#930): a gang of two is bound by one decision, or not at all.

What becomes of the pods is in `h08-half-a-gang-is-no-gang.yaml`; here is what stands in the log.
"""

import json

from schemas.topics import DECISIONS
from tests.builders import member, podgroup
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, settle


def bound_together(log: Log) -> list[list[str]]:
    """For each decision that binds anything: the pods that it binds."""
    found = [
        sorted(
            command["name"]
            for command in json.loads(data)["commands"]
            if command["kind"] == "BindPod"
        )
        for data in log.values(DECISIONS)
    ]
    return [names for names in found if names]


def test_both_binds_are_in_one_decision(log: Log) -> None:
    """One node has room for one member: nothing is bound. A second node comes: one decision binds both."""
    log.sync_all()
    log.publish("nodes", node("n1", cpu=1_000))
    log.publish("podgroups", podgroup("g", 2))
    log.publish("pods", member("a", "g", 1_000))
    log.publish("pods", member("b", "g", 1_000))
    roles = SequencerRole(log), DeciderRole(log)
    settle(log, *roles, 1_000)
    assert [] == bound_together(log)
    log.publish("nodes", node("n2", cpu=1_000))
    settle(log, *roles, 2_000)
    assert [["a", "b"]] == bound_together(log)
