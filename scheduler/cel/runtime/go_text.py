"""Text as Go programs write it."""

from __future__ import annotations

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}
_ASCII_MAX = 0x7F
_SHORT_MAX = 0xFFFF


def quoted(text: str) -> str:
    """Quote text as Go's `%q` does."""
    return f'"{"".join(map(_escaped, text))}"'


def cel_quoted(text: str) -> str:
    """Quote text as `strings.quote` does, which escapes no other characters."""
    escaped = "".join(_ESCAPES.get(character, character) for character in text)
    return f'"{escaped}"'


def _escaped(character: str) -> str:
    known = _ESCAPES.get(character)
    if known is not None:
        return known
    if character.isprintable():
        return character
    code = ord(character)
    if code <= _ASCII_MAX:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= _SHORT_MAX else f"\\U{code:08x}"
