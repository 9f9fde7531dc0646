"""Remove secrets from text of servers and libraries.

Servers quote what they were sent. Whatever looks like a key, a token or a kubeconfig value is replaced before it can reach an error,
because errors are kept in a workflow's history.
"""

import re

_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?"),
    re.compile(r"\bk8s-aws-v1\.[A-Za-z0-9_=-]+"),
    re.compile(r"\b(hf|gh[opsu]|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}"),
    # PEM in base64, as kubeconfigs carry it.
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+"),
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
)
_LENGTH_MAX = 2000
# Patterns are searched in so much: what a server sends has no such limit.
_SEARCHED_MAX = 16_384


def redact(text: str) -> str:
    """Replace what looks like a credential, and cut the text to a length that fits into a history."""
    if len(text) > _SEARCHED_MAX:
        # Without the last word, which may be a part of a credential that no pattern matches.
        text = text[:_SEARCHED_MAX].rsplit(None, 1)[0]
    for pattern in _PATTERNS:
        text = pattern.sub("[redacted]", text)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]} ..."
