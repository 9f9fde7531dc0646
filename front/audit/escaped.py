"""Truncates texts by their size in ASCII JSON: a character takes up to 12 bytes."""

import json

TEXT_BYTES_MAX = 512


def fitting(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return the longest prefix of a text whose escaped form fits into the limit."""
    beginning = text[:bytes_max]
    if len(json.dumps(beginning)) - 2 <= bytes_max:
        return beginning
    left = bytes_max
    for place, character in enumerate(beginning):
        left -= len(json.dumps(character)) - 2
        if left < 0:
            return beginning[:place]
    return beginning
