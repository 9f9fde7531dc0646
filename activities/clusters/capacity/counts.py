"""Kubernetes quantities as whole numbers of devices."""

import re
from fractions import Fraction
from typing import Any

_QUANTITY = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)(m|k|Ki|M|Mi|)")
_FACTORS = {"": Fraction(1), "m": Fraction(1, 1000), "k": Fraction(1000), "Ki": Fraction(1024), "M": Fraction(10**6), "Mi": Fraction(2**20)}


def amount(value: Any) -> Fraction:
    """Read a quantity. Raises ValueError naming it if it is invalid."""
    matched = _QUANTITY.fullmatch(str(value))
    if matched is None:
        raise ValueError(f"{value!r} is not a quantity of devices")
    return Fraction(matched[1]) * _FACTORS[matched[2]]


def floor(value: Fraction) -> int:
    """Round what is free: never up."""
    return value.numerator // value.denominator


def ceiling(value: Fraction) -> int:
    """Round what is used: never down."""
    return -(-value.numerator // value.denominator)
