"""The form in which objects record the name of a user."""

import hashlib

NAME_MAX = 253
"""The maximum length of a user's name in a message to a workflow."""
_DIGEST = 40


def recorded(name: str) -> str:
    """Return the name for the `by` field of a message.

    Names of service accounts may have 338 characters. A hash replaces the end of a name
    that is too long.
    """
    if len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: NAME_MAX - _DIGEST - 1]}~{digest}"
