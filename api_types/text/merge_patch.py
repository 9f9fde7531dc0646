"""JSON merge patches (RFC 7386)."""

from typing import Any


def merged(target: Any, patch: Any) -> Any:
    """Merge a patch into a copy: null removes, objects merge, other values replace."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merged(result.get(key), value)
    return result
