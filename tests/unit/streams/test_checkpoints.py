"""Checkpoints that are none of the log's: they are not used, and stand in nobody's way."""

from schemas.topics import CHECKPOINTS
from streams.checkpoints import Checkpointer, CheckpointStore, encode_key
from tests.unit.streams.pipeline import SequencerRole, pod, settle
from tests.unit.streams.test_history import checkpoint, lived


def test_a_foreign_checkpoint_of_a_later_sequence_stops_no_others() -> None:
    """Of another log, or of an end that was lost: the next one is due in time all the same, and the two newest stay."""
    log, role, _ = lived("later")
    newest, _ = CheckpointStore(log.reader).manifests
    later = newest.model_copy(
        update={"sequence": 10**9, "timestamp_us": 10**12, "digest": "f" * 64}
    )
    for number, value in ((1, b"zzz"), (0, later.model_dump_json().encode())):
        log.writer.append(CHECKPOINTS, encode_key(later.sequence, number), value)
    writer = Checkpointer(CheckpointStore(log.reader), log.writer, records=1)
    assert newest == writer.newest
    log.publish("pods", pod("late"))
    settle(log, SequencerRole(log), role, 20_000_000)
    checkpoint(writer, role)
    found = [manifest.sequence for manifest in CheckpointStore(log.reader).standing()]
    assert [role.decider.sequence, newest.sequence] == found
