"""Digests of JSON: equal content has an equal digest in every process.

Objects on clusters and the state of running workflows contain these digests, so the
hashed bytes must never change. Therefore there are two formats: another serialization
of the same content would restart every pod, or repeat every report.
"""

import hashlib
import json
from typing import Any

_SHORT = 16


def content_hash(value: Any) -> str:
    """Return the SHA-256 in hex of the shortest form of the JSON, with sorted keys."""
    return _sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    )


def short_hash(value: Any) -> str:
    """Return the first 16 hex digits of the content hash, to detect changes."""
    return content_hash(value)[:_SHORT]


def report_digest(report: Any) -> str:
    """Return 16 hex digits over a message between entities, with sorted keys.

    The digest is compared with the digest of the last message.
    """
    return _sha256(json.dumps(report, sort_keys=True))[:_SHORT]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
