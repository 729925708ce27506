"""The order in which units are tried: priority, age, name, uid. Every key is total."""

from msgspec import Struct


class OrderKey(Struct, frozen=True, order=True):
    """Sorts units: higher priority first, then the older, then by `ns/name`, then by uid."""

    negative_priority: int
    created_us: int
    name: str
    uid: str


def order_key(priority: int, created_us: int, name: str, uid: str) -> OrderKey:
    """The key of a unit: a single pod, or a gang group under its first gang's name."""
    return OrderKey(-priority, created_us, name, uid)
