"""The nearest name to a misspelt one."""

import difflib
from collections.abc import Iterable

_CUTOFF = 0.6


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return the candidate most similar to `name`, or "" if none is close."""
    by_fold = {candidate.casefold(): candidate for candidate in candidates}
    found = difflib.get_close_matches(name.casefold(), by_fold, n=1, cutoff=_CUTOFF)
    return by_fold[found[0]] if found else ""
