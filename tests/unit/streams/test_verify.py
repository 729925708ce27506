"""What verification takes for damage, and what for the leftovers of a writer that lost."""

import hashlib
import json

from schemas import codec
from schemas.topics import JOURNAL
from streams.verify import verify
from tests.unit.streams.test_history import fresh, lived


def test_a_stale_fork_that_ends_the_journal_is_no_damage() -> None:
    """Its last record builds on one that was skipped long before: both are there, nothing is missing."""
    log, _, _ = lived("fork", 2)
    values = log.values(JOURNAL)

    def twin(of: bytes, prev: bytes, sequence: int = 0) -> bytes:
        """`of` as another writer would have it, after `prev`."""
        record = json.loads(of)
        record["prev"] = hashlib.sha256(prev).hexdigest()
        record["sequence"] = sequence or record["sequence"]
        record["timestamp_us"] += 1
        return codec.encode(record)

    fork = fresh("forked")
    stale = twin(values[-2], values[-3])
    second = twin(values[-1], stale)
    belated = twin(values[-1], second, json.loads(values[-1])["sequence"] + 1)
    for data in (*values[:-1], stale, second, values[-1], belated):
        fork.writer.append(JOURNAL, None, data)
    assert (None, 3) == (verify(fork.history()).difference, verify(fork.history()).stale)
    lost = fresh("lost")
    for data in (*values[:-1], stale, values[-1], belated):
        lost.writer.append(JOURNAL, None, data)
    found = verify(lost.history()).difference
    assert found is not None
    assert "chain broken" in found.detail
