"""Requests of callers who are not known: there may be any number, so ten in a second have lines, and the others are counted."""

import asyncio
import time
from collections.abc import Callable

from client.follow.requests import new_request_id
from front.audit.event import AuditEvent
from front.audit.log import AuditLog

LINES_PER_SECOND = 10
_SECOND = 1.0


class UnknownCallers:
    """Decides which of these requests have a line, and tells of the others in one for each second."""

    def __init__(self, audit_log: AuditLog, now: Callable[[], float] = time.monotonic) -> None:
        """`now` gives seconds that never go back."""
        self._log, self._now = audit_log, now
        self._since, self._lines = now(), 0
        self._omitted: AuditEvent | None = None

    def has_line(self) -> bool:
        """Tell whether the next request has a line; of one that has none, this counts it."""
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
        """Append the line of those that were counted, if there are any."""
        omitted, self._omitted = self._omitted, None
        if omitted:
            self._log.append(lambda: omitted.lines(0, "Omitted"))
