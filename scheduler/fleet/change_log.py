"""The changes of a ledger or a cluster index, in order, for caches that follow them.

A reader remembers its position. The log is short: a reader whose position was dropped
must recount.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from scheduler.model.inputs import LedgerEntry

_LENGTH_MAX = 20_000
# The entry before and after the change; None if there is none.
Change = tuple[LedgerEntry | None, LedgerEntry | None]
Item = TypeVar("Item")


class ChangeLog(Generic[Item]):
    """The latest changes; `add` appends one."""

    __slots__ = ("_changes", "_dropped", "add")

    def __init__(self) -> None:
        self._changes: list[Item] = []
        self._dropped = 0
        # Bound directly for speed: every placement is added, and again when it is
        # applied.
        self.add = self._changes.append

    @property
    def end(self) -> int:
        """Return the position of a reader that has read everything."""
        return self._dropped + len(self._changes)

    def trim(self) -> None:
        """Drop the older half of a long log; called once per batch.

        The newer half stays, because a reader that reads once per batch has not read
        the latest changes yet.
        """
        if len(self._changes) > _LENGTH_MAX:
            dropped = len(self._changes) - _LENGTH_MAX // 2
            self._dropped += dropped
            del self._changes[:dropped]

    def since(self, position: int) -> Iterator[Item] | None:
        """Return the changes since a position, or None if they were dropped."""
        if position < self._dropped:
            return None
        return iter(self._changes[position - self._dropped :])
