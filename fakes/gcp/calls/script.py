"""The selection of the faults that a call meets.

Each fault counts its matching calls.
"""

from fnmatch import fnmatchcase
from typing import TypeVar

from fakes.gcp.calls.faults import GcpFault

_Kind = TypeVar("_Kind", bound=GcpFault)


class GcpFaultScript:
    """The planted faults, and how often each was matched."""

    def __init__(self) -> None:
        self._faults: list[tuple[GcpFault, int]] = []

    def add(self, *faults: GcpFault) -> None:
        """Plant faults for the following calls."""
        self._faults += [(fault, 0) for fault in faults]

    def drop(self, *faults: GcpFault) -> None:
        """Forget these faults."""
        self._faults = [each for each in self._faults if each[0] not in faults]

    def clear(self) -> None:
        """Drop all faults."""
        self._faults = []

    def take(self, call: str, target: str) -> list[GcpFault]:
        """Return the faults that this call meets, in order, and count the call."""
        met = []
        for at, (fault, seen) in enumerate(self._faults):
            if fnmatchcase(call, fault.call) and fnmatchcase(target, fault.target):
                self._faults[at] = fault, seen + 1
                if fault.skip <= seen < fault.skip + fault.times:
                    met.append(fault)
        return met

    def left(self) -> list[GcpFault]:
        """Return the faults that are not used up."""
        return [
            fault for fault, seen in self._faults if seen < fault.skip + fault.times
        ]


def first_of(faults: list[GcpFault], kind: type[_Kind]) -> _Kind | None:
    """Return the first fault of this type."""
    return next((fault for fault in faults if isinstance(fault, kind)), None)
