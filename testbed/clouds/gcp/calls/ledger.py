"""What was called: every call with its request and outcome, in order, for assertions on calls and their order.

No secret gets in: a request has none (bearer tokens are no part of it), and of answers only the outcome is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

OK = "OK"
LOST = "LOST"
"""The call took effect and its answer was lost."""
LATE = "LATE"
"""The call was answered with DEADLINE_EXCEEDED, and took effect after that answer; it stands where it took effect."""

REPEATED = "REPEATED"
"""The call was recognized by its request id as one that had its effect before, and was answered as that one."""

FAILED = "FAILED"
"""The fake itself failed: a defect of it, or a request that it does not understand."""


@dataclass(frozen=True)
class Call:
    """One call; `request` has the names of the API's JSON or protobuf, `outcome` is one of the words above or the code of the refusal."""

    number: int
    service: str
    method: str
    target: str
    request: Mapping[str, Any]
    outcome: str
    account: str
    """The account whose token the call carried; empty without a token."""

    @property
    def name(self) -> str:
        """Service and method, as faults name them."""
        return f"{self.service}.{self.method}"

    @property
    def took_effect(self) -> bool:
        """Whether the call did what it asked for, whatever its caller was told."""
        return self.outcome in {OK, LOST, LATE}


_CREATES = ("create_*", "insert")


class Ledger:
    """All calls so far."""

    def __init__(self) -> None:
        self._calls: list[Call] = []

    def add(self, service: str, method: str, target: str, request: Mapping[str, Any], *, outcome: str, account: str) -> None:
        """Record a call."""
        self._calls.append(Call(len(self._calls) + 1, service, method, target, request, outcome, account))

    def calls(self, name: str = "*", target: str = "*", *, effective: bool = False) -> list[Call]:
        """Give the calls whose service.method and target match these patterns; `effective` leaves out those without effect."""
        matching = [call for call in self._calls if fnmatchcase(call.name, name) and fnmatchcase(call.target, target)]
        return [call for call in matching if call.took_effect or not effective]

    def creations(self) -> list[str]:
        """Give the name of what was created, once for each time."""
        created = [call for call in self._calls if call.took_effect]
        return [call.target for call in created if any(fnmatchcase(call.method, pattern) for pattern in _CREATES)]

    def deletions(self) -> list[str]:
        """Give the name of what was deleted, in order of the calls."""
        return [call.target for call in self._calls if call.took_effect and call.method.startswith("delete")]

    def clear(self) -> None:
        """Forget all calls."""
        self._calls = []
