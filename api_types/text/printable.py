"""Make text from outside safe for a terminal, a condition or an event."""

import re

_TWO_DIGITS_MAX = 0xFF
# Control characters (C0, DEL, C1), characters that change the text direction or end a
# line invisibly, and halves of surrogate pairs.
_CONTROL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def escaped(text: str, keep: str = "") -> str:
    """Escape characters that a terminal would obey or hide, except those in `keep`."""
    return _CONTROL.sub(
        lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text
    )


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code <= _TWO_DIGITS_MAX else f"\\u{code:04x}"
