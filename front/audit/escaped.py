"""Texts of requests in bounded size, as they are in JSON of ASCII: there one character may take twelve bytes."""

import json

TEXT_BYTES_MAX = 512


def fitting(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Give the beginning of a text that has at most so many bytes once it is escaped."""
    beginning = text[:bytes_max]
    if len(json.dumps(beginning)) - 2 <= bytes_max:
        return beginning
    left = bytes_max
    for place, character in enumerate(beginning):
        left -= len(json.dumps(character)) - 2
        if left < 0:
            return beginning[:place]
    return beginning
