"""Kubernetes quantities: worked values, and any quantity against exact fractions."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import InvalidMessage
from schemas.quantities import QUANTITY_MAX, amount, resource_amounts

FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(
    ("quantity", "units", "milli"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("100m", 1, 100),
        ("1500m", 2, 1500),
        ("0.1", 1, 100),
        ("1.5Gi", 1610612736, 1610612736000),
        ("80Gi", 85899345920, 85899345920000),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+3", 3, 3000),
        ("-2", -2, -2000),
        ("-0.5", -1, -500),
        ("1e3", 1000, 1000000),
        ("12E-3", 1, 12),
        ("1E", 10**18, QUANTITY_MAX),
        ("1n", 1, 1),
        ("8Ei", QUANTITY_MAX, QUANTITY_MAX),
        ("-8Ei", -QUANTITY_MAX, -QUANTITY_MAX),
        ("1e99999", QUANTITY_MAX, QUANTITY_MAX),
        ("1e-99999", 1, 1),
        ("0e99999", 0, 0),
        (4, 4, 4000),
        (0.1, 1, 100),
    ],
)
def test_worked_values(quantity: str | float, units: int, milli: int) -> None:
    """Each suffix and form has the amount that Kubernetes gives it, rounded away from zero."""
    assert (units, milli) == (amount(quantity), amount(quantity, milli=True))


@pytest.mark.parametrize(
    "text",
    [
        *("", " 1", "1 ", "1K", "1ki", "1Ni", "1mm", "abc", "--1", "+-1", ".", "1.2.3"),
        *("1e", "e3", "1e1.5", "0x10", "1_000", "\N{ARABIC-INDIC DIGIT ONE}", "NaN", "1" * 65),
    ],
)
def test_what_is_no_quantity_is_refused(text: str) -> None:
    """Text that Kubernetes would not accept raises ValueError that shows it."""
    with pytest.raises(ValueError, match="is not a quantity"):
        amount(text)


@pytest.mark.parametrize("value", [None, True, [], {}, float("nan"), float("inf")])
def test_what_is_no_text_or_number_is_refused(value: object) -> None:
    """Other JSON values raise ValueError, truth values too."""
    with pytest.raises(ValueError, match="is not a quantity"):
        amount(value)  # type: ignore[arg-type]


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.integers(0, 10**20),
    fraction=st.text("0123456789", max_size=12),
    suffix=st.sampled_from(sorted(FACTORS)),
    exponent=st.none() | st.integers(-30, 30),
    milli=st.booleans(),
)
def test_any_quantity_equals_its_exact_fraction(
    sign: str, whole: int, fraction: str, suffix: str, exponent: int | None, milli: bool
) -> None:
    """The amount is the exact fraction, rounded away from zero and cut to 64 bits."""
    value = Fraction(whole) + (Fraction(int(fraction), 10 ** len(fraction)) if fraction else 0)
    tail = suffix if exponent is None else f"e{exponent}"
    value *= FACTORS[suffix] if exponent is None else Fraction(10) ** exponent
    value *= 1000 if milli else 1
    expected = min(-(-value.numerator // value.denominator), QUANTITY_MAX)
    text = f"{sign}{whole}{'.' + fraction if fraction else ''}{tail}"
    assert (-expected if sign == "-" else expected) == amount(text, milli=milli)


def test_resource_amounts_counts_cpu_in_milli_and_sorts() -> None:
    """cpu is in milli, all else in base units, and the names are in order."""
    found = resource_amounts({"memory": "1Ki", "cpu": "1.5", "nvidia.com/gpu": 2})
    assert [("cpu", 1500), ("memory", 1024), ("nvidia.com/gpu", 2)] == list(found.items())


def test_resource_amounts_names_the_resource_that_is_wrong() -> None:
    """A bad quantity raises InvalidMessage with the resource's name."""
    with pytest.raises(InvalidMessage, match="InvalidField: memory: 'much' is not a quantity"):
        resource_amounts({"cpu": "1", "memory": "much"})
