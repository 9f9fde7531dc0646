"""The values of literals, parsed from their text."""

from __future__ import annotations

import re

from scheduler.cel.runtime.values import INT64_MAX, INT64_MIN, UINT64_MAX, Uint

_ESCAPE = re.compile(
    r"\\(?:([abfnrtv\"'\\?`])|([0-3][0-7][0-7])|[xX]([0-9a-fA-F]{2})"
    r"|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8}))"
)
_NAMED = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_SURROGATES = range(0xD800, 0xE000)
_UNICODE_MAX = 0x10FFFF


def _code_point(code: int) -> str:
    if code > _UNICODE_MAX or code in _SURROGATES:
        raise ValueError(f"\\U{code:08x} is not a Unicode character")
    return chr(code)


def _text_escape(found: re.Match[str]) -> str:
    named, octal, byte, short, long = found.groups()
    if named:
        return _NAMED.get(named, named)
    return _code_point(int(octal, 8) if octal else int(byte or short or long, 16))


def _byte_escape(found: re.Match[str]) -> str:
    """Decode an escape in bytes. Each character of the result represents one byte."""
    named, octal, byte, short, long = found.groups()
    if named:
        return _NAMED.get(named, named)
    if short or long:
        raise ValueError("\\u and \\U stand for characters and cannot be used in bytes")
    return chr(int(octal, 8) if octal else int(byte, 16))


def _unquote(text: str) -> tuple[str, bool]:
    """Remove prefix and quotes, and return whether the text has escapes."""
    raw = text[0] in "rR"
    if raw:
        text = text[1:]
    quotes = 3 if text[:3] in ('"""', "'''") else 1
    # The lexer of cel-go converts every line end inside a triple-quoted string to a
    # newline.
    return text[quotes:-quotes].replace("\r\n", "\n").replace("\r", "\n"), not raw


def string(text: str) -> str:
    """Read a string constant, quotes included.

    Raises:
        ValueError: an escape names no character.

    """
    body, escapes = _unquote(text)
    return _ESCAPE.sub(_text_escape, body) if escapes and "\\" in body else body


def bytestring(text: str) -> bytes:
    """Read a bytes constant, prefix and quotes included.

    Raises:
        ValueError: an escape that bytes do not have.

    """
    body, escapes = _unquote(text[1:])
    if not escapes or "\\" not in body:
        return body.encode()
    # Escapes become bytes, and all other text becomes UTF-8, so the two are kept apart.
    parts, offset = [], 0
    for found in _ESCAPE.finditer(body):
        parts += [
            body[offset : found.start()].encode(),
            _byte_escape(found).encode("latin-1"),
        ]
        offset = found.end()
    return b"".join([*parts, body[offset:].encode()])


def integer(text: str) -> int:
    """Read an int constant, sign included.

    Raises:
        ValueError: it does not fit 64 bits.

    """
    value = _whole(text)
    if not INT64_MIN <= value <= INT64_MAX:
        raise ValueError("this number does not fit a 64-bit int")
    return value


def unsigned(text: str) -> Uint:
    """Read a uint constant, suffix included.

    Raises:
        ValueError: it does not fit 64 bits.

    """
    value = _whole(text[:-1])
    if value > UINT64_MAX:
        raise ValueError("this number does not fit a 64-bit uint")
    return Uint(value)


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    hexadecimal = digits.startswith("0x")
    significant = (digits[2:] if hexadecimal else digits).lstrip("0") or "0"
    # Python refuses to read thousands of digits, and at most twenty matter.
    value = int(significant[:25], 16 if hexadecimal else 10)
    return -value if text.startswith("-") else value


def double(text: str) -> float:
    """Read a double constant, sign included.

    Raises:
        ValueError: it is too large for a double.

    """
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError("this number is too large for a double")
    return value
