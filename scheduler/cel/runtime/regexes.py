"""Regular expressions, in linear time.

Selectors come from users, so a pattern must not stall a decision. RE2 is the only
engine. Patterns that RE2 accepts and Go's `regexp` rejects are rejected, because
Kubernetes uses Go's.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

import re2  # type: ignore[import-untyped]

from scheduler.cel.errors import EvalError
from scheduler.cel.limits import PATTERN_BYTES_MAX, PATTERN_STEPS_MAX

# RE2 matches a single byte with \\C, and Go does not. An even number of backslashes
# before it is a literal backslash.
_ANY_BYTE = re.compile(r"(?<!\\)(?:\\\\)*\\C")

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = PATTERN_BYTES_MAX


@lru_cache(maxsize=64)
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


def pattern_size(compiled: Any) -> int:
    """Return the number of instructions of a pattern, or of the attempt to compile it."""
    if not isinstance(compiled, EvalError):
        return int(compiled.programsize)
    return PATTERN_STEPS_MAX // 2 if "too large" in compiled.reason else 0


def search_steps(text: Any, pattern: Any) -> int:
    """Return the steps of compiling a pattern and searching a text."""
    if type(text) is not str or type(pattern) is not str:
        return 1
    size = pattern_size(compile_pattern(pattern))
    return 2 * size + len(pattern) + len(text) * (1 + size // 64)


def _text(error: Exception) -> str:
    detail = error.args[0] if error.args else ""
    return (
        detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
    )


def matches(text: str, pattern: str) -> bool | EvalError:
    """Return whether the pattern occurs anywhere in the text."""
    compiled = compile_pattern(pattern)
    return (
        compiled
        if isinstance(compiled, EvalError)
        else compiled.search(text) is not None
    )


def find_all(text: str, pattern: str, limit: int = -1) -> list[str] | EvalError:
    """Return the matches of the pattern, at most `limit` unless it is negative.

    As in Go, an empty match directly after another match does not count.
    """
    compiled = compile_pattern(pattern)
    if isinstance(compiled, EvalError):
        return compiled
    found: list[str] = []
    previous_end = -1
    # A search from an offset would encode the whole text again for each occurrence.
    for hit in compiled.finditer(text) if limit else ():
        start, end = hit.span()
        if end > start or start != previous_end:
            found.append(hit.group())
            if len(found) == limit:
                break
        previous_end = end
    return found


def find(text: str, pattern: str) -> str | EvalError:
    """Return the first occurrence of the pattern, or an empty string."""
    found = find_all(text, pattern, 1)
    if isinstance(found, EvalError):
        return found
    return found[0] if found else ""
