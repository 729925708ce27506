"""Checkpoints that are not what they were: torn, foreign, or written by another build.

Each fault takes a checkpoint that stands on the topic and puts something in its place. `restore` puts
back what was written. Recovery must pass all of them over, and end where it would have ended anyway.
"""

import json
import zlib
from collections.abc import Callable

from schemas.codec import encode, sha256_hex
from schemas.envelope import CheckpointManifest
from schemas.topics import CHECKPOINTS
from streams.checkpoints import Checkpoint, CheckpointStore, encode_key, split_chunks
from streams.log import LogReader, LogWriter
from tests.simulation.chaos import Chaos


class CheckpointFaults:
    """Spoils checkpoints of one log."""

    def __init__(self, reader: LogReader, writer: LogWriter, chaos: Chaos) -> None:
        self._reader = reader
        self._writer = writer
        self._dice = chaos.dice
        self._written: dict[bytes, bytes] = {}

    def spoil(self) -> bool:
        """One usable checkpoint becomes unusable; False when there is none."""
        store = CheckpointStore(self._reader)
        usable = [found for item in store.manifests if (found := store.load(item)) is not None]
        if not usable:
            return False
        checkpoint = self._dice.choice(usable)
        self._remember(checkpoint)
        way = self._dice.choice(self.ways)
        way(self, checkpoint)
        return True

    def restore(self) -> None:
        """The operator brings back what was written, where the topic still has a place for it."""
        for key, value in self._written.items():
            self._writer.append(CHECKPOINTS, key, value)
        self._written.clear()

    def _remember(self, checkpoint: Checkpoint) -> None:
        chunks = split_chunks(checkpoint.state_bytes)
        sequence = checkpoint.manifest.sequence
        for number, chunk in enumerate(chunks, start=1):
            self._written.setdefault(encode_key(sequence, number), chunk)
        self._written.setdefault(encode_key(sequence, 0), encode(checkpoint.manifest))

    # Torn

    def _lose_chunk(self, checkpoint: Checkpoint) -> None:
        self._put_chunk(checkpoint, None)

    def _cut_chunk(self, checkpoint: Checkpoint) -> None:
        packed = split_chunks(checkpoint.state_bytes)[0]
        self._put_chunk(checkpoint, packed[: self._dice.randrange(len(packed))])

    def _flip_packed_byte(self, checkpoint: Checkpoint) -> None:
        packed = bytearray(split_chunks(checkpoint.state_bytes)[0])
        packed[self._dice.randrange(len(packed))] ^= 1 << self._dice.randrange(8)
        self._put_chunk(checkpoint, bytes(packed))

    def _change_digit(self, checkpoint: Checkpoint) -> None:
        """A byte that compression's own checksum does not see: it was flipped in memory before."""
        data = bytearray(checkpoint.state_bytes)
        digits = [place for place, byte in enumerate(data) if byte in b"123456789"]
        data[self._dice.choice(digits)] ^= 1
        self._put_chunk(checkpoint, zlib.compress(bytes(data), 1))

    # Not of this log, or not of this build

    def _garble_manifest(self, checkpoint: Checkpoint) -> None:
        data = encode(checkpoint.manifest)
        self._put_manifest(checkpoint, data[: self._dice.randrange(len(data))])

    def _age_manifest(self, checkpoint: Checkpoint) -> None:
        plain = json.loads(encode(checkpoint.manifest))
        self._put_manifest(checkpoint, encode({**plain, "version": 0}))

    def _age_state(self, checkpoint: Checkpoint) -> None:
        """All of it holds together, only this build does not read such a State."""
        self._put_whole(checkpoint.manifest, {**json.loads(checkpoint.state_bytes), "version": 0})

    def _swap_for_foreign(self, checkpoint: Checkpoint) -> None:
        """Another log's, whole and sound, under the same sequence."""
        other = {"digest": "f" * 64, "record_hash": "e" * 64}
        state = {**json.loads(checkpoint.state_bytes), **other}
        state["tables"] = {**state["tables"], "pods": []}
        self._put_whole(checkpoint.manifest.model_copy(update={**other, "log_id": "d" * 64}), state)

    def _put_whole(self, manifest: CheckpointManifest, state: dict[str, object]) -> None:
        data = encode(state)
        chunks = split_chunks(data)
        update = {
            "state_bytes": len(data),
            "state_hash": sha256_hex(data),
            "chunks": len(chunks),
        }
        for number, chunk in enumerate(chunks, start=1):
            self._writer.append(CHECKPOINTS, encode_key(manifest.sequence, number), chunk)
        whole = manifest.model_copy(update=update)
        self._writer.append(CHECKPOINTS, encode_key(manifest.sequence, 0), encode(whole))

    def _put_chunk(self, checkpoint: Checkpoint, value: bytes | None) -> None:
        self._writer.append(CHECKPOINTS, encode_key(checkpoint.manifest.sequence, 1), value)

    def _put_manifest(self, checkpoint: Checkpoint, value: bytes) -> None:
        self._writer.append(CHECKPOINTS, encode_key(checkpoint.manifest.sequence, 0), value)

    #: One of them is taken at random.
    ways: tuple[Callable[["CheckpointFaults", Checkpoint], None], ...] = (
        _lose_chunk,
        _cut_chunk,
        _flip_packed_byte,
        _change_digit,
        _garble_manifest,
        _age_manifest,
        _age_state,
        _swap_for_foreign,
    )
