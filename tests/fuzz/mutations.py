"""Damage to bytes and to JSON trees, drawn from a seeded generator. Must not know what is damaged, nor who reads it."""

import copy
import json
from random import Random
from typing import Any, Final

#: Values that have broken parsers before.
ODD: Final[tuple[Any, ...]] = (
    *(None, True, False, "", " ", "0", "-1", "x" * 300, "\u0000", "\ud7ff", "é", "\U0001f600", "²"),
    *(0, -1, 1, 2**31, 2**53, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400),
    *(0.0, -0.0, 1.5, 1e308, float("inf"), float("nan")),
    *([], {}, [[]], [None], {"": None}, [{}], {"a": {"b": [1]}}),
)
_TOKENS: Final = (
    *(b"{", b"}", b"[", b"]", b'"', b",", b":", b"\\", b"\\u0000", b"\\ud800", b"\x00", b"\xff"),
    *(b"\xc3\x28", b"\xed\xa0\x80", b"null", b"true", b"NaN", b"1e999", b"-", b"--", b"\n", b"\t"),
    *(b"9" * 30, b"9" * 5000, b"[" * 2000, b'{"a":' * 2000, b"&a", b"*a", b"!!python/x", b"---\n"),
)


def damaged_bytes(random: Random, data: bytes, other: bytes) -> bytes:
    """`data` after one to three blows, mostly one; some of them bring in a piece of `other`."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        at = random.randrange(len(data) + 1)
        until = min(len(data), at + random.choice((1, 1, 2, 8, 64)))
        match random.randrange(7):
            case 0:
                data = data[:at] + bytes([random.randrange(256)]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[until:]
            case 2:
                data = data[:until] + data[at:until] * random.choice((1, 2, 50)) + data[until:]
            case 3:
                data = data[:at] + random.choice(_TOKENS) + data[until:]
            case 4:
                data = data[:at]
            case 5:
                begin = random.randrange(len(other) + 1)
                data = data[:at] + other[begin : begin + 64] + data[until:]
            case _:
                begin = random.randrange(len(data) + 1)
                data = data[:at] + data[begin : begin + 16] + data[at:]
    return data


def damaged_tree(random: Random, tree: Any, other: Any) -> Any:
    """A copy of a JSON tree with one to three places changed; some get a part of `other`."""
    tree = json.loads(json.dumps(tree))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        place = _place(random, tree)
        if place is None:
            return _odd(random)
        _damage(random, place, other)
    return tree


def _place(random: Random, tree: Any) -> Any:
    """A dict or list somewhere in the tree that is not empty; None when there is none."""
    place = tree if isinstance(tree, dict | list) and tree else None
    while place is not None and random.random() < 0.8:
        inner = [
            each
            for each in (place.values() if isinstance(place, dict) else place)
            if isinstance(each, dict | list) and each
        ]
        if not inner:
            break
        place = random.choice(inner)
    return place


def _damage(random: Random, place: Any, other: Any) -> None:
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    if not keys or random.random() < 0.15:
        if isinstance(place, dict):
            place[str(_odd(random))] = _odd(random)
        else:
            place.append(_odd(random))
        return
    key = random.choice(keys)
    match random.randrange(5):
        case 0 | 1:
            place[key] = _odd(random)
        case 2:
            del place[key]
        case 3:
            place[key] = _part(random, other)
        case _:
            place[key] = copy.deepcopy(place[random.choice(keys)])


def _odd(random: Random) -> Any:
    return copy.deepcopy(random.choice(ODD))


def _part(random: Random, tree: Any) -> Any:
    """A copy of a value somewhere in the tree."""
    place = _place(random, tree)
    if place is None:
        return tree
    return copy.deepcopy(random.choice(list(place.values()) if isinstance(place, dict) else place))
