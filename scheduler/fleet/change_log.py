"""The changes of a ledger or of an index of clusters, in order, for the caches that follow them.

A reader remembers where it stopped. The log is short: a reader that stopped before its beginning counts everything anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from scheduler.model.inputs import LedgerEntry

_LENGTH_MAX = 20_000
# The entry before and after; None where there is none.
Change = tuple[LedgerEntry | None, LedgerEntry | None]
Item = TypeVar("Item")


class ChangeLog(Generic[Item]):
    """The latest changes; `add` takes one."""

    __slots__ = ("_changes", "_dropped", "add")

    def __init__(self) -> None:
        self._changes: list[Item] = []
        self._dropped = 0
        # Bound, not wrapped: every placement is added, and again when it is applied.
        self.add = self._changes.append

    @property
    def end(self) -> int:
        """Where a reader stops that has read everything."""
        return self._dropped + len(self._changes)

    def trim(self) -> None:
        """Drop the older half of the changes when there are many; called once per batch.

        The newer half stays: whoever reads for each batch has not read what was applied since the last one.
        """
        if len(self._changes) > _LENGTH_MAX:
            dropped = len(self._changes) - _LENGTH_MAX // 2
            self._dropped += dropped
            del self._changes[:dropped]

    def since(self, position: int) -> Iterator[Item] | None:
        """Give what changed since a reader stopped at a position; None when that is not known any more."""
        if position < self._dropped:
            return None
        return iter(self._changes[position - self._dropped :])
