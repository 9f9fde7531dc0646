"""Every call with its request and outcome, in order, for assertions.

It has no secrets: bearer tokens are not part of a request, and of answers only the
outcome is kept.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

OK = "OK"
LOST = "LOST"
"""The call took effect, and its answer was lost."""
LATE = "LATE"
"""The call was answered with DEADLINE_EXCEEDED, and took effect later.

Its place in the order is that of the effect.
"""

REPEATED = "REPEATED"
"""The call repeated the request id of an earlier one, and got the same answer."""

FAILED = "FAILED"
"""The fake itself failed: a bug, or a request that it does not understand."""


@dataclass(frozen=True)
class GcpCall:
    """One call.

    `request` has the names of the API's JSON or protobuf. `outcome` is one of the words
    above, or the code of the refusal.
    """

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
        """Whether the call took effect, whatever the caller was told."""
        return self.outcome in {OK, LOST, LATE}


_CREATES = ("create_*", "insert")


class GcpLedger:
    """All calls so far."""

    def __init__(self) -> None:
        self._calls: list[GcpCall] = []

    def add(
        self,
        service: str,
        method: str,
        target: str,
        request: Mapping[str, Any],
        *,
        outcome: str,
        account: str,
    ) -> None:
        """Record a call."""
        self._calls.append(
            GcpCall(
                len(self._calls) + 1, service, method, target, request, outcome, account
            )
        )

    def calls(
        self, name: str = "*", target: str = "*", *, effective: bool = False
    ) -> list[GcpCall]:
        """Return the calls whose service.method and target match these patterns.

        `effective` leaves out calls without effect.
        """
        matching = [
            call
            for call in self._calls
            if fnmatchcase(call.name, name) and fnmatchcase(call.target, target)
        ]
        return [call for call in matching if call.took_effect or not effective]

    def creations(self) -> list[str]:
        """Return the names of created objects, one for each creation."""
        created = [call for call in self._calls if call.took_effect]
        return [
            call.target
            for call in created
            if any(fnmatchcase(call.method, pattern) for pattern in _CREATES)
        ]

    def deletions(self) -> list[str]:
        """Return the names of deleted objects, in order."""
        return [
            call.target
            for call in self._calls
            if call.took_effect and call.method.startswith("delete")
        ]

    def clear(self) -> None:
        """Forget all calls."""
        self._calls = []
