"""Content digests: equal content, equal text, in every process and every year."""

import hashlib
import json
from typing import Any

_BYTES = 16


def digest_of(tree: Any) -> str:
    """Give 32 hex digits over a JSON tree; keys are sorted, so the order of maps never matters."""
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_BYTES).hexdigest()
