"""Remove secrets from text of servers and libraries.

Servers quote requests. Text that resembles a key, a token or a kubeconfig value is
replaced before it can reach an error, because a workflow's history keeps errors.
"""

import re

_PATTERNS = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]*)?"),
    re.compile(r"\bk8s-aws-v1\.[A-Za-z0-9_=-]+"),
    re.compile(r"\b(hf|gh[opsu]|sk|xox[abp])[_-][A-Za-z0-9_-]{16,}"),
    # PEM in base64, as in kubeconfigs.
    re.compile(r"\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]+"),
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}"),
)
_LENGTH_MAX = 2000
# Only this much text is searched, because text of a server has no limit.
_SEARCHED_MAX = 16_384


def redact(text: str) -> str:
    """Replace text that resembles a credential, and shorten it for a workflow history."""
    if len(text) > _SEARCHED_MAX:
        # Drop the last word, which may be a part of a credential that no pattern
        # matches.
        text = text[:_SEARCHED_MAX].rsplit(None, 1)[0]
    for pattern in _PATTERNS:
        text = pattern.sub("[redacted]", text)
    return text if len(text) <= _LENGTH_MAX else f"{text[:_LENGTH_MAX]} ..."
