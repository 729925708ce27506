"""Sequencers and deciders on one log: lost races, repeated appends, restarts; one history comes
out. Cases of real reports of
this kind are in `tests/cases/test_h02_take_over.py` and `test_h27_refused_append.py`.
"""

import json
import random
from collections import Counter

import pytest

from schemas.topics import DEADLETTER, DECISIONS, JOURNAL
from streams.decider import DecisionDiverged
from streams.history import Start, accepted_records
from streams.log_memory import drop_memory_log
from streams.recovery import recover
from streams.verify import verify
from tests.unit.streams.pipeline import (
    DeciderRole,
    Log,
    SequencerRole,
    message,
    node,
    pod,
    settle,
)


@pytest.fixture
def log(request: pytest.FixtureRequest) -> Log:
    """A memory log of this test alone."""
    name = f"pipeline-{abs(hash(request.node.nodeid))}"
    drop_memory_log(name)
    return Log(name)


def test_a_pod_is_bound_through_the_log(log: Log) -> None:
    """From intake messages to a bind command in a decision on the topic."""
    log.sync_all()
    log.publish("nodes", node("n1"))
    log.publish("pods", pod("a"))
    settle(log, SequencerRole(log), DeciderRole(log), 1_000_000)
    commands = [
        (command["kind"], command["name"], command["node"])
        for data in log.values(DECISIONS)
        for command in json.loads(data)["commands"]
        if command["kind"] == "BindPod"
    ]
    assert [("BindPod", "a", "n1")] == commands


@pytest.mark.parametrize("seed", range(12))
def test_two_sequencers_and_two_deciders_write_one_history(log: Log, seed: int) -> None:
    """Interleaved at random, with lost races, repeated appends and restarts, every message is taken
    exactly once.
    """
    chance = random.Random(seed)
    log.sync_all()
    sequencers = [SequencerRole(log), SequencerRole(log)]
    deciders = [DeciderRole(log), DeciderRole(log)]
    for step in range(300):
        role = chance.randrange(2)
        match chance.choice(
            ["pod", "node", "take", "append", "read", "read", "decide", "again", "kill"]
        ):
            case "pod":
                log.publish("pods", pod(f"p{step}"))
            case "node":
                log.publish("nodes", node(f"n{step}"))
            case "take":
                sequencers[role].take_intake(chance.randint(1, 5))
            case "append":
                sequencers[role].append(step * 1_000)
            case "read":
                sequencers[role].read(chance.randint(1, 4))
            case "decide":
                deciders[role].read(chance.randint(1, 4))
                deciders[role].publish(chance.randint(0, 3))
            case "again" if journal := log.values(JOURNAL):
                log.writer.append(JOURNAL, None, chance.choice(journal))
            case "kill" if chance.random() < 0.2:
                sequencers[role] = SequencerRole.recovered(log)
                deciders[role] = DeciderRole.recovered(log)
    for role in (0, 1):
        settle(log, sequencers[role], deciders[role], 1_000_000)
    for role in (0, 1):
        deciders[role].read()
    taken = Counter(
        observation["uid"]
        for _, data in accepted_records(log.history(), Start())
        for observation in json.loads(data)["observations"]
        if "uid" in observation
    )
    published = Counter(
        json.loads(data)["observations"][0]["uid"]
        for topic in ("pods", "nodes")
        for data in log.values(topic)
        if "uid" in json.loads(data)["observations"][0]
    )
    assert published == taken
    assert deciders[0].decider.state.digest == deciders[1].decider.state.digest
    found = verify(log.history())
    assert (None, deciders[0].decider.state.digest) == (found.difference, found.digest)
    assert (found.records, found.records, 0) == (found.last, found.compared, found.undecided)
    assert 0 < found.stale


def test_a_decider_whose_bytes_differ_stops_and_names_the_sequence(log: Log) -> None:
    """A decision on the topic that is not the derived one stops whoever reads it, before or after
    its own.
    """
    log.publish("nodes", node("n1"))
    sequencer, decider = SequencerRole(log), DeciderRole(log)
    sequencer.append(1_000)
    ahead = DeciderRole(log)
    decider.read()
    ((sequence, data),) = decider.decider.unpublished()
    log.writer.append(DECISIONS, None, data.replace(b'"work_left":false', b'"work_left":true'))
    with pytest.raises(DecisionDiverged, match="decision 1 differs"):
        decider.read()
    ahead.decider.on_decision(0, log.values(DECISIONS)[0])
    with pytest.raises(DecisionDiverged, match="decision 1 differs"):
        ahead.read()
    with pytest.raises(DecisionDiverged):
        recover(log.history())
    found = verify(log.history()).difference
    assert found is not None
    assert (sequence, "work_left: the log has true, derived is false") == (
        found.sequence,
        found.detail,
    )


def test_what_cannot_be_taken_goes_to_the_dead_letters_and_the_roles_go_on(log: Log) -> None:
    """Not JSON, a future version, 5 MB, an unknown kind, a negative request: each has its end, a
    pod after them is bound.
    """
    log.sync_all()
    log.publish("nodes", node("n1"))
    bad = [
        b"\x00not json",
        message(pod("x")).replace(b'"producer"', b'"version":9,"producer"'),
        b"{" + b" " * 5_000_000 + b"}",
        message({"kind": "Comet"}),
        message(pod("y", cpu=-1)),
    ]
    for value in bad:
        log.writer.append("pods", None, value)
    log.publish("pods", pod("a"))
    settle(log, SequencerRole(log), decider := DeciderRole(log), 1_000)
    reasons = [json.loads(letter)["reason"] for letter in log.values(DEADLETTER)]
    assert ["NotJson", "FutureVersion", "TooLarge", "UnknownKind", "InvalidField"] == reasons
    assert "n1" == decider.decider.state.pods["uid-a"].assumed
    requests = [
        request for data in log.values(DECISIONS) for request in json.loads(data)["requests"]
    ]
    assert requests


def test_what_has_been_compared_is_not_kept(log: Log) -> None:
    """A decider in step with its topic remembers nothing of the decisions behind it, however many; nor does one that
    comes after them.
    """
    log.sync_all()
    sequencer, decider, late = SequencerRole(log), DeciderRole(log), DeciderRole(log)
    for number in range(20):
        log.publish("pods", pod(f"p{number}"))
        settle(log, sequencer, decider, 1_000 * number)
    assert decider.decider.sequence >= 20
    assert 0 == decider.decider.uncompared
    late.read()
    assert (decider.decider.sequence, 0) == (late.decider.sequence, late.decider.uncompared)
