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


def patch_between(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the patch that changes one object into another, which has no null values.

    A changed list is replaced as a whole.
    """
    patch: dict[str, Any] = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            if below := patch_between(known, value):
                patch[key] = below
        elif key not in before or known != value:
            patch[key] = value
    return patch
