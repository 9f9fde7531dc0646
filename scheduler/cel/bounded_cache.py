"""A cache of results, bounded by the total length of the texts in its keys.

The length of each text is limited, but the number of texts is not: a user who changes a
deployment ten thousand times sends ten thousand texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

# The total length of the texts in one cache. A compiled selector takes 10 to 90 times
# the size of its text, so a cache takes 200 MiB at most. It holds the 10,000 selectors
# of a large fleet, of 200 characters each.
CHARACTERS_MAX = 2 * 1024 * 1024
ENTRIES_MAX = 16_384

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Arguments, Result]):
    """A function whose results are cached in two generations.

    When the younger generation reaches half of the limit, it becomes the older
    generation. Results of the previous older generation are dropped unless they were
    used since then. Unlike in an LRU cache, a hit costs only the look-up: keys are
    whole templates, and hashing a key takes time.
    """

    def __init__(
        self, make: Callable[Arguments, Result], length: Callable[..., int]
    ) -> None:
        update_wrapper(self, make)
        self._make = make
        self._length = length
        self._young: dict[Hashable, Result] = {}
        self._old: dict[Hashable, Result] = {}
        self._characters = [0, 0]  # of the younger and the older generation
        self._lock = threading.Lock()

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Return the cached result, or compute it."""
        key = (args, *kwargs.items()) if kwargs else args
        found = self._young.get(key)
        if found is not None:
            return found
        found = self._old.get(key)
        result = self._make(*args, **kwargs) if found is None else found
        with self._lock:
            if key in self._young:
                return self._young[key]  # another thread was faster
            self._young[key] = result
            self._characters[0] += self._length(*args, **kwargs)
            if (
                2 * self._characters[0] > CHARACTERS_MAX
                or 2 * len(self._young) > ENTRIES_MAX
            ):
                self._old, self._young = self._young, {}
                self._characters = [0, self._characters[0]]
        return result


def remember(known: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Store a value. If there are `most` of them, drop all other values first."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value


def bounded_cache(
    length: Callable[..., int],
) -> Callable[[Callable[Arguments, Result]], BoundedCache[Arguments, Result]]:
    """Cache the recent results of a function.

    Args:
        length: returns the length of the texts among the arguments of a call.

    """

    def decorate(make: Callable[Arguments, Result]) -> BoundedCache[Arguments, Result]:
        return BoundedCache(make, length)

    return decorate
