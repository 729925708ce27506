"""The sequencer: batches, lost races, restarts at positions, ticks and time."""

import json
from typing import Any

from schemas.codec import decode_record, encode
from schemas.envelope import RECORD_BYTES_MAX
from schemas.topics import INTAKE
from streams.chain import Chain, DecisionChain
from streams.sequencer import Sequencer


def node(name: str, size: int = 0) -> dict[str, Any]:
    labels = {"pad": "x" * size} if size else {}
    return {
        "kind": "NodeObserved",
        "uid": name,
        "rv": 1,
        "name": name,
        "allocatable": {"cpu": 1},
        "labels": labels,
    }


def message(*observations: dict[str, Any]) -> bytes:
    return encode({"producer": "p", "observations": list(observations)})


def decision(record: bytes, previous: str = "0" * 64, **fields: Any) -> bytes:
    sequence = json.loads(record)["sequence"]
    return encode(
        {
            "sequence": sequence,
            "record_hash": "h",
            "previous_digest": previous,
            "digest": f"d{sequence}",
            **fields,
        }
    )


def started(**settings: Any) -> tuple[Sequencer, bytes]:
    """A sequencer whose genesis record is accepted and decided."""
    sequencer = Sequencer(**settings)
    record = sequencer.build(1_000)
    assert record is not None
    assert sequencer.on_journal(record)
    assert sequencer.on_decision(decision(record))
    return sequencer, record


def observed(record: bytes | None) -> list[str]:
    assert record is not None
    return [item.get("uid", item["kind"]) for item in json.loads(record)["observations"]]


def test_record_one_holds_the_full_policy() -> None:
    """An empty log starts with the effective policy, alone, under the id `genesis`."""
    record = Sequencer({"gangs": {"defaultTimeout": "5s"}}).build(1_000)
    assert record is not None
    parsed = decode_record(record)
    assert (
        parsed.sequence,
        parsed.prev,
        parsed.timestamp_us,
        parsed.positions,
    ) == (1, "0" * 64, 1_000, {})
    (genesis,) = parsed.observations
    assert (genesis.kind, genesis.id) == ("PolicyChanged", "genesis")
    assert genesis.spec["gangs"]["defaultTimeout"] == 5_000_000
    assert genesis.spec["schedulerNames"] == ["lockstep"]


def test_records_are_canonical_and_accepted_by_the_wire_models() -> None:
    """The bytes put together by hand are those of the encoder."""
    sequencer, _ = started()
    sequencer.offer("nodes", 0, message(node("ü\n\u2028")))
    record = sequencer.build(2_000)
    assert record is not None
    assert record == encode(json.loads(record))
    assert decode_record(record).positions == {"nodes": 0}


def test_a_message_is_taken_whole_up_to_a_hundred_observations_a_record() -> None:
    """A message that does not fit any more waits for the next record."""
    sequencer, _ = started()
    for offset in range(3):
        sequencer.offer("nodes", offset, message(*[node(f"{offset}-{i}") for i in range(40)]))
    sizes = [len(observed(sequencer.build(2_000))), len(observed(sequencer.build(2_000)))]
    assert sizes == [80, 40]
    assert None is sequencer.build(2_000)


def test_a_record_stays_within_its_bytes() -> None:
    """Large messages fill a record by bytes before they fill it by count."""
    sequencer, _ = started()
    for offset in range(6):
        sequencer.offer("nodes", offset, message(node(str(offset), 100_000)))
    records = [sequencer.build(2_000) for _ in range(3)]
    assert [observed(record) for record in records] == [["0", "1"], ["2", "3"], ["4", "5"]]
    assert all(len(record or b"") <= RECORD_BYTES_MAX for record in records)


def test_topics_are_drained_in_order_and_none_starves() -> None:
    """Admin comes first, but topics that are always full give way to each other, record by
    record.
    """
    sequencer, _ = started(pipeline_max=99)
    probe = {"kind": "ProbeRequested", "id": "1"}
    pods = {"kind": "ObjectGone", "resource": "pods", "uid": "pod", "rv": 1, "name": "p"}
    for offset in range(5):
        sequencer.offer("admin", offset, message(*[probe] * 100))
        sequencer.offer("pods", offset, message(*[pods] * 100))
    kinds = [observed(sequencer.build(2_000))[0] for _ in range(4)]
    assert kinds == ["ProbeRequested", "pod", "ProbeRequested", "pod"]
    calm, _ = started()
    calm.offer("pods", 0, message(pods))
    calm.offer("admin", 0, message(probe))
    assert observed(calm.build(2_000)) == ["ProbeRequested", "pod"]


def test_offsets_taken_before_are_dropped_and_gaps_are_named() -> None:
    """A repeated delivery changes nothing; a delivery too far ahead says what must come first."""
    sequencer, _ = started()
    assert None is sequencer.offer("nodes", 0, message(node("a")))
    assert None is sequencer.offer("nodes", 0, message(node("a")))
    assert sequencer.offer("nodes", 3, message(node("d"))) == 1
    assert None is sequencer.offer("nodes", 1, message(node("b")))
    assert observed(sequencer.build(2_000)) == ["a", "b"]
    assert sequencer.wanted("nodes") == 2


def test_what_is_gone_from_the_log_is_said_in_its_place() -> None:
    """Messages that retention removed before they were taken leave one rejection, and intake goes
    on after them.
    """
    sequencer, _ = started()
    sequencer.offer("pods", 0, message(node("x")))
    sequencer.lost("nodes", 5)
    sequencer.offer("nodes", 5, message(node("f")))
    assert observed(sequencer.build(2_000))[1:2] == ["f"]
    letters = [json.loads(letter) for letter in sequencer.take_dead_letters()]
    assert [letter["reason"] for letter in letters] == ["WrongTopic", "Lost"]
    assert dict(sequencer.rejected) == {"WrongTopic": 1, "Lost": 1}
    assert sequencer.take_dead_letters() == []


def test_a_foreign_record_takes_the_place_and_intake_goes_on_after_its_positions() -> None:
    """The own tail is lost; what the winner took is dropped, the rest is built again."""
    sequencer, genesis = started()
    rival = Sequencer()
    assert rival.on_journal(genesis)
    for offset, name in enumerate("abc"):
        sequencer.offer("nodes", offset, message(node(name)))
    first, _ = sequencer.build(2_000), sequencer.offer("nodes", 3, message(node("d")))
    second = sequencer.build(2_000)
    rival.offer("nodes", 0, message(node("a")))
    winner = rival.build(1_500)
    assert first is not None
    assert second is not None
    assert winner is not None
    assert [
        sequencer.on_journal(winner),
        sequencer.on_journal(first),
        sequencer.on_journal(second),
    ] == [True, False, False]
    assert (sequencer.lost_races, sequencer.in_flight, sequencer.positions) == (1, 0, {"nodes": 0})
    again = sequencer.build(1_600)
    assert observed(again) == ["b", "c", "d"]
    assert (json.loads(again or b"")["sequence"], json.loads(again or b"")["positions"]) == (
        3,
        {"nodes": 3},
    )
    assert sequencer.on_journal(again or b"")


def test_positions_beyond_what_was_offered_move_intake_forward() -> None:
    """A standby that has read less than the winner took wants the next offset after the
    winner's.
    """
    sequencer, genesis = started()
    rival = Sequencer()
    rival.on_journal(genesis)
    for offset in range(5):
        rival.offer("nodes", offset, message(node(str(offset))))
    assert sequencer.on_journal(rival.build(2_000) or b"")
    assert sequencer.wanted("nodes") == 5
    assert None is sequencer.offer("nodes", 4, message(node("old")))
    assert None is sequencer.build(3_000)


def test_a_refused_append_is_built_again_with_the_same_positions() -> None:
    """Armada#4918: offsets 10 to 12, an append that the broker refuses: positions stay at 9 and the
    next try appends them.
    """
    sequencer, genesis = started()
    chain = Chain()
    chain.accept(genesis)
    sequencer = Sequencer.resume(chain, DecisionChain(), {"nodes": 9}, 1_000)
    for offset in (10, 11, 12):
        sequencer.offer("nodes", offset, message(node(str(offset))))
    refused = sequencer.build(2_000)
    sequencer.append_failed()
    assert sequencer.positions == {"nodes": 9}
    again = sequencer.build(2_500)
    assert ["10", "11", "12"] == observed(refused) == observed(again)
    assert sequencer.on_journal(again or b"")
    assert sequencer.positions == {"nodes": 12}
    assert None is sequencer.build(3_000)


def test_an_append_that_arrived_although_it_failed_is_taken_once() -> None:
    """The outcome was unknown and both tries are in the log: the first is history, the second is
    skipped.
    """
    sequencer, _ = started()
    sequencer.offer("nodes", 0, message(node("a")))
    first = sequencer.build(2_000) or b""
    sequencer.append_failed()
    second = sequencer.build(2_500) or b""
    assert [sequencer.on_journal(first), sequencer.on_journal(second)] == [True, False]
    assert (
        sequencer.positions,
        sequencer.backlog,
        sequencer.build(3_000),
    ) == ({"nodes": 0}, 0, None)


def test_pipelining_is_bounded() -> None:
    """At most so many own records are appended without having been read back."""
    sequencer, _ = started(pipeline_max=2, observations_max=1)
    for offset in range(4):
        sequencer.offer("nodes", offset, message(node(str(offset))))
    first, second = sequencer.build(2_000), sequencer.build(2_000)
    assert (observed(first), observed(second), sequencer.build(2_000)) == (["0"], ["1"], None)
    sequencer.on_journal(first or b"")
    assert observed(sequencer.build(2_000)) == ["2"]


def test_a_tick_comes_when_a_deadline_is_due_and_its_decision_was_read() -> None:
    """Not before the time, not before the decision of the last record, once; an idle cluster has
    none.
    """
    sequencer, _ = started()
    assert (sequencer.due_us(), sequencer.build(9_000)) == (None, None)
    sequencer.offer("nodes", 0, message(node("a")))
    record = sequencer.build(9_000) or b""
    sequencer.on_journal(record)
    assert None is sequencer.build(99_000)
    sequencer.on_decision(decision(record, "d1", next_deadline_us=20_000))
    assert (sequencer.due_us(), sequencer.build(19_999)) == (20_000, None)
    tick = sequencer.build(20_000) or b""
    assert (
        observed(tick),
        json.loads(tick)["sequence"],
        json.loads(tick)["timestamp_us"],
    ) == ([], 3, 20_000)
    assert None is sequencer.build(30_000)
    sequencer.on_journal(tick)
    assert None is sequencer.build(40_000)
    sequencer.on_decision(decision(tick, "d2"))
    assert None is sequencer.build(50_000)


def test_work_left_asks_for_a_tick_at_once() -> None:
    """A cycle that reached its bound goes on in the next record, without waiting for time."""
    sequencer, _ = started()
    sequencer.offer("nodes", 0, message(node("a")))
    record = sequencer.build(9_000) or b""
    sequencer.on_journal(record)
    sequencer.on_decision(decision(record, "d1", work_left=True))
    assert sequencer.due_us() == 0
    assert observed(sequencer.build(9_000)) == []


def test_time_never_goes_back() -> None:
    """A clock behind the last record stamps the last record's time, also after a lost race."""
    sequencer, _ = started()
    sequencer.offer("nodes", 0, message(node("a")))
    assert json.loads(sequencer.build(5) or b"")["timestamp_us"] == 1_000
    assert sequencer.timestamp_us == 1_000


def test_backlog_asks_the_runner_to_pause() -> None:
    """Observations offered and not appended are bounded by asking, and counted down by building."""
    sequencer, _ = started(pipeline_max=400)
    batch = message(*[node(str(i)) for i in range(100)])
    for offset in range(200):
        assert not sequencer.full
        sequencer.offer("nodes", offset, batch)
    assert (sequencer.full, sequencer.backlog) == (True, 20_000)
    sequencer.build(2_000)
    assert (sequencer.full, sequencer.backlog) == (False, 19_900)


def test_every_intake_topic_is_served() -> None:
    """A sequencer wants offset 0 of each intake topic of an empty log."""
    sequencer = Sequencer()
    assert dict.fromkeys(INTAKE, 0) == {topic: sequencer.wanted(topic) for topic in INTAKE}
