"""A quantity in the representation that Kubernetes uses.

Kubernetes represents a quantity either as a 64-bit number with a power of ten or as a
big decimal. The value is the same, but only the first representation is an integer to
`isInteger()` and `asInteger()`: `quantity("1.5Gi").isInteger()` is false on a real
cluster. The representation even changes during an evaluation: comparing with a decimal
makes the receiver a decimal, and adding to a decimal changes it in place. A selector
that depends on this must have the same result as on the cluster, so this module models
the representation.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from api_types.text.quantity import (
    BINARY_CEILING_NANO,
    NANO_PER_UNIT,
    parse_quantity,
    split_quantity,
)
from scheduler.cel.errors import Aborted

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)

# Decimal and binary digits that Kubernetes expects to fit its 64-bit form.
_DECIMAL_DIGITS = 18
_BINARY_DIGITS = 15
_NANO_SCALE = -9

# Powers of ten that a double can hold.
_POWER_MAX = 308
_POWER_MIN = -323


@dataclass(slots=True)
class _Number:
    """The content of a quantity.

    Quantities that are computed from a decimal share it.
    """

    nano: int
    unscaled: int
    scale: int
    decimal: bool


class CelQuantity:
    """A quantity during one evaluation.

    Attributes:
        computed: it is the result of `add` or `sub`. Kubernetes does not accept it as the right
            side of `==`.
        published: it belongs to the device. In the cluster, other selectors read it too.

    """

    __slots__ = ("_number", "computed", "published")

    def __init__(
        self, number: _Number, *, computed: bool = False, published: bool = False
    ) -> None:
        self._number = number
        self.computed = computed
        self.published = published

    def __str__(self) -> str:
        whole, rest = divmod(abs(self.nano), NANO_PER_UNIT)
        return f"{'-' if self.nano < 0 else ''}{whole}" + (
            f".{rest:09}".rstrip("0") if rest else ""
        )

    @property
    def nano(self) -> int:
        """Return the value in nano-units."""
        return self._number.nano

    def rank(self, other: CelQuantity) -> int:
        """Compare with another amount; return -1, 0 or 1.

        If the other amount is a decimal, this one becomes a decimal.
        """
        self._number.decimal = self._number.decimal or other._number.decimal
        return (self.nano > other.nano) - (self.nano < other.nano)

    def as_int64(self) -> int | None:
        """Return the value as a 64-bit integer, or None if Kubernetes does not."""
        number = self._number
        if number.decimal or number.scale < 0:
            return None
        value = number.unscaled * 10**number.scale
        return value if _INT64_MIN <= value <= _INT64_MAX else None

    def as_float(self) -> float:
        """Return the nearest double, computed in the same two steps as in Kubernetes."""
        number = self._number
        try:
            base = float(number.unscaled)
        except OverflowError:
            base = math.inf if number.unscaled > 0 else -math.inf
        return base if number.scale == 0 else base * _power_of_ten(number.scale)

    def plus(self, other: CelQuantity, sign: int) -> CelQuantity:
        """Return the sum as a computed amount, or the difference if `sign` is -1.

        Raises:
            Aborted: Kubernetes would change the device, which later selectors read too.

        """
        number, added = self._number, other._number
        if (
            not number.decimal
            and not added.decimal
            and (total := _sum(number, added, sign)) is not None
        ):
            return CelQuantity(total, computed=True)
        if number.decimal and self.published:
            raise Aborted(
                f"quantity {self} is a decimal, and Kubernetes would change the device "
                "by adding to it"
            )
        scale = min(number.scale, added.scale)
        result = number if number.decimal else _copy(number)
        result.unscaled = number.unscaled * 10 ** (
            number.scale - scale
        ) + sign * added.unscaled * 10 ** (added.scale - scale)
        result.nano, result.scale, result.decimal = (
            number.nano + sign * added.nano,
            scale,
            True,
        )
        return CelQuantity(result, computed=True)


def _copy(number: _Number) -> _Number:
    return _Number(number.nano, number.unscaled, number.scale, number.decimal)


def _sum(a: _Number, b: _Number, sign: int) -> _Number | None:
    """Add in the 64-bit form, or return None if it overflows on the way."""
    if b.unscaled == 0:
        return _copy(a)
    if a.unscaled == 0:
        return _Number(sign * b.nano, sign * b.unscaled, b.scale, decimal=False)
    scale = min(a.scale, b.scale)
    left = a.unscaled * 10 ** (a.scale - scale)
    right = sign * b.unscaled * 10 ** (b.scale - scale)
    if not all(
        _INT64_MIN <= part <= _INT64_MAX for part in (left, right, left + right)
    ):
        return None
    return _Number(a.nano + sign * b.nano, left + right, scale, decimal=False)


def _power_of_ten(scale: int) -> float:
    """Compute 10^scale from two table entries, as Go does.

    Above 10^31 the result is not always the nearest double.
    """
    if scale > _POWER_MAX:
        return math.inf
    if scale < _POWER_MIN:
        return 0.0
    coarse, fine = divmod(abs(scale), 32)
    if scale < 0:
        return float(f"1e-{32 * coarse}") / float(f"1e{fine}")
    return float(f"1e{32 * coarse}") * float(f"1e{fine}")


def amount_of_int(value: int) -> CelQuantity:
    return CelQuantity(_Number(value * NANO_PER_UNIT, value, 0, decimal=False))


def parse_amount(text: str, *, published: bool = False) -> CelQuantity:
    """Read the text of a quantity in the form in which Kubernetes holds it.

    Raises:
        ValueError: as `parse_quantity`.

    """
    return CelQuantity(_copy(_read(text)), published=published)


@lru_cache(maxsize=2_048)
def _read(text: str) -> _Number:
    nano = parse_quantity(text)
    parts = split_quantity(text)
    whole = parts.whole.lstrip("0") or "0"
    digits = int(whole + parts.fraction)
    sign = -1 if parts.negative else 1
    if parts.binary_power is None:
        scale = parts.decimal_power - len(parts.fraction)
        if len(whole) + len(parts.fraction) <= _DECIMAL_DIGITS and scale >= _NANO_SCALE:
            return _Number(nano, sign * digits, scale, decimal=False)
    elif not parts.fraction:
        spare = _BINARY_DIGITS - len(whole) - int(parts.binary_power * 3 / 10) - 1
        value = digits << parts.binary_power
        if spare >= 0 and value <= _INT64_MAX:
            return _Number(nano, sign * value, 0, decimal=False)
    if parts.binary_power is not None and abs(nano) == BINARY_CEILING_NANO:
        return _Number(nano, sign * _INT64_MAX, 0, decimal=True)
    # Kubernetes rounds a decimal to nano-units and keeps that scale.
    return _Number(nano, nano, _NANO_SCALE, decimal=True)
