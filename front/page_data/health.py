"""Whether Temporal and the workers answer, as the page shows it."""

from collections.abc import Callable
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from api_types import queues
from api_types.clock import now_ms
from fleet_client.temporal.worker_versions import POLLED_LATELY, last_poll
from front.store.feed import Feed

SILENT_SECONDS = 20.0
"""Temporal is silent if the feed of changes has had no answer for this long."""


class ControlPlaneHealth:
    """The last answers of Temporal and the workers, in seconds since 1970."""

    def __init__(
        self, client: Client, feed: Feed, clock: Callable[[], int] = now_ms
    ) -> None:
        self._client, self._feed, self._clock = client, feed, clock
        # Temporal forgets pollers when it restarts. Until a poll is seen, the workers
        # count from the start of this front.
        self._polled = clock() / 1000
        self._is_known = False

    async def observe(self) -> None:
        """Ask Temporal when a worker last polled for workflow tasks."""
        try:
            found = await last_poll(self._client, queues.WORKFLOWS)
        except RPCError:
            # Temporal is silent, which says nothing about the workers.
            self._is_known = False
            return
        self._is_known = True
        self._polled = found or self._polled

    def tree(self) -> dict[str, Any]:
        """Return the state as JSON, with times in milliseconds since 1970."""
        now = self._clock() / 1000
        polled = self._polled
        return {
            "now": int(now * 1000),
            "temporal": {
                "answered": int(self._feed.answered * 1000),
                "silent": now - self._feed.answered > SILENT_SECONDS,
            },
            "workers": {
                "polled": int(polled * 1000),
                "silent": self._is_known and now - polled > POLLED_LATELY,
                "known": self._is_known,
            },
        }
