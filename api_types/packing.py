"""Compression of what would be too large as JSON: the carried state of the scheduler, and the pages of its ledger that a query gives."""

import base64
import json
import zlib
from typing import Any


def pack(value: Any) -> str:
    """Compress a JSON tree into text."""
    return base64.b85encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 6)).decode()


def unpack(text: str) -> Any:
    """Give back what `pack` took; None for an empty text."""
    return json.loads(zlib.decompress(base64.b85decode(text))) if text else None


def pack_bytes(data: bytes) -> str:
    """Write bytes as text."""
    return base64.b85encode(data).decode()


def unpack_bytes(text: str) -> bytes:
    """Give back what `pack_bytes` took."""
    return base64.b85decode(text)
