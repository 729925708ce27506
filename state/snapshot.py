"""Snapshot: canonical bytes of State, and State from them. Equal rows at an equal place in the log give equal bytes.

`freeze` is what the decider waits for (rows never change, so copying the tables is enough); `encode` may run elsewhere.
"""

import hashlib
from typing import Any

import msgspec
from msgspec import Raw, Struct

from state.model.rows import DECODERS, TABLES
from state.model.state import State


class Snapshot(Struct, frozen=True):
    """The bytes' fields: where in the log, and every table's rows as (key, row), sorted by key."""

    digest: str
    record_hash: str
    sequence: int
    tables: dict[str, list[tuple[str, Raw]]]
    timestamp_us: int
    version: int


class Frozen(Struct, frozen=True):
    """State as it was at one sequence: its place in the log, and a copy of each table."""

    digest: str
    record_hash: str
    sequence: int
    tables: dict[str, dict[str, Any]]
    timestamp_us: int


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Snapshot)
#: Rows that columns and indexes are worked out from come before the rows that refer to them.
_LOAD_ORDER = ("policy", "nodes", "devices")


def freeze(state: State) -> Frozen:
    """What `encode` needs of `state`, untouched by whatever State becomes; a few milliseconds at 50,000 pods."""
    return Frozen(
        digest=state.digest,
        record_hash=state.record_hash,
        sequence=state.sequence,
        tables={name: rows.copy() for name, rows in state.tables.items()},
        timestamp_us=state.timestamp_us,
    )


def encode(state: State | Frozen) -> bytes:
    """Canonical bytes of `state`."""
    tables = {
        name: [(key, Raw(_encode(rows[key]))) for key in sorted(rows)]
        for name, rows in state.tables.items()
    }
    return _encode(
        Snapshot(
            digest=state.digest,
            record_hash=state.record_hash,
            sequence=state.sequence,
            tables=tables,
            timestamp_us=state.timestamp_us,
            version=1,
        )
    )


def decode(data: bytes) -> State:
    """State from canonical bytes; derived things are worked out anew. Raises `msgspec.DecodeError` on damage."""
    snapshot = _decoder.decode(data)
    state = State()
    state.digest, state.record_hash = snapshot.digest, snapshot.record_hash
    state.sequence, state.timestamp_us = snapshot.sequence, snapshot.timestamp_us
    rest = [name for name in TABLES if name not in _LOAD_ORDER]
    for name in (*_LOAD_ORDER, *rest):
        for key, raw in snapshot.tables.get(name, ()):
            row: Any = DECODERS[name].decode(raw)
            state.put(name, key, state.intern_pod(row) if name == "pods" else row)
    return state


def state_hash(state: State) -> str:
    """SHA-256 (hex) of the canonical bytes."""
    return hashlib.sha256(encode(state)).hexdigest()
