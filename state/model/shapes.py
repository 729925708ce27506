"""What waiting gangs ask for, and those that ask for the same: a cache, filled by `state.line`."""

from msgspec import Struct

from state.model.order import OrderKey

#: A group's place in the queue, and its gangs.
Entry = tuple[OrderKey, tuple[str, ...]]


class Shape(Struct, frozen=True):
    """What a gang asks for: two of the same `asks` fit or don't fit alike. `place`: in the queue."""

    asks: tuple[object, ...]
    needed: int
    place: OrderKey


class Shapes:
    """`of` parked gangs; `alike`: those alone in their group, by what they ask; `unknown`: parked, and not in `of`."""

    def __init__(self) -> None:
        self.of: dict[str, Shape] = {}
        self.alike: dict[tuple[object, ...], dict[str, Entry]] = {}
        self.unknown: dict[str, None] = {}

    def keep(self, gang: str, shape: Shape) -> None:
        """Remembers what the gang, which is alone in its group, asks for."""
        self.of[gang] = shape
        self.unknown.pop(gang, None)
        self.alike.setdefault(shape.asks, {})[gang] = (shape.place, (gang,))

    def forget(self, gang: str, *, parked: bool) -> None:
        """What the gang asks for may have changed."""
        shape = self.of.pop(gang, None)
        if shape is None:
            return
        line = self.alike.get(shape.asks)
        if line is not None and line.pop(gang, None) is not None and not line:
            del self.alike[shape.asks]
        if parked:
            self.unknown[gang] = None
