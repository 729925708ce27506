"""decide, step and apply: who writes State, what bytes come out, and how the digest chains them."""

import hashlib
import json

import pytest

from schemas.codec import decode_record
from schemas.envelope import DecisionRecord
from schemas.errors import InvalidMessage
from state import invariants, snapshot
from state.machine import apply, decide, step
from state.model.seen import Record
from state.model.state import State
from streams.translate import to_decision
from tests.builders import Core, cards, gone, member, node, pod, podgroup
from tests.walk import Walk


def walked(seed: int = 7, steps: int = 60) -> Core:
    """A core with some history, and its gate open."""
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()
    while not walk.core.state.synced():
        walk.step()
    return walk.core


def loaded(core: Core) -> Record:
    """A record on which a lot is decided: room, a gang, pods that fit, pods that don't."""
    return core.journal.record(
        node("big", 64_000, rv=10_000),
        cards("big", 4, rv=10_001),
        podgroup("crew", 2, rv=10_002),
        member("crew-1", "crew", rv=10_003),
        member("crew-2", "crew", rv=10_004),
        pod("lone", 2_000, rv=10_005),
        pod("huge", 900_000, rv=10_006),
    )


def test_decide_leaves_state_as_it_was() -> None:
    """The bytes of State, its invariants, and a second decision on the same record are the same."""
    core = walked()
    record = loaded(core)
    before = snapshot.encode(core.state)
    first = decide(core.state, record)
    assert first.commands
    assert before == snapshot.encode(core.state)
    invariants.check(core.state)
    assert first.data == decide(core.state, record).data


def test_step_is_decide_then_apply() -> None:
    """Both ways give the same bytes and the same State."""
    core = walked()
    record = loaded(core)
    other = snapshot.decode(snapshot.encode(core.state))
    decision = decide(other, record)
    apply(other, decision)
    assert step(core.state, record).data == decision.data
    assert snapshot.encode(core.state) == snapshot.encode(other)


def test_a_follower_that_only_applies_bytes_has_the_same_state() -> None:
    """Nothing that State holds is missing in the published bytes."""
    core, follower = walked(), State()
    for decision in core.decisions:
        apply(follower, to_decision(decision.data))
    invariants.check(follower)
    assert snapshot.encode(core.state) == snapshot.encode(follower)


def test_a_what_if_that_is_not_applied_leaves_no_trace() -> None:
    """Decisions on other records in between change nothing of the decisions that count."""
    plain, asked = Walk(11), Walk(11)
    for _ in range(40):
        plain.step()
        asked.step()
        fork = snapshot.decode(snapshot.encode(asked.core.state))
        journal = asked.core.journal
        kept = journal.sequence, journal.prev, journal.now_us, dict(journal.positions)
        question = journal.record(node("what-if", 1_000_000, rv=10_000), pod("if", rv=10_001))
        journal.sequence, journal.prev, journal.now_us, journal.positions = kept
        assert decide(fork, question).data == decide(asked.core.state, question).data
    assert [d.data for d in plain.core.decisions] == [d.data for d in asked.core.decisions]
    invariants.check(asked.core.state)


def test_bytes_of_records_and_decisions_are_canonical_and_valid() -> None:
    """Sorted keys, no spaces, no floats; the wire's models accept every one."""
    core = walked()
    for record, decision in zip(core.records, core.decisions, strict=True):
        for data in (record.data, decision.data):
            plain = json.loads(data, parse_float=pytest.fail)
            canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            assert canonical.encode() == data
        decode_record(record.data)
        DecisionRecord.model_validate_json(decision.data)


def test_snapshot_bytes_are_canonical() -> None:
    """A snapshot too has sorted keys and no spaces."""
    data = snapshot.encode(walked().state)
    plain = json.loads(data, parse_float=pytest.fail)
    canonical = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert canonical.encode() == data


def test_the_digest_is_the_hash_of_chain_record_and_decision() -> None:
    """By hand: SHA-256 of the previous digest, the record's bytes, and the decision without `digest`."""
    core = walked(steps=20)
    previous = "0" * 64
    for record, decision in zip(core.records, core.decisions, strict=True):
        plain = json.loads(decision.data)
        claimed = plain.pop("digest")
        rest = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(previous.encode() + record.data + rest.encode()).hexdigest()
        assert digest == claimed == decision.digest
        assert previous == plain["previous_digest"]
        assert hashlib.sha256(record.data).hexdigest() == plain["record_hash"]
        previous = digest
    assert previous == core.state.digest


def test_apply_refuses_a_decision_that_is_not_the_next() -> None:
    """Neither a repeated sequence nor one of another chain is written."""
    core = Core()
    with pytest.raises(AssertionError, match="after"):
        apply(core.state, core.decisions[-1])
    other = Core(backoff={"initial": "1s"})
    decision = other.see(node("n"))
    with pytest.raises(AssertionError, match="another chain"):
        apply(core.state, decision)


def test_decide_refuses_a_record_out_of_order_or_back_in_time() -> None:
    """Sequence and time of a record go on from the last one."""
    core = Core()
    with pytest.raises(AssertionError, match="after"):
        decide(core.state, core.records[-1])
    record = core.journal.record(advance_us=-10_000_000)
    with pytest.raises(AssertionError, match="back in time"):
        decide(core.state, record)


def test_an_ordinal_may_pass_to_a_node_whose_name_sorts_first() -> None:
    """Rows are applied by name, so the heir of an ordinal may be written before its owner is removed."""
    core = Core()
    core.see(node("z", 4_000))
    follower = State()
    for decision in core.decisions:
        apply(follower, to_decision(decision.data))
    decision = core.see(gone("nodes", "z"), node("a", 8_000, rv=101))
    apply(follower, to_decision(decision.data))
    assert 0 == follower.nodes["a"].ord
    invariants.check(follower)
    apply(follower, to_decision(core.see(pod("p", 6_000)).data))
    assert {"p": "a"} == core.binds()


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"sequence":1}', b"\xff\xfe"])
def test_damaged_decisions_are_refused(data: bytes) -> None:
    """What is no decision is an `InvalidMessage`, not a crash."""
    with pytest.raises(InvalidMessage, match="NotADecision"):
        to_decision(data)


def test_a_decision_tells_no_more_pods_than_the_log_takes() -> None:
    """Five thousand waiting pods of one class learn of a new node that is closed to them: in three decisions."""
    core = Core()
    for first in range(0, 5_000, 500):
        core.see(*[pod(f"p{index}", 9_000) for index in range(first, first + 500)])
    told = [len(core.see(node("n", 100)).diagnoses)]
    while core.decisions[-1].work_left:
        told.append(len(core.see().diagnoses))
    assert [2_000, 2_000, 1_000] == told
    assert max(len(decision.data) for decision in core.decisions) < 4_000_000
