"""Acceptance: which journal records and decisions are history."""

import hashlib

import pytest

from schemas.codec import encode
from schemas.envelope import GENESIS_HASH
from schemas.errors import Fatal
from streams.chain import Chain, DecisionChain, StallWatch


def record(sequence: int, prev: str, timestamp_us: int = 1) -> bytes:
    return encode(
        {"sequence": sequence, "prev": prev, "timestamp_us": timestamp_us, "positions": {}}
    )


def decision(sequence: int, previous: str, digest: str) -> bytes:
    return encode(
        {"sequence": sequence, "record_hash": "h", "previous_digest": previous, "digest": digest}
    )


def test_next_record_with_the_hash_of_the_last_is_accepted() -> None:
    """A chain of two records is accepted whole, and its end is the hash of the second."""
    chain = Chain()
    first = record(1, GENESIS_HASH)
    second = record(2, hashlib.sha256(first).hexdigest())
    assert [chain.accept(first), chain.accept(second)] == [True, True]
    assert (2, hashlib.sha256(second).hexdigest()) == (chain.sequence, chain.last_hash)


def test_stale_repeated_future_and_malformed_entries_are_skipped_and_counted() -> None:
    """Whatever does not extend the chain leaves it as it was."""
    chain = Chain()
    first = record(1, GENESIS_HASH)
    assert chain.accept(first)
    last = hashlib.sha256(first).hexdigest()
    stale = [
        first,
        record(3, last),
        record(2, GENESIS_HASH),
        b"",
        b"{",
        b"null",
        b'{"sequence":2}',
        b'{"sequence":2.0,"prev":"%b","timestamp_us":1}' % last.encode(),
        b"[" * 100_000,
    ]
    assert [False] * len(stale) == [chain.accept(data) for data in stale]
    assert (1, last, len(stale)) == (chain.sequence, chain.last_hash, chain.skipped)


def test_what_stands_on_a_stale_record_is_skipped_with_it() -> None:
    """Two writers fork the chain: the first one read wins, and the loser's second record loses
    too.
    """
    chain = Chain()
    winner, loser = record(1, GENESIS_HASH, 1), record(1, GENESIS_HASH, 2)
    after_loser = record(2, hashlib.sha256(loser).hexdigest())
    after_winner = record(2, hashlib.sha256(winner).hexdigest())
    answers = [chain.accept(data) for data in (winner, loser, after_loser, after_winner)]
    assert answers == [True, False, False, True]


def test_decisions_follow_by_previous_digest() -> None:
    """A second decider's copy is skipped; a decision on another digest is skipped."""
    chain = DecisionChain()
    first, other = decision(1, GENESIS_HASH, "a"), decision(1, GENESIS_HASH, "b")
    answers = [
        chain.accept(data)
        for data in (first, first, other, decision(2, "b", "c"), decision(2, "a", "d"))
    ]
    assert answers == [True, False, False, False, True]
    assert (chain.sequence, chain.digest, chain.skipped) == (2, "d", 3)


def test_a_copy_goes_on_alone() -> None:
    """What a copy accepts does not move the original."""
    chain = Chain()
    twin = chain.copy()
    assert twin.accept(record(1, GENESIS_HASH))
    assert (chain.sequence, twin.sequence) == (0, 1)


def test_stall_is_fatal_after_the_limit_and_not_before() -> None:
    """Records that claim a later place, for 30 s without one accepted, stop the reader and name the sequence."""
    watch, chain = StallWatch("journal"), Chain()
    first = record(1, GENESIS_HASH)
    ahead = record(9, GENESIS_HASH)

    def read(data: bytes, now_s: float) -> None:
        chain.accept(data)
        watch.note(chain, now_s)

    read(ahead, 100.0)
    read(ahead, 129.9)
    read(first, 129.95)
    read(first, 400.0)
    read(first, 900.0)
    read(ahead, 1_000.0)
    read(ahead, 1_029.9)
    with pytest.raises(Fatal, match="sequence 1"):
        read(ahead, 1_030.0)
