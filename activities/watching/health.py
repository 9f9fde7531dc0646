"""Whether a cluster is reachable.

A broken connection fails at once, a lost network never does. So the watch of a cluster sends a
small request every few seconds, a probe. Each probe uses the credential that the store has now:
that is also how a rotated kubeconfig is picked up. A cluster counts as lost when three probes in a
row have failed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from activities.cluster_objects.cluster_api import ClusterApi
from api_types.errors import ClusterUnreachable, ModelplaneError

PROBE_SECONDS = 15.0
"""Seconds from an answered probe to the next one."""
RETRY_SECONDS = 5.0
"""Seconds from a failed probe to the next one."""
PROBE_LIMIT_SECONDS = 10.0
"""A probe without an answer fails after so many seconds."""
FAILED_PROBES = 3
"""So many failed probes in a row mean that the cluster does not answer."""

Resolve = Callable[[], Awaitable[ClusterApi]]


class Health:
    """The state of the connection to a cluster.

    `recovered` is called when the cluster answers again, or with another credential.
    """

    def __init__(self, resolve: Resolve, recovered: Callable[[ClusterApi], None]) -> None:
        self.error: ModelplaneError | None = None
        self._resolve = resolve
        self._recovered = recovered
        self._client: ClusterApi | None = None
        self._failures = 0
        self._answered_at = asyncio.get_running_loop().time()

    @property
    def lost(self) -> bool:
        """Whether so many probes have failed that the cluster's entity must know."""
        return self._failures >= FAILED_PROBES

    @property
    def silent_seconds(self) -> float:
        """The seconds since the last answer, or since the start of the watch."""
        return asyncio.get_running_loop().time() - self._answered_at

    async def probe(self) -> float:
        """Send one probe. Returns the seconds to wait before the next one."""
        try:
            async with asyncio.timeout(PROBE_LIMIT_SECONDS):
                client = await self._resolve()
                await client.version()
        except TimeoutError:
            limit = f"{PROBE_LIMIT_SECONDS:g} s"
            return self._failed(ClusterUnreachable(f"the API server did not answer within {limit}"))
        except ModelplaneError as error:
            return self._failed(error)
        self._answered_at, self._failures = asyncio.get_running_loop().time(), 0
        if self.error is not None or client is not self._client:
            self.error, self._client = None, client
            self._recovered(client)
        return PROBE_SECONDS

    def _failed(self, error: ModelplaneError) -> float:
        self.error = error
        self._failures += 1
        return RETRY_SECONDS
