"""Snapshot: canonical bytes of State, and State from them. Equal rows at an equal place in the log give equal bytes.

`freeze` is what the decider waits for (rows never change, so copying the tables is enough); `encode` may run elsewhere.
"""

import hashlib
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from state.model.rows import TABLES
from state.model.state import State

#: Of the bytes' form; a checkpoint of another version is passed over, and the journal folded instead.
VERSION: Final = 1


class Snapshot(Struct, frozen=True):
    """The bytes' fields: where in the log, and every table's rows as (key, row), sorted by key."""

    digest: str
    record_hash: str
    sequence: int
    tables: dict[str, Raw]
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
_table_decoders = {
    name: msgspec.json.Decoder(list[tuple[str, row]])  # type: ignore[valid-type]  # a type by name
    for name, row in TABLES.items()
}
#: Policy first (whose pods are ours), nodes last: their columns are summed once, not pod by pod.
_LOAD_ORDER = ("policy", *(name for name in TABLES if name not in ("policy", "nodes")), "nodes")


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
        name: Raw(_encode([(key, Raw(_encode(rows[key]))) for key in sorted(rows)]))
        for name, rows in state.tables.items()
    }
    return _encode(
        Snapshot(
            digest=state.digest,
            record_hash=state.record_hash,
            sequence=state.sequence,
            tables=tables,
            timestamp_us=state.timestamp_us,
            version=VERSION,
        )
    )


def decode(data: bytes) -> State:
    """State from canonical bytes; derived things are worked out anew. Raises `msgspec.DecodeError` on damage, and
    for what another build has written that this one does not know."""
    snapshot = _decoder.decode(data)
    unknown = [name for name in snapshot.tables if name not in TABLES]
    if snapshot.version != VERSION or unknown:
        raise msgspec.DecodeError(f"State of version {snapshot.version}, unknown tables: {unknown}")
    state = State()
    state.digest, state.record_hash = snapshot.digest, snapshot.record_hash
    state.sequence, state.timestamp_us = snapshot.sequence, snapshot.timestamp_us
    for name in _LOAD_ORDER:
        if name in snapshot.tables:
            for key, row in _table_decoders[name].decode(snapshot.tables[name]):
                state.put(name, key, state.intern_pod(row) if name == "pods" else row)
    return state


def state_hash(state: State) -> str:
    """SHA-256 (hex) of the canonical bytes."""
    return hashlib.sha256(encode(state)).hexdigest()
