"""The order in which units are tried: priority, age, name, uid. Every key is total."""

from msgspec import Struct


class OrderKey(Struct, frozen=True, gc=False, order=True):
    """Sorts units: higher priority first, then the higher sub-priority label, the older, by `ns/name`, by uid."""

    negative_priority: int
    negative_sub_priority: int
    created_us: int
    name: str
    uid: str


def order_key(rank: tuple[int, int], created_us: int, name: str, uid: str) -> OrderKey:
    """The key of a unit: a single pod, or a gang group under its first gang's name. `rank`: priority, sub-priority."""
    return OrderKey(-rank[0], -rank[1], created_us, name, uid)
