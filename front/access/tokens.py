"""Extracts the token from the headers of a request."""

import base64
from collections.abc import Callable, Sequence

API_KEY = "X-Api-Key"
"""The header in which KEDA's metrics-api scaler sends a token."""
_BASIC_MAX = 8192

Token = Callable[[Sequence[str], Sequence[str]], str | None]
"""Returns the token from the Authorization headers and API keys.

It returns None without a token, and an empty string for ambiguous headers.
"""


def bearer_token(authorization: Sequence[str], api_keys: Sequence[str]) -> str | None:
    """Return a bearer token, which Kubernetes clients send."""
    del api_keys
    if not authorization:
        return None
    scheme, value = _only(authorization)
    return value if scheme == "bearer" else ""


def any_token(authorization: Sequence[str], api_keys: Sequence[str]) -> str | None:
    """Return a bearer token, a basic authentication password, or an API key.

    Autoscalers send one of these three.
    """
    if api_keys:
        return api_keys[0].strip() if len(api_keys) == 1 and not authorization else ""
    scheme, value = _only(authorization)
    if scheme != "basic":
        return bearer_token(authorization, ())
    try:
        _, _, password = (
            base64.b64decode(value[:_BASIC_MAX], validate=True).decode().partition(":")
        )
    except ValueError:
        return ""
    return password


def _only(headers: Sequence[str]) -> tuple[str, str]:
    if len(headers) != 1:
        return "", ""
    scheme, _, value = headers[0].partition(" ")
    return scheme.lower(), value.strip()
