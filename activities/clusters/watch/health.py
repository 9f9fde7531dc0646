"""Whether a cluster answers.

A broken connection says so at once, a lost network never does. So one tiny request goes out every few seconds, under the credential as the
store holds it now: that is also how a rotated kubeconfig comes into use. Silence shorter than two minutes is nobody's business.
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
    """The state of the connection. `recovered` is called when the cluster answers again, or under another credential."""

    def __init__(self, resolve: Resolve, recovered: Callable[[ClusterApi], None], unreachable_after_seconds: float) -> None:
        self.error: ModelplaneError | None = None
        self._resolve = resolve
        self._recovered = recovered
        self._unreachable_after_seconds = unreachable_after_seconds
        self._client: ClusterApi | None = None
        self._last_answer_at = asyncio.get_running_loop().time()

    @property
    def lost(self) -> bool:
        """Whether the cluster has been silent for so long that its entity must know."""
        silent_seconds = asyncio.get_running_loop().time() - self._last_answer_at
        return self.error is not None and silent_seconds >= self._unreachable_after_seconds

    async def probe(self) -> float:
        """Ask once. Gives after how many seconds to ask again."""
        try:
            client = await self._resolve()
            await client.version()
        except ModelplaneError as error:
            self.error = error
            remaining = self._last_answer_at + self._unreachable_after_seconds - asyncio.get_running_loop().time()
            return min(RETRY_SECONDS, remaining) if remaining > 0 else RETRY_SECONDS
        self._last_answer_at = asyncio.get_running_loop().time()
        if self.error is not None or client is not self._client:
            self.error, self._client = None, client
            self._recovered(client)
        return PROBE_SECONDS
