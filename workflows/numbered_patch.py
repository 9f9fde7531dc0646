"""A patch for what is decided again and again in one run.

A patch that a worker of before did not record stays off until the run ends, which may be in months: so each time after that has another
number. A replay counts the same.
"""

from collections.abc import Callable


class NumberedPatch:
    """The patches `<name>-0`, `<name>-1` and so on, of which one is asked at a time. `patched` tells whether one is on."""

    def __init__(self, name: str, patched: Callable[[str], bool]) -> None:
        self._name = name
        self._patched = patched
        self._number = 0

    def is_on(self) -> bool:
        """Tell whether the decision is made as it is now; False where a worker of before made it."""
        if self._patched(f"{self._name}-{self._number}"):
            return True
        self._number += 1
        return False
