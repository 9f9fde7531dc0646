"""Whether the gateway of a cluster answers, while the API server may not.

A silent API server says nothing about the pods of a cluster. Requests may still reach
them, so the gateway is asked as well. Its silence counts only if it answered before:
some gateways cannot be reached from the network of the worker.
"""

from collections.abc import Awaitable, Callable

PROBE_SECONDS = 30.0
"""The number of seconds between two probes while the API server answers."""
LOST_SECONDS = 5.0
"""The number of seconds between two probes while it does not."""
FAILED_PROBES = 3
"""The number of failed probes in a row after which a gateway counts as silent."""

Answers = Callable[[str], Awaitable[bool]]
"""Return whether the gateway at a URL answers."""


class GatewayProbe:
    """The state of one gateway.

    `known` is an address at which the gateway answered to an earlier watch, or "".
    """

    def __init__(self, answers: Answers, scheme: str, known: str = "") -> None:
        self._answers = answers
        self._scheme = scheme
        self._address = known
        self._has_answered = bool(known)
        self._failures = 0

    @property
    def answers(self) -> bool | None:
        """Return whether the gateway answers, or None if it never has."""
        if not self._has_answered:
            return None
        return self._failures < FAILED_PROBES

    async def probe(self, address: str) -> None:
        """Send one request to an address. With "", use the last address."""
        if address and address != self._address:
            self._address, self._has_answered, self._failures = address, False, 0
        if not self._address:
            return
        host = f"[{self._address}]" if ":" in self._address else self._address
        if await self._answers(f"{self._scheme}://{host}/"):
            self._has_answered, self._failures = True, 0
        else:
            self._failures += 1
