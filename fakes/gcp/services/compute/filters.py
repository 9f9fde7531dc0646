"""The filters of compute's lists that this project uses: comparisons joined by AND."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from fakes.gcp.calls.errors import invalid

_TERM = re.compile(
    r"""\(?\s*([A-Za-z][\w.\-]*)\s*(=|!=|:|eq\b|ne\b)\s*("[^"]*"|'[^']*'|[^\s()]+)\s*\)?"""
)


def matcher(text: str) -> Callable[[Mapping[str, Any]], bool]:
    """Return whether an object matches a filter.

    An empty one matches all. `=` and `!=` compare, `:` finds a part or with `*` any
    value, `eq` and `ne` match an expression that covers the whole value. Raise
    CloudError INVALID_ARGUMENT for other filters.
    """
    terms = []
    at = 0
    text = text.strip()
    while at < len(text):
        found = _TERM.match(text, at)
        if found is None:
            raise invalid(
                f"Invalid value for field 'filter': '{text}'. The fake knows "
                "comparisons joined by AND."
            )
        terms.append((found[1], found[2], found[3].strip("\"'")))
        at = found.end()
        joined = re.compile(r"\s*(AND\b)?\s*").match(text, at)
        at = joined.end() if joined else at
    return lambda item: all(_holds(item, *term) for term in terms)


def _holds(item: Mapping[str, Any], field: str, operator: str, wanted: str) -> bool:
    value: Any = item
    for part in field.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    text = (
        ""
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else str(value)
    )
    if operator == "=":
        return text == wanted
    if operator == "!=":
        return text != wanted
    if operator == ":":
        return value is not None if wanted == "*" else wanted.strip("*") in text
    return (re.fullmatch(wanted, text) is not None) == (operator == "eq")
