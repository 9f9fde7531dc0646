"""A cache of results that is bounded by the length of the texts they were made from.

What users write is bounded one by one, not in number: whoever changes a deployment ten thousand times has sent as many different texts.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeVar

# Texts of one cache together. A compiled selector takes 10 to 90 times its text, so this is 200 MiB at worst; and it holds the 10,000
# different selectors of a large fleet, of 200 characters each.
CHARACTERS_MAX = 2 * 1024 * 1024
ENTRIES_MAX = 16_384

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class BoundedCache(Generic[Arguments, Result]):
    """A function whose results are kept in two generations.

    When the younger one has half of what is allowed, it becomes the older one, and what was not used since that was the younger is
    forgotten. Unlike an order of use this costs a hit nothing but the look-up: keys are whole templates, and hashing one takes time.
    """

    def __init__(self, make: Callable[Arguments, Result], length: Callable[..., int]) -> None:
        update_wrapper(self, make)
        self._make = make
        self._length = length
        self._young: dict[Hashable, Result] = {}
        self._old: dict[Hashable, Result] = {}
        self._characters = [0, 0]  # of the younger and the older generation
        self._lock = threading.Lock()

    def __call__(self, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        """Give the result that is kept, or make it."""
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
            if 2 * self._characters[0] > CHARACTERS_MAX or 2 * len(self._young) > ENTRIES_MAX:
                self._old, self._young = self._young, {}
                self._characters = [0, self._characters[0]]
        return result


def remember(known: dict[Key, Value], key: Key, value: Value, most: int) -> Value:
    """Keep a value beside others. Where there are too many of them all are forgotten: what is used still is made again."""
    if len(known) >= most:
        known.clear()
    known[key] = value
    return value


def bounded_cache(length: Callable[..., int]) -> Callable[[Callable[Arguments, Result]], BoundedCache[Arguments, Result]]:
    """Keep the results of a function that were used lately; `length` gives the length of the texts among its arguments."""

    def decorate(make: Callable[Arguments, Result]) -> BoundedCache[Arguments, Result]:
        return BoundedCache(make, length)

    return decorate
