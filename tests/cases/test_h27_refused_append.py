"""Case h27 (armada#4918): an append that fails, and a death between append and decision, lose and double nothing."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest

from schemas.errors import Unavailable
from schemas.topics import DECISIONS, JOURNAL
from streams.chain import DecisionChain
from streams.history import Start, accepted_records
from streams.log import Entry
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
from tests.unit.streams.test_roles import Process, until

#: Offsets 0 to 9 of `pods` are taken, and 10 to 12 come.
BEFORE = [f"p{offset}" for offset in range(10)]
BATCH = ["p10", "p11", "p12"]


def filled(log: Log) -> tuple[SequencerRole, DeciderRole]:
    """Ten pods are taken and decided."""
    log.sync_all()
    log.publish("nodes", node("n1"))
    # `sync_all` has put a message on each topic; pods count from the next one.
    for name in BEFORE[1:]:
        log.publish("pods", pod(name))
    roles = SequencerRole(log), DeciderRole(log)
    settle(log, *roles, 1_000)
    assert 9 == roles[0].sequencer.positions["pods"]
    return roles


def publish_batch(log: Log) -> None:
    """Three messages at once."""
    offsets = log.writer.append_many([("pods", None, message(pod(name))) for name in BATCH])
    assert [10, 11, 12] == offsets


def commands(log: Log) -> dict[str, list[str]]:
    """Pod of the batch -> ids of the commands that bind it, as a consumer sees them."""
    found: dict[str, list[str]] = {name: [] for name in BATCH}
    chain = DecisionChain()
    for data in filter(chain.accept, log.values(DECISIONS)):
        for command in json.loads(data)["commands"]:
            if command["kind"] == "BindPod" and command["name"] in found:
                found[command["name"]].append(command["id"])
    return found


def taken_by(log: Log) -> Counter[int]:
    """Sequence of accepted record -> how many pods of the batch it has taken in."""
    return Counter(
        json.loads(data)["sequence"]
        for _, data in accepted_records(log.history(), Start())
        for seen in json.loads(data)["observations"]
        if seen.get("name") in BATCH
    )


def each_once(log: Log) -> None:
    """One accepted record holds the batch, and each command has its id from that record."""
    ((sequence, pods),) = taken_by(log).items()
    assert len(BATCH) == pods
    assert [[f"{sequence}.{index}"] for index in range(3)] == list(commands(log).values())
    found = verify(log.history())
    assert (None, 0) == (found.difference, found.undecided)


def test_a_refused_append_leaves_positions_and_the_next_try_appends_the_same(log: Log) -> None:
    """Offsets 10 to 12; the broker refuses once: positions stay at 9, then all three are in one record."""
    sequencer, decider = filled(log)
    publish_batch(log)
    sequencer.take_intake()
    refused = sequencer.sequencer.build(2_000)
    assert refused is not None
    sequencer.sequencer.append_failed()
    assert 9 == sequencer.sequencer.positions["pods"]
    settle(log, sequencer, decider, 3_000)
    assert 12 == sequencer.sequencer.positions["pods"]
    # The second try is of another moment, so the bytes differ, and what they take in does not.
    (again,) = [data for data in log.values(JOURNAL) if b'"p10"' in data]
    asked, got = json.loads(refused), json.loads(again)
    assert (2_000, 3_000) == (asked.pop("timestamp_us"), got.pop("timestamp_us"))
    assert asked == got
    each_once(log)


def test_a_refused_append_that_had_arrived_is_taken_once(log: Log) -> None:
    """The answer was lost, not the record: the second try is stale, and no command has a second id."""
    sequencer, decider = filled(log)
    publish_batch(log)
    sequencer.take_intake()
    assert sequencer.append(2_000)
    sequencer.sequencer.append_failed()
    assert sequencer.append(2_500)
    settle(log, sequencer, decider, 3_000)
    each_once(log)


@pytest.mark.parametrize("log", ["memory"], indirect=True)
def test_the_role_tries_again_by_itself(log: Log) -> None:
    """The same with the sequencer as a service, whose writer refuses the append of the batch once."""
    filled(log)
    write, refused = log.writer.append_many, []
    positions: list[int] = []

    async def story() -> None:
        async with Process(log) as process:

            def append_many(entries: Sequence[Entry]) -> list[int]:
                if not refused and any(JOURNAL == topic for topic, _, _ in entries):
                    refused.extend(entries)
                    positions.append(process.sequencer.sequencer.positions["pods"])
                    raise Unavailable("the broker refused")
                return write(entries)

            log.writer.append_many = append_many  # type: ignore[method-assign]
            publish_batch(log)
            await until(lambda: all(commands(log).values()))
            positions.append(process.sequencer.sequencer.positions["pods"])

    asyncio.run(asyncio.wait_for(story(), 30))
    assert [9, 12] == positions
    each_once(log)


def test_killed_between_append_and_decision_the_restarted_decider_decides_the_same_bytes(
    log: Log,
) -> None:
    """The dead one comes back to life and publishes, too: consumers still see each command once."""
    sequencer, dead = filled(log)
    publish_batch(log)
    sequencer.take_intake()
    assert sequencer.append(2_000)
    dead.read()
    (unpublished,) = dead.decider.unpublished()
    assert {name: [] for name in BATCH} == commands(log)
    restarted = DeciderRole.recovered(log)
    assert [unpublished] == restarted.decider.unpublished()
    restarted.publish()
    dead.publish()
    assert [unpublished[1]] * 2 == log.values(DECISIONS)[-2:]
    settle(log, sequencer, restarted, 3_000)
    each_once(log)
