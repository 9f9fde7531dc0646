"""Digests of JSON: equal content gives equal text, in every process.

Objects on clusters and the state of running workflows hold these digests, so the bytes that are hashed never change. That is why there are
two: another text of the same content would restart every pod, or repeat every report.
"""

import hashlib
import json
from typing import Any

_SHORT = 16


def content_hash(value: Any) -> str:
    """Give 64 hex digits over JSON in its shortest form; keys are sorted."""
    return _sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False))


def short_hash(value: Any) -> str:
    """Give the first 16 digits of the content hash, for what is only compared with its predecessor."""
    return content_hash(value)[:_SHORT]


def report_digest(report: Any) -> str:
    """Give 16 hex digits over a message between entities, to compare it with the one before; keys are sorted."""
    return _sha256(json.dumps(report, sort_keys=True))[:_SHORT]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
