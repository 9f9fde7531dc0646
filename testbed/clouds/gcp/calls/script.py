"""Which faults a call meets: each fault counts the calls that match it."""

from fnmatch import fnmatchcase
from typing import TypeVar

from testbed.clouds.gcp.calls.faults import Fault

_Kind = TypeVar("_Kind", bound=Fault)


class Script:
    """The faults that were planted, and how often each was matched."""

    def __init__(self) -> None:
        self._faults: list[tuple[Fault, int]] = []

    def add(self, *faults: Fault) -> None:
        """Plant faults; they meet calls from now on."""
        self._faults += [(fault, 0) for fault in faults]

    def clear(self) -> None:
        """Drop all faults."""
        self._faults = []

    def take(self, call: str, target: str) -> list[Fault]:
        """Give the faults that this call meets, in the order they were planted, and count it."""
        met = []
        for at, (fault, seen) in enumerate(self._faults):
            if fnmatchcase(call, fault.call) and fnmatchcase(target, fault.target):
                self._faults[at] = fault, seen + 1
                if fault.skip <= seen < fault.skip + fault.times:
                    met.append(fault)
        return met

    def left(self) -> list[Fault]:
        """Give the faults that no call has met in full yet."""
        return [fault for fault, seen in self._faults if seen < fault.skip + fault.times]


def first_of(faults: list[Fault], kind: type[_Kind]) -> _Kind | None:
    """Give the first fault of this type."""
    return next((fault for fault in faults if isinstance(fault, kind)), None)
