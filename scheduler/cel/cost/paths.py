"""The path from `device` to a value, by which the size of the value is looked up."""

from __future__ import annotations


class SizePath:
    """Names from a variable to a value, in memory that several paths share.

    Kubernetes stores a path in a Go slice. Appending to a slice with spare capacity
    writes into the spare memory, and another slice over the same memory then contains
    the new name. So a path, and an estimate that depends on it, may change after its
    creation. Estimates here must be equal to those of Kubernetes, so paths behave like
    Go slices.
    """

    __slots__ = ("_cells", "_length")

    def __init__(self, cells: list[str], length: int) -> None:
        self._cells = cells
        self._length = length

    def append(self, name: str) -> SizePath:
        """Return the path to a part of the value."""
        length = self._length
        cells = self._cells
        if length == len(cells):
            # Go doubles the capacity of a short slice.
            cells = [*cells, *[""] * max(length, 1)]
        cells[length] = name
        return SizePath(cells, length + 1)

    def names(self) -> tuple[str, ...]:
        return tuple(self._cells[: self._length])


NO_PATH = SizePath([], 0)


def path_of(variable: str) -> SizePath:
    """Return the path to a variable itself."""
    return NO_PATH.append(variable)
