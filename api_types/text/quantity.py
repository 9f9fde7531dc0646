"""Kubernetes quantity text as exact integers.

Memory and core counts of devices are compared with the requests of users, so `80Gi`
must have exactly the value that the workload cluster's allocator reads. Kubernetes
keeps a quantity to the nano-unit and rounds away from zero. Here a quantity *is* its
number of nano-units, which makes comparison and addition plain integer arithmetic
without loss of precision.

Two texts that Kubernetes accepts are rejected on purpose: a bare suffix or sign (`Mi`,
which Kubernetes reads as 0 and people as a typo), and an exponent beyond 4,096, whose
digits alone would be a denial of service.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

NANO_PER_UNIT = 10**9
_NANO_DIGITS = 9

INT64_MAX = 2**63 - 1

# A quantity with a binary suffix saturates here; decimal forms of any size are kept
# whole.
BINARY_CEILING_NANO = INT64_MAX * NANO_PER_UNIT

# Far beyond any hardware, and small enough for a cheap power of ten.
_EXPONENT_MAX = 4096

# Texts in manifests have at most 32 characters. A selector may contain longer texts,
# but Python refuses to read much longer numbers.
_TEXT_CHARACTERS_MAX = 4_096
# The length of an excerpt in an error.
_SHOWN_MAX = 40

_BINARY_POWERS = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL_POWERS = {
    "n": -9,
    "u": -6,
    "m": -3,
    "": 0,
    "k": 3,
    "M": 6,
    "G": 9,
    "T": 12,
    "P": 15,
    "E": 18,
}

# `[0-9]` instead of `\d` and `\Z` instead of `$`: only ASCII digits count, and a
# trailing newline is part of the text.
_QUANTITY = re.compile(
    r"([+-]?)(?:([0-9]+)(?:\.([0-9]*))?|\.([0-9]+))([a-zA-Z]*|[eE][+-]?[0-9]+)\Z"
)
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_LOOKS_LIKE_BYTES = re.compile(r"([+-]?[0-9.]+)\s*([kKmMgGtTpPeE])(?:[iI]?[bBoO]?)\Z")


# Texts that Kubernetes accepts although they contain no number: signs, dots and
# suffixes alone.
_WITHOUT_DIGITS = re.compile(r"[+-]?\.?(?:[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?\Z")


class DeclinedQuantity(ValueError):
    """A text that Kubernetes accepts and this package rejects on purpose."""


def _complaint(text: str) -> ValueError:
    """Return the error for `text`, with a guess at the intended text if there is one."""
    if not text:
        return ValueError(
            "an empty text is not a Kubernetes quantity; "
            "write a number with an optional suffix, such as 80Gi"
        )
    shown = text if len(text) <= _SHOWN_MAX else f"{text[: _SHOWN_MAX - 3]}..."
    hint = "write a number with an optional suffix, such as 80Gi, 80G or 500m"
    guess = _LOOKS_LIKE_BYTES.match(text.strip())
    if guess:
        number, letter = guess.groups()
        decimal = "k" if letter in "kK" else letter.upper()
        hint = f"did you mean {number}{decimal} or {number}{letter.upper()}i?"
    declined = len(text) > _TEXT_CHARACTERS_MAX or _WITHOUT_DIGITS.match(text)
    return (DeclinedQuantity if declined else ValueError)(
        f"{shown!r} is not a Kubernetes quantity; {hint}"
    )


def _scaled(digits: int, exponent: int) -> int:
    """Return `digits` x 10^`exponent`, rounded up. `digits` is not negative."""
    if exponent >= 0:
        return digits * int(10**exponent)
    return -(-digits // int(10**-exponent))


class QuantityParts(NamedTuple):
    """The parts of a quantity, before its computation.

    Attributes:
        negative: whether it has a minus sign.
        whole: the digits before the dot, perhaps none.
        fraction: the digits after the dot, perhaps none.
        binary_power: the power of two of a binary suffix, else None.
        decimal_power: the power of ten of any other suffix or exponent.

    """

    negative: bool
    whole: str
    fraction: str
    binary_power: int | None
    decimal_power: int


def split_quantity(text: str) -> QuantityParts:
    """Split a Kubernetes quantity into its parts.

    Raises:
        ValueError: the text is not a quantity, or its exponent is outside +-4,096.

    """
    found = _QUANTITY.match(text) if len(text) <= _TEXT_CHARACTERS_MAX else None
    if found is None:
        raise _complaint(text)
    sign, whole, fraction, bare_fraction, suffix = found.groups()
    digits = (sign == "-", whole or "", fraction or bare_fraction or "")
    if suffix in _BINARY_POWERS:
        return QuantityParts(*digits, _BINARY_POWERS[suffix], 0)
    if suffix in _DECIMAL_POWERS:
        return QuantityParts(*digits, None, _DECIMAL_POWERS[suffix])
    exponent = _EXPONENT.match(suffix)
    if exponent is None:
        raise _complaint(text)
    written = exponent.group(1)
    # Check the length first: the conversion of a million digits would already do the
    # harm.
    if (
        len(written.lstrip("+-").lstrip("0")) > len(str(_EXPONENT_MAX))
        or abs(int(written)) > _EXPONENT_MAX
    ):
        raise DeclinedQuantity(
            f"the exponent of {text[:_SHOWN_MAX]!r} lies outside "
            f"-{_EXPONENT_MAX} to {_EXPONENT_MAX}; write a smaller one"
        )
    return QuantityParts(*digits, None, int(written))


@lru_cache(maxsize=2_048)
def parse_quantity(text: str) -> int:
    """Parse a Kubernetes quantity.

    Args:
        text: for example `80Gi`, `1.5G`, `500m`, `1e3`.

    Returns:
        The value in nano-units (10^-9), rounded away from zero. With a binary suffix it
        saturates at +-(2^63-1) units.

    Raises:
        ValueError: the text is not a quantity, or its exponent is outside +-4,096.

    """
    parts = split_quantity(text)
    digits = int(parts.whole + parts.fraction)
    scale = _NANO_DIGITS - len(parts.fraction)
    if parts.binary_power is None:
        magnitude = _scaled(digits, scale + parts.decimal_power)
    else:
        magnitude = min(
            _scaled(digits << parts.binary_power, scale), BINARY_CEILING_NANO
        )
    return -magnitude if parts.negative else magnitude


def times(text: str, factor: int) -> str:
    """Return a quantity multiplied by a whole number, with the same suffix.

    Raises:
        ValueError: the text is not a quantity.

    """
    parse_quantity(text)
    found = _QUANTITY.match(text)
    if found is None:
        raise ValueError(text)
    sign, whole, decimals, bare_decimals, suffix = found.groups()
    digits = decimals or bare_decimals or ""
    number = int(f"{whole or ''}{digits}") * factor
    shown = str(number)
    if digits:
        shown = shown.rjust(len(digits) + 1, "0")
        shown = f"{shown[: -len(digits)]}.{shown[-len(digits) :]}"
    return f"{sign}{shown}{suffix}"
