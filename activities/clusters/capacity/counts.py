"""Kubernetes quantities as whole numbers of devices."""

from fractions import Fraction
from typing import Any

from api_types.text.quantity import NANO_PER_UNIT, parse_quantity


def amount(value: Any) -> Fraction:
    """Parse a quantity, which may be a number. Raises ValueError if it is invalid."""
    return Fraction(parse_quantity(str(value)), NANO_PER_UNIT)


def floor(value: Fraction) -> int:
    """Round free capacity down."""
    return value.numerator // value.denominator


def ceiling(value: Fraction) -> int:
    """Round used capacity up."""
    return -(-value.numerator // value.denominator)
