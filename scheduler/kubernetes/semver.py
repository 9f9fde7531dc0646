"""Semantic versions, parsed as strictly as by Kubernetes.

A DRA attribute of type `version` and the selectors that compare it follow semver.org
2.0.0: `9.0` is not a version, and build metadata never affects the order. If this
parser accepted more than the workload cluster, a replica would be pinned to a pool
where no claim is ever allocated. So it checks every rule of the strict form. The only
lenient form is CEL's own, `semver(text, true)`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache, total_ordering

UINT64_MAX = 2**64 - 1

_NUMBER = re.compile(r"(?:0|[1-9][0-9]*)\Z")
_IDENTIFIER = re.compile(r"[0-9A-Za-z-]+\Z")
_PARTS = 3

# A pre-release identifier as Python compares it: numbers below words, numbers by value,
# words by ASCII.
_Key = tuple[int, int, str]


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class SemanticVersion:
    """A version; equality and order follow precedence, so build metadata is ignored.

    Attributes:
        major: first number, 0 to 2^64-1.
        minor: second number, same range.
        patch: third number, same range.
        prerelease: identifiers between `-` and `+`, in order.
        build: identifiers after `+`, in order.

    """

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...] = ()
    build: tuple[str, ...] = ()
    _precedence: tuple[int, int, int, bool, tuple[_Key, ...]] = field(
        init=False, repr=False
    )

    def __post_init__(self) -> None:
        """Compute the precedence once, because versions are often compared."""
        keys = tuple(
            (0, int(part), "") if part.isdigit() else (1, 0, part)
            for part in self.prerelease
        )
        object.__setattr__(
            self, "_precedence", (self.major, self.minor, self.patch, not keys, keys)
        )

    def __eq__(self, other: object) -> bool:
        return (
            self._precedence == other._precedence
            if isinstance(other, SemanticVersion)
            else NotImplemented
        )

    def __lt__(self, other: SemanticVersion) -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)

    def __str__(self) -> str:
        text = f"{self.major}.{self.minor}.{self.patch}"
        text += f"-{'.'.join(self.prerelease)}" if self.prerelease else ""
        return text + (f"+{'.'.join(self.build)}" if self.build else "")


def _number(text: str, whole: str, part: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(
            f"{whole!r} is not a semantic version: its {part} {text!r} is not a plain "
            "number without leading zeros"
        )
    # 2^64-1 has twenty digits, so a longer text is rejected without conversion.
    if len(text) > len(str(UINT64_MAX)) or int(text) > UINT64_MAX:
        raise ValueError(
            f"{whole!r} is not a semantic version: its {part} does not fit 64 bits"
        )
    return int(text)


def _identifiers(text: str, whole: str, what: str) -> tuple[str, ...]:
    parts = tuple(text.split("."))
    for part in parts:
        if not _IDENTIFIER.match(part):
            problem = (
                "has an empty identifier"
                if not part
                else f"identifier {part!r} may hold only letters, digits and '-'"
            )
            raise ValueError(
                f"{whole!r} is not a semantic version: its {what} {problem}"
            )
    return parts


def _normalised(text: str) -> str:
    """Return the strict spelling of a lax version.

    The strict spelling has no `v`, three numbers and no leading zeros. The strict reader
    rejects text that is still no version. An empty third part becomes 0, as in
    Kubernetes.
    """
    parts = text.removeprefix("v").split(".", _PARTS - 1)
    for position, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[position] = stripped if "0" <= stripped[:1] <= "9" else f"0{stripped}"
    if len(parts) < _PARTS and any(mark in parts[-1] for mark in "+-"):
        raise ValueError(
            f"{text!r} is not a semantic version: "
            "a short version may not carry a pre-release or build"
        )
    return ".".join(parts + ["0"] * (_PARTS - len(parts)))


@lru_cache(maxsize=256)  # one of 10 KiB takes a quarter of a MiB
def parse_version(text: str, normalise: bool = False) -> SemanticVersion:
    """Read a semantic version.

    Args:
        text: `major.minor.patch[-pre-release][+build]`.
        normalise: also accept one leading `v`, missing minor and patch, and leading
            zeros in the three numbers.

    Returns:
        The version; build metadata is kept for display.

    Raises:
        ValueError: the text is not a version; the message names the part.

    """
    strict = _normalised(text) if normalise else text
    rest, plus, build_text = strict.partition("+")
    numbers_text, dash, prerelease_text = rest.partition("-")
    numbers = numbers_text.split(".")
    if len(numbers) != _PARTS:
        raise ValueError(
            f"{text!r} is not a semantic version; write major.minor.patch, such as 9.0.0"
        )
    major, minor, patch = (
        _number(part, text, what)
        for part, what in zip(numbers, ("major", "minor", "patch"), strict=True)
    )
    prerelease = _identifiers(prerelease_text, text, "pre-release") if dash else ()
    build = _identifiers(build_text, text, "build metadata") if plus else ()
    for part in prerelease:
        if part.isdigit():
            _number(part, text, "pre-release number")
    return SemanticVersion(major, minor, patch, prerelease, build)
