"""Regular expressions, in linear time.

Selectors come from users, so a pattern must not be able to stall a decision: RE2 is the only engine, and where its syntax is
wider than that of Go's `regexp`, which Kubernetes uses, the pattern is refused.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from scheduler.cel.errors import EvalError

# RE2 matches a single byte with \\C; Go does not know it. An even number of backslashes before it means a literal backslash.
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=4_096)
def compile_pattern(pattern: str) -> Any:
    """Compile a pattern.

    Returns:
        The compiled pattern, or an error value if Go would not compile it.

    """
    if _ANY_BYTE.search(pattern):
        return EvalError("invalid regular expression: \\C is not supported")
    try:
        return re2.compile(pattern, options=_OPTIONS)
    except re2.error as error:
        return EvalError(f"invalid regular expression: {_text(error)}")


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)


def matches(text: str, pattern: str) -> bool | EvalError:
    """Whether the pattern occurs anywhere in the text."""
    compiled = compile_pattern(pattern)
    return compiled if isinstance(compiled, EvalError) else compiled.search(text) is not None


def find_all(text: str, pattern: str, limit: int = -1) -> list[str] | EvalError:
    """The occurrences of the pattern from left to right, at most `limit` unless that is negative.

    As in Go, an empty occurrence right behind another one does not count.
    """
    compiled = compile_pattern(pattern)
    if isinstance(compiled, EvalError):
        return compiled
    found: list[str] = []
    offset, previous_end = 0, -1
    while offset <= len(text) and (limit < 0 or len(found) < limit):
        hit = compiled.search(text, offset)
        if hit is None:
            break
        start, end = hit.span()
        if end > start or start != previous_end:
            found.append(text[start:end])
        previous_end = end
        offset = end if end > offset else end + 1
        if end == start:
            offset = end + 1
    return found


def find(text: str, pattern: str) -> str | EvalError:
    """The first occurrence of the pattern, or an empty string."""
    found = find_all(text, pattern, 1)
    if isinstance(found, EvalError):
        return found
    return found[0] if found else ""
