"""Content digests: equal content gives equal text in every process and release."""

import hashlib
import json
from typing import Any

_BYTES = 16


def digest_of(tree: Any) -> str:
    """Return 32 hex digits over a JSON tree; the order of keys does not matter."""
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=_BYTES
    ).hexdigest()
