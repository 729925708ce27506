"""Kubernetes quantities to integers: `cpu` in milli, every other resource in base units. Exact.

Must not know any resource beyond `cpu`. `producers.observe` calls it for whatever carries amounts.
"""

import re
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final

from schemas.errors import InvalidMessage

#: The largest amount there is; Kubernetes too answers with it for anything larger.
QUANTITY_MAX: Final = 2**63 - 1
#: Capacities and requests are cut to this; sums over a thousand of them stay within 64 bits.
AMOUNT_MAX: Final = 2**53

_QUANTITY: Final = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_SUFFIXES: Final[dict[str, Decimal]] = {
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("numkMGTPE", -3) if power < 0},
    **{suffix: Decimal(1000) ** power for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
#: Digits enough for any quantity of `_LENGTH_MAX` characters times any suffix: products are exact.
_LENGTH_MAX: Final = 64
_EXPONENT_MAX: Final = 64
_EXACT: Final = Context(prec=512)


def amount(quantity: str | float, milli: bool = False) -> int:
    """The quantity in base units, or in thousandths when `milli`. A fraction rounds away from zero.

    Beyond the 64-bit range the answer is the largest (smallest) number in it. A JSON number is
    taken by its shortest text. Raises `ValueError` when the text is no quantity.
    """
    if isinstance(quantity, bool) or not isinstance(quantity, str | int | float):
        raise ValueError(f"{quantity!r} is not a quantity such as 500m, 2 or 64Gi")
    return _amount(str(quantity), milli)


def resource_amounts(quantities: dict[str, Any]) -> dict[str, int]:
    """Amounts of a resource list, `cpu` in milli, sorted by name.

    Raises `InvalidMessage` that names the resource.
    """
    return {name: resource_amount(name, quantities[name]) for name in sorted(quantities)}


def resource_amount(name: str, quantity: Any) -> int:
    """The amount of the resource `name`. Raises `InvalidMessage` that names it."""
    try:
        return amount(quantity, milli=name == "cpu")
    except ValueError as error:
        raise InvalidMessage("InvalidField", f"{name}: {error}") from error


@lru_cache(maxsize=65536)
def _amount(text: str, milli: bool) -> int:
    match = _QUANTITY.fullmatch(text) if len(text) <= _LENGTH_MAX else None
    if match is None:
        raise ValueError(f"{text[:_LENGTH_MAX]!r} is not a quantity such as 500m, 2 or 64Gi")
    value = Decimal(match["number"])
    if match["suffix"]:
        value = _EXACT.multiply(value, _SUFFIXES[match["suffix"]])
    elif match["exponent"]:
        # A larger exponent changes nothing: the value is beyond the range, or rounds to one unit.
        exponent = max(-_EXPONENT_MAX * 2, min(_EXPONENT_MAX * 2, int(match["exponent"])))
        value = _EXACT.scaleb(value, exponent)
    return _rounded(_EXACT.scaleb(value, 3) if milli else value)


def _rounded(value: Decimal) -> int:
    whole = int(value)
    if value != whole:
        whole += 1 if value > 0 else -1
    return max(-QUANTITY_MAX, min(QUANTITY_MAX, whole))
