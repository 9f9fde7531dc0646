"""A quantity as Kubernetes holds it, which is more than its value.

Kubernetes keeps a quantity either as a 64-bit number with a power of ten or as a big decimal, depending on how it was written.
The value is the same, but `isInteger()` and `asInteger()` only look at the first form: `quantity("1.5Gi").isInteger()` is false
on a real cluster. A selector that asks must get the cluster's answer, so the form is carried along.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from scheduler.quantity import BINARY_CEILING_NANO, NANO_PER_UNIT, parse_quantity, split_quantity

_INT64_MAX = 2**63 - 1
_INT64_MIN = -(2**63)

# Digits that Kubernetes trusts to fit its 64-bit form without trying, decimal and binary.
_DECIMAL_DIGITS = 18
_BINARY_DIGITS = 15
_NANO_SCALE = -9

# Powers of ten that a double can hold.
_POWER_MAX = 308
_POWER_MIN = -323


@dataclass(frozen=True, slots=True, eq=False)
class Amount:
    """A quantity; equality and hash are by value.

    Attributes:
        nano: value in nano-units.
        unscaled: digits of the 64-bit form, or of the decimal.
        scale: power of ten they are multiplied with.
        small: whether the 64-bit form holds it.

    """

    nano: int
    unscaled: int
    scale: int
    small: bool

    def __eq__(self, other: object) -> bool:
        return self.nano == other.nano if isinstance(other, Amount) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.nano)

    def __str__(self) -> str:
        whole, rest = divmod(abs(self.nano), NANO_PER_UNIT)
        return f"{'-' if self.nano < 0 else ''}{whole}" + (f".{rest:09}".rstrip("0") if rest else "")

    def as_int64(self) -> int | None:
        """The value as a 64-bit integer, or None if Kubernetes would not say."""
        if not self.small or self.scale < 0:
            return None
        value = self.unscaled * 10**self.scale
        return value if _INT64_MIN <= value <= _INT64_MAX else None

    def as_float(self) -> float:
        """The nearest double, computed in the same two steps as Kubernetes does."""
        try:
            base = float(self.unscaled)
        except OverflowError:
            base = math.copysign(math.inf, self.unscaled)
        if self.scale == 0:
            return base
        return base * _power_of_ten(self.scale)

    def plus(self, other: Amount) -> Amount:
        """The sum."""
        if self.small and other.small:
            if other.unscaled == 0:
                return self
            if self.unscaled == 0:
                return other
            scale = min(self.scale, other.scale)
            left = self.unscaled * 10 ** (self.scale - scale)
            right = other.unscaled * 10 ** (other.scale - scale)
            if all(_INT64_MIN <= part <= _INT64_MAX for part in (left, right, left + right)):
                return Amount(self.nano + other.nano, left + right, scale, small=True)
        scale = min(self.scale, other.scale)
        unscaled = self.unscaled * 10 ** (self.scale - scale) + other.unscaled * 10 ** (other.scale - scale)
        return Amount(self.nano + other.nano, unscaled, scale, small=False)

    def negated(self) -> Amount:
        """The same amount with the other sign."""
        return Amount(-self.nano, -self.unscaled, self.scale, self.small)


def _power_of_ten(scale: int) -> float:
    """Work out 10^scale as Go does, from two table entries: above 10^31 that is not always the nearest double."""
    if scale > _POWER_MAX:
        return math.inf
    if scale < _POWER_MIN:
        return 0.0
    coarse, fine = divmod(abs(scale), 32)
    if scale < 0:
        return float(f"1e-{32 * coarse}") / float(f"1e{fine}")
    return float(f"1e{32 * coarse}") * float(f"1e{fine}")


def amount_of_int(value: int) -> Amount:
    """A whole number as a quantity."""
    return Amount(value * NANO_PER_UNIT, value, 0, small=True)


@lru_cache(maxsize=16_384)
def parse_amount(text: str) -> Amount:
    """Read quantity text together with the form Kubernetes would give it.

    Raises:
        ValueError: as `parse_quantity`.

    """
    nano = parse_quantity(text)
    if text == "0":
        return Amount(0, 0, 0, small=True)
    parts = split_quantity(text)
    whole = parts.whole.lstrip("0") or "0"
    digits = int(whole + parts.fraction)
    sign = -1 if parts.negative else 1
    if parts.binary_power is None:
        scale = parts.decimal_power - len(parts.fraction)
        if len(whole) + len(parts.fraction) <= _DECIMAL_DIGITS and scale >= _NANO_SCALE:
            return Amount(nano, sign * digits, scale, small=True)
    elif not parts.fraction:
        spare = _BINARY_DIGITS - len(whole) - int(parts.binary_power * 3 / 10) - 1
        value = digits << parts.binary_power
        if spare >= 0 and value <= _INT64_MAX:
            return Amount(nano, sign * value, 0, small=True)
    if parts.binary_power is not None and abs(nano) == BINARY_CEILING_NANO:
        return Amount(nano, sign * _INT64_MAX, 0, small=False)
    # Kubernetes rounds a decimal to nano-units and keeps that scale.
    return Amount(nano, nano, _NANO_SCALE, small=False)
