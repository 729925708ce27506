"""Journals for replay: recorded from a random walk, kept as compressed lines, folded again, or told a lie.

Run as `python -m tests.replay.journals FILE` it folds the file and prints the digest: what a fresh process is for.
"""

import gzip
import hashlib
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from schemas.codec import encode
from state.machine import step
from state.model.state import State
from streams.translate import to_record
from tests.walk import Walk

GOLDEN = Path(__file__).parent / "golden" / "walk.jsonl.gz"
GOLDEN_SEED, GOLDEN_STEPS = 20_260, 150


class Journal(NamedTuple):
    """Bytes of every record, and of the decision on it."""

    records: list[bytes]
    decisions: list[bytes]


def recorded(seed: int, steps: int) -> Journal:
    """The journal of a random walk."""
    walk = Walk(seed)
    for _ in range(steps):
        walk.step()
    core = walk.core
    return Journal([item.data for item in core.records], [item.data for item in core.decisions])


def save(journal: Journal, file: Path) -> None:
    """Writes record and decision in turn, one a line; the same journal gives the same bytes."""
    lines = [line for pair in zip(*journal, strict=True) for line in pair]
    file.write_bytes(gzip.compress(b"\n".join(lines) + b"\n", mtime=0))


def load(file: Path) -> Journal:
    """Reads what `save` wrote."""
    lines = gzip.decompress(file.read_bytes()).splitlines()
    return Journal(lines[::2], lines[1::2])


def fold(records: Iterable[bytes], state: State | None = None) -> tuple[State, list[bytes]]:
    """State after the records, from `state` or from the beginning, and the decisions on them."""
    state = state if state is not None else State()
    return state, [step(state, to_record(data)).data for data in records]


def resealed(journal: Journal, position: int, decision: bytes) -> Journal:
    """The journal with another decision at `position`, in a chain that holds together all the same."""
    decisions = journal.decisions[:position]
    previous = json.loads(journal.decisions[position])["previous_digest"]
    for index in range(position, len(journal.decisions)):
        plain = json.loads(decision if index == position else journal.decisions[index])
        del plain["digest"]
        plain["previous_digest"] = previous
        sealed = previous.encode() + journal.records[index] + encode(plain)
        previous = hashlib.sha256(sealed).hexdigest()
        decisions.append(encode({**plain, "digest": previous}))
    return Journal(journal.records, decisions)


if __name__ == "__main__":
    print(fold(load(Path(sys.argv[1])).records)[0].digest)
