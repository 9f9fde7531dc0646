"""Similar names for a mistyped attribute, label, class or priority class."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

# Limits on the search: the compared prefix of a name, the number of names, and the
# number of character pairs (0.2 µs each). Beyond the limits no similar name is
# suggested.
_LENGTH_MAX = 64
_NAMES_MAX = 1_000
_PAIRS_MAX = 200_000
# A name is near if at most every third character differs, or if one name contains the
# other and the shorter one has at least this many characters.
_PART_OF_LENGTH = 3
_CONTAINED_MIN = 3


def by_nearness(name: str, candidates: Iterable[str]) -> list[str]:
    """Sort candidates by edit distance to a name, then by name."""
    return sorted(
        set(candidates),
        key=lambda other: (not _contained(name, other), _distance(name, other), other),
    )


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the nearest name, or "" if none is near."""
    known = list(islice(candidates, _NAMES_MAX + 1))
    if len(known) > _NAMES_MAX:
        return ""
    possible = [
        other
        for other in known
        if other != name and (_contained(name, other) or _is_as_long(name, other))
    ]
    length = sum(min(len(other), _LENGTH_MAX) for other in possible)
    if length * min(len(name), _LENGTH_MAX) > _PAIRS_MAX:
        return ""
    near = [other for other in possible if _is_near(name, other)]
    return by_nearness(name, near)[0] if near else ""


def _is_near(name: str, other: str) -> bool:
    if _contained(name, other):
        return True
    return _is_as_long(name, other) and _distance(name, other) * _PART_OF_LENGTH <= max(
        len(name), len(other)
    )


def _is_as_long(name: str, other: str) -> bool:
    """Return whether the lengths allow the names to be near.

    The difference in length is a lower bound of the edit distance.
    """
    return abs(len(name) - len(other)) * _PART_OF_LENGTH <= max(len(name), len(other))


def _contained(name: str, other: str) -> bool:
    short, long = sorted(
        (name[:_LENGTH_MAX].lower(), other[:_LENGTH_MAX].lower()), key=len
    )
    return len(short) >= _CONTAINED_MIN and short in long


def _distance(name: str, other: str) -> int:
    """Return the edit distance, ignoring case.

    Insertions, deletions, replacements and swaps of neighbouring characters cost 1
    each.
    """
    left, right = name[:_LENGTH_MAX].lower(), other[:_LENGTH_MAX].lower()
    before: list[int] = []
    row = list(range(len(right) + 1))
    for i, a in enumerate(left, 1):
        last, row, older = row, [i], before
        for j, b in enumerate(right, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and (a, left[i - 2]) == (right[j - 2], b):
                best = min(best, older[j - 2] + 1)
            row.append(best)
        before = last
    return row[-1]
