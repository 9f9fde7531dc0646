"""Whether a cluster is reachable.

A broken connection fails at once, a lost network never does. So one small request is sent every few seconds, with the credential that the
store has now: that is also how a rotated kubeconfig is picked up. A cluster is reported unreachable after two minutes without a response.
"""

import asyncio
from collections.abc import Awaitable, Callable

from activities.cluster_objects.cluster_api import ClusterApi
from api_types.errors import ModelplaneError

PROBE_SECONDS = 15.0
RETRY_SECONDS = 5.0
UNREACHABLE_AFTER_SECONDS = 120.0

Resolve = Callable[[], Awaitable[ClusterApi]]


class Health:
    """The state of the connection. `recovered` is called when the cluster responds again, or with another credential."""

    def __init__(self, resolve: Resolve, recovered: Callable[[ClusterApi], None], unreachable_after_seconds: float) -> None:
        self.error: ModelplaneError | None = None
        self._resolve = resolve
        self._recovered = recovered
        self._unreachable_after_seconds = unreachable_after_seconds
        self._client: ClusterApi | None = None
        self._last_response_at = asyncio.get_running_loop().time()

    @property
    def lost(self) -> bool:
        """Whether the cluster has not responded for so long that its entity must know."""
        elapsed_seconds = asyncio.get_running_loop().time() - self._last_response_at
        return self.error is not None and elapsed_seconds >= self._unreachable_after_seconds

    async def probe(self) -> float:
        """Send one request. Gives after how many seconds to send the next."""
        try:
            client = await self._resolve()
            await client.version()
        except ModelplaneError as error:
            self.error = error
            remaining = self._last_response_at + self._unreachable_after_seconds - asyncio.get_running_loop().time()
            return min(RETRY_SECONDS, remaining) if remaining > 0 else RETRY_SECONDS
        self._last_response_at = asyncio.get_running_loop().time()
        if self.error is not None or client is not self._client:
            self.error, self._client = None, client
            self._recovered(client)
        return PROBE_SECONDS
