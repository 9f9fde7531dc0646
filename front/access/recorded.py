"""The name of a user as objects record it."""

import hashlib

NAME_MAX = 253
"""Of the name in a message to a workflow."""
_DIGEST = 40


def recorded(name: str) -> str:
    """Give a name for `by` of a message. Those of service accounts may have 338 characters: a hash then tells them from each other."""
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: NAME_MAX - _DIGEST - 1]}~{digest}"
