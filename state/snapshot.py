"""Snapshot: canonical bytes of State, and State from them. Equal rows at an equal place in the log give equal bytes."""

import hashlib
from typing import Any

import msgspec
from msgspec import Raw, Struct

from state.model.rows import TABLES
from state.model.state import State


class Snapshot(Struct, frozen=True):
    """The bytes' fields: where in the log, and every table's rows as (key, row), sorted by key."""

    digest: str
    record_hash: str
    sequence: int
    tables: dict[str, list[tuple[str, Raw]]]
    timestamp_us: int
    version: int


_encode = msgspec.json.Encoder().encode
_decoder = msgspec.json.Decoder(Snapshot)
_row_decoders = {name: msgspec.json.Decoder(row) for name, row in TABLES.items()}
#: Rows that columns and indexes are worked out from come before the rows that refer to them.
_LOAD_ORDER = ("policy", "nodes", "devices")


def encode(state: State) -> bytes:
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
            row: Any = _row_decoders[name].decode(raw)
            if name == "pods":
                row = msgspec.structs.replace(
                    row,
                    annotations=state.intern(row.annotations),
                    labels=state.intern(row.labels),
                    spec=state.intern(row.spec),
                )
            state.put(name, key, row)
    return state


def state_hash(state: State) -> str:
    """SHA-256 (hex) of the canonical bytes."""
    return hashlib.sha256(encode(state)).hexdigest()
