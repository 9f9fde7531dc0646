"""Remove what was sent as a credential from what came back.

A server may quote the request in its answer. Its own credential is known, so it is found whatever it looks like; what only looks like a
credential is removed from errors of API servers by `clients/kubernetes/redact.py`.
"""

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import quote

REDACTED = "[redacted]"
# A shorter one is no secret, and would be found in many words.
_CHARACTERS_MIN = 8


def without_credential(text: str, authorization: str) -> str:
    """Give a text without the credential of an Authorization header, and without the password in one of scheme Basic."""
    for value in _values(authorization):
        for form in dict.fromkeys((value, quote(value, safe=""), base64.b64encode(value.encode()).decode().rstrip("="))):
            text = text.replace(form, REDACTED)
    return text


def _values(authorization: str) -> Iterator[str]:
    scheme, _, value = authorization.partition(" ")
    found = [value]
    if scheme.lower() == "basic":
        try:
            login = base64.b64decode(value).decode()
            found += [login, login.partition(":")[2]]
        except (binascii.Error, UnicodeDecodeError):
            pass
    yield from (one for one in found if len(one) >= _CHARACTERS_MIN)
