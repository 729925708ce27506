"""Canonical bytes of a decision and the digest that chains it.

digest = SHA-256(previous digest, record bytes, decision bytes without `digest`).
"""

import hashlib

import msgspec

from state.model.decision import Head, Tail

_encode = msgspec.json.Encoder().encode


def seal(previous_digest: str, record_data: bytes, head: Head, tail: Tail) -> tuple[str, bytes]:
    """(digest, bytes) of a decision. The digest stands at its sorted place between `head`'s and `tail`'s fields."""
    before, after = _encode(head)[:-1], _encode(tail)[1:]
    hasher = hashlib.sha256(previous_digest.encode())
    hasher.update(record_data)
    hasher.update(before)
    hasher.update(b",")
    hasher.update(after)
    digest = hasher.hexdigest()
    return digest, b'%s,"digest":"%s",%s' % (before, digest.encode(), after)
