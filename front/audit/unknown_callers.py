"""Limits the log lines for unauthenticated requests to ten per second.

Further requests are only counted, because there may be any number of them.
"""

import asyncio
import time
from collections.abc import Callable

from fleet_client.requests import new_request_id
from front.audit.event import AuditEvent
from front.audit.log import AuditLog

LINES_PER_SECOND = 10
_SECOND = 1.0


class UnknownCallers:
    """Decides which of these requests are logged, and logs the count of the others."""

    def __init__(
        self, audit_log: AuditLog, now: Callable[[], float] = time.monotonic
    ) -> None:
        """`now` returns monotonic seconds."""
        self._log, self._now = audit_log, now
        self._since, self._lines = now(), 0
        self._omitted: AuditEvent | None = None

    def has_line(self) -> bool:
        """Return whether the next request is logged; count it otherwise."""
        now = self._now()
        if now - self._since >= _SECOND:
            self.tell()
            self._since, self._lines = now, 0
        if self._lines < LINES_PER_SECOND:
            self._lines += 1
            return True
        if self._omitted is None:
            self._omitted = AuditEvent(new_request_id(), method="", path="")
            asyncio.get_running_loop().call_later(_SECOND, self.tell)
        self._omitted.omitted += 1
        return False

    def tell(self) -> None:
        """Append a line with the number of counted requests, if there are any."""
        omitted, self._omitted = self._omitted, None
        if omitted:
            self._log.append(lambda: omitted.lines(0, "Omitted"))
