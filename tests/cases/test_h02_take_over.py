"""Case h02, second half (kubernetes#137308): two deciders, and binds of the old one that are still in flight.

The first half, a restart, is `h02-restart-with-binds-in-flight.yaml`.
"""

import json
from collections import Counter
from hashlib import sha256

from schemas.topics import DECISIONS, JOURNAL
from streams.chain import DecisionChain
from streams.decider import Decider
from streams.history import Start, accepted_records
from streams.recovery import recover
from streams.translate import Decision
from streams.verify import verify
from tests.unit.streams.pipeline import DeciderRole, Log, SequencerRole, node, pod, settle


def old_leader(log: Log) -> tuple[SequencerRole, DeciderRole]:
    """Node n1 with 4 cpus is known, and all is decided."""
    log.sync_all()
    log.publish("nodes", node("n1"))
    old = SequencerRole(log), DeciderRole(log)
    settle(log, *old, 1_000)
    return old


def binds(log: Log) -> Counter[str]:
    """Pod -> how many commands bind it, as a consumer sees them."""
    return Counter(
        command["name"]
        for data in filter(DecisionChain().accept, log.values(DECISIONS))
        for command in json.loads(data)["commands"]
        if command["kind"] == "BindPod"
    )


def first_decision(role: DeciderRole, log: Log) -> Decision:
    """Folds the newest journal entry, which is its first since it leads."""
    offset, data = role.decider.journal_offset, log.values(JOURNAL)[-1]
    decision = role.decider.on_journal(offset, data)
    assert decision is not None
    return decision


def test_the_new_decider_knows_the_last_bind_of_the_old_one(log: Log) -> None:
    """The old one binds a (3 of 4 cpus) in its last second: 1 cpu is free at the first decision, and b waits."""
    old, first = old_leader(log)
    log.publish("pods", pod("a", cpu=3_000))
    settle(log, old, first, 2_000)
    _waits_for_a(log)


def test_the_new_decider_knows_a_bind_that_the_old_one_did_not_publish(log: Log) -> None:
    """The same, and the old one died between its record and its decision."""
    old, _ = old_leader(log)
    log.publish("pods", pod("a", cpu=3_000))
    old.take_intake()
    assert old.append(2_000)
    assert Counter() == binds(log)
    _waits_for_a(log)


def _waits_for_a(log: Log) -> None:
    new, second = SequencerRole.recovered(log), DeciderRole.recovered(log)
    assert len(log.values(JOURNAL)) == second.decider.journal_offset
    assert "n1" == second.decider.state.pods["uid-a"].assumed
    second.publish()
    log.publish("pods", pod("b", cpu=3_000))
    new.read()
    new.take_intake()
    assert new.append(3_000)
    decision = first_decision(second, log)
    assert [] == [command for command in decision.commands if command.kind == "BindPod"]
    told = second.decider.state.pods["uid-b"].diagnosis
    assert told is not None
    assert "InsufficientResources" == told.code
    assert {"cpu": {"want": 3_000, "have": 1_000}} == told.details["resources"]
    settle(log, new, second, 4_000)
    assert Counter(a=1) == binds(log)
    assert None is verify(log.history()).difference


def test_what_the_old_one_appends_after_the_take_over_is_skipped_with_all_that_was_built_on_it(
    log: Log,
) -> None:
    """Two records in a row and a decision of them: no reader takes any of the three."""
    old, first = old_leader(log)
    log.publish("pods", pod("a", cpu=3_000))
    settle(log, old, first, 2_000)
    new, second = SequencerRole.recovered(log), DeciderRole.recovered(log)
    beside = recover(log.history()).decider
    log.publish("pods", pod("b", cpu=3_000))
    settle(log, new, second, 3_000)

    last_accepted = sha256(log.values(JOURNAL)[-1]).hexdigest()
    late = _append_two(log, old)
    assert last_accepted not in [json.loads(data)["prev"] for data in late]
    assert sha256(late[0]).hexdigest() == json.loads(late[1])["prev"]
    late_decision = _decided_alone(beside, late[0])
    assert b'"BindPod"' in late_decision  # of c: it would be carried out if anybody took it
    log.writer.append(DECISIONS, None, late_decision)

    log.publish("pods", pod("e", cpu=500))
    settle(log, new, second, 4_000)
    old.read()
    first.read()
    _none_was_taken(log, late)
    assert late_decision not in filter(DecisionChain().accept, log.values(DECISIONS))
    assert {new.sequencer.chain.last_hash} == {
        old.sequencer.chain.last_hash,
        recover(log.history()).decider.chain.last_hash,
    }
    assert {second.decider.state.digest} == {
        first.decider.state.digest,
        recover(log.history()).decider.state.digest,
        verify(log.history()).digest,
    }
    assert Counter(a=1, c=1, e=1) == binds(log)


def _append_two(log: Log, old: SequencerRole) -> list[bytes]:
    """The old sequencer has not read the new one's records: it goes on behind its own last one."""
    before = len(log.values(JOURNAL))
    for name, cpu in (("c", 500), ("d", 3_000)):
        log.publish("pods", pod(name, cpu=cpu))
        old.take_intake()
        assert old.append(2_500)
    return log.values(JOURNAL)[before:]


def _decided_alone(decider: Decider, data: bytes) -> bytes:
    """What a decider makes of the late record that has seen nothing of the new leader."""
    decision = decider.on_journal(decider.journal_offset, data)
    assert decision is not None
    return decision.data


def _none_was_taken(log: Log, late: list[bytes]) -> None:
    accepted = [data for _, data in accepted_records(log.history(), Start())]
    assert [] == [data for data in late if data in accepted]
    found = verify(log.history())
    assert (2, None, 0) == (found.stale, found.difference, found.undecided)
    names = Counter(
        seen["name"]
        for data in accepted
        for seen in json.loads(data)["observations"]
        if seen["kind"] == "PodObserved"
    )
    assert Counter("abcde") == names
