"""Remove a request's credential from the text of its response.

A server may quote the request in its response. The exact credential of the request is
known, so it is removed whatever its format. `clients/kubernetes/redact.py` removes text
that only resembles a credential from errors of API servers.
"""

import base64
import binascii
from collections.abc import Iterator
from urllib.parse import quote

REDACTED = "[redacted]"
# A shorter value is not a secret, and would match parts of many words.
_CHARACTERS_MIN = 8


def without_credential(text: str, authorization: str) -> str:
    """Return a text without the credential of an Authorization header.

    Also remove the password of a header with scheme Basic.
    """
    for value in _values(authorization):
        encoded = base64.b64encode(value.encode()).decode().rstrip("=")
        for form in dict.fromkeys((value, quote(value, safe=""), encoded)):
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
