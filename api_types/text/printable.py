"""Show text of others in a terminal, a condition or an event."""

import re

# Controls (C0, DEL, C1), what changes the direction of text or ends a line unseen, and halves of surrogate pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def escaped(text: str, keep: str = "") -> str:
    """Show characters that a terminal would obey, or not show, as escapes; those in `keep` stay."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _escape(ord(found[0])), text)


def _escape(code: int) -> str:
    return f"\\u{code:04x}" if code.bit_length() > 8 else f"\\x{code:02x}"  # noqa: PLR2004 - two digits are eight bits
