"""Functions on text, and on lists of text. Positions count characters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scheduler.cel.errors import EvalError
from scheduler.cel.runtime import regexes
from scheduler.cel.runtime.values import equal, no_overload

_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}

# White space in Unicode. Python's definition has four more separators, which Go does
# not trim.
_SPACE = (
    "\t\n\v\f\r \x85\xa0\u1680"
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)


def _on_text(function: Callable[..., Any], texts: int) -> Callable[..., Any]:
    """Call `function` only if the first `texts` are strings and the others ints."""

    def guarded(*args: Any) -> Any:
        for position, arg in enumerate(args):
            if type(arg) is not (str if position < texts else int):
                return no_overload(*args)
        return function(*args)

    return guarded


def _outside(position: int) -> EvalError:
    return EvalError(f"index out of range: {position}")


def _char_at(text: str, position: int) -> Any:
    return (
        text[position : position + 1]
        if 0 <= position <= len(text)
        else _outside(position)
    )


def _index_of(text: str, part: str, offset: int = 0) -> Any:
    if not part:
        return offset
    if offset < 0:
        return _outside(offset)
    return text.find(part, offset)


def _last_index_of(text: str, part: str, offset: int | None = None) -> Any:
    if offset is None:
        return text.rfind(part)
    if not part:
        return offset
    if offset < 0:
        return _outside(offset)
    if offset >= len(text):
        return -1
    return text.rfind(part, 0, offset + len(part))


def _substring(text: str, start: int, end: int | None = None) -> Any:
    if end is not None and start > end:
        return EvalError(f"invalid substring range. start: {start}, end: {end}")
    for position in (start, len(text) if end is None else end):
        if not 0 <= position <= len(text):
            return _outside(position)
    return text[start:end]


def _split(text: str, separator: str, limit: int = -1) -> Any:
    if limit == 0:
        return []
    if separator:
        return text.split(separator, limit - 1 if limit > 0 else -1)
    if limit < 0 or limit >= len(text):
        return list(text)
    return [*text[: limit - 1], text[limit - 1 :]]


def _replace(text: str, old: str, new: str, limit: int = -1) -> Any:
    return text.replace(old, new, limit if limit >= 0 else -1)


def _join(parts: Any, separator: Any = "") -> Any:
    if (
        type(parts) is not list
        or type(separator) is not str
        or any(type(part) is not str for part in parts)
    ):
        return EvalError("no such overload: join takes a list of strings and a string")
    return separator.join(parts)


def _in_text_or_list(in_text: Callable[..., Any], *, last: bool) -> Callable[..., Any]:
    def find(container: Any, *rest: Any) -> Any:
        if type(container) is not list or len(rest) > 1:
            return in_text(container, *rest)
        positions = range(len(container))
        for position in reversed(positions) if last else positions:
            if equal(container[position], rest[0]) is True:
                return position
        return -1

    return find


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "contains": _on_text(lambda text, part: part in text, 2),
    "startsWith": _on_text(str.startswith, 2),
    "endsWith": _on_text(str.endswith, 2),
    "charAt": _on_text(_char_at, 1),
    "indexOf": _in_text_or_list(_on_text(_index_of, 2), last=False),
    "lastIndexOf": _in_text_or_list(_on_text(_last_index_of, 2), last=True),
    "substring": _on_text(_substring, 1),
    "split": _on_text(_split, 2),
    "replace": _on_text(_replace, 3),
    "join": _join,
    "lowerAscii": _on_text(lambda text: text.translate(_LOWER), 1),
    "upperAscii": _on_text(lambda text: text.translate(_UPPER), 1),
    "trim": _on_text(lambda text: text.strip(_SPACE), 1),
    "matches": _on_text(regexes.matches, 2),
    "find": _on_text(regexes.find, 2),
    "findAll": _on_text(regexes.find_all, 2),
}
