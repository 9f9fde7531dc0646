"""The reachability of a cluster.

A broken connection fails at once, but a lost network never does. So the watch of a
cluster sends a small request every few seconds, a probe. Each probe uses the credential
that the store has now, which also picks up a rotated kubeconfig. A cluster counts as
lost when three probes in a row have failed.
"""

import asyncio
from collections.abc import Awaitable, Callable

from activities.cluster_objects.cluster_api import ClusterApi
from api_types.errors import ClusterUnreachable, ModelplaneError

PROBE_SECONDS = 15.0
"""The number of seconds from a successful probe to the next one."""
RETRY_SECONDS = 5.0
"""The number of seconds from a failed probe to the next one."""
PROBE_LIMIT_SECONDS = 10.0
"""The number of seconds after which a probe without a response fails."""
FAILED_PROBES = 3
"""The number of failed probes in a row after which a cluster counts as lost."""

Resolve = Callable[[], Awaitable[ClusterApi]]


class Health:
    """The state of the connection to a cluster.

    `recovered` is called when the cluster responds again, or responds to another
    credential.
    """

    def __init__(
        self, resolve: Resolve, recovered: Callable[[ClusterApi], None]
    ) -> None:
        self.error: ModelplaneError | None = None
        self._resolve = resolve
        self._recovered = recovered
        self._client: ClusterApi | None = None
        self._failures = 0
        self._answered_at = asyncio.get_running_loop().time()

    @property
    def lost(self) -> bool:
        """True after so many failed probes that the cluster's entity must be notified."""
        return self._failures >= FAILED_PROBES

    @property
    def silent_seconds(self) -> float:
        """The seconds since the last response, or since the start of the watch."""
        return asyncio.get_running_loop().time() - self._answered_at

    async def probe(self) -> float:
        """Send one probe. Returns the seconds to wait before the next one."""
        try:
            async with asyncio.timeout(PROBE_LIMIT_SECONDS):
                client = await self._resolve()
                await client.version()
        except TimeoutError:
            limit = f"{PROBE_LIMIT_SECONDS:g} s"
            return self._failed(
                ClusterUnreachable(f"the API server did not answer within {limit}")
            )
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
