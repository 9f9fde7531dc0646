"""Wait until a cluster that could not be connected becomes reachable.

The Secret is read every few seconds, so a new credential is tried at once. An unchanged
credential is tried at growing intervals, up to one minute.
"""

import asyncio
from collections.abc import Awaitable, Callable

from activities.cluster_objects.cluster_api import ClusterApi
from activities.watching.health import Resolve
from api_types.errors import ActionRequiredError, ModelplaneError

SECRET_POLL_SECONDS = 3.0
ATTEMPT_SECONDS = (3.0, 60.0)


class ConnectionRetry:
    """A wait that ends when `attempt` succeeds or fails with a new error."""

    def __init__(
        self,
        resolve: Resolve,
        attempt: Callable[[ClusterApi], Awaitable[None]],
        failure_type: str,
        failure_message: str,
    ) -> None:
        self._resolve = resolve
        self._attempt = attempt
        self._known = failure_type, failure_message
        self._client: ClusterApi | None = None
        self._pause, self._longest = ATTEMPT_SECONDS
        self._next_attempt = 0.0

    async def run(self) -> None:
        """Wait until the cluster is reachable or fails with a new error.

        Raises errors of other types than ModelplaneError, which do not describe the
        cluster.
        """
        while True:
            try:
                if await self._is_connected():
                    return
            except ModelplaneError as error:
                if not self._is_known(error):
                    return
            await asyncio.sleep(SECRET_POLL_SECONDS)

    async def _is_connected(self) -> bool:
        """Return True if an attempt was due and succeeded."""
        # The pool returns another client when the credential has changed.
        client = await self._resolve()
        clock = asyncio.get_running_loop()
        if client is self._client and clock.time() < self._next_attempt:
            return False
        if client is not self._client:
            self._client, self._pause = client, ATTEMPT_SECONDS[0]
        try:
            await self._attempt(client)
        finally:
            self._next_attempt, self._pause = (
                clock.time() + self._pause,
                next_pause(self._pause, self._longest),
            )
        return True

    def _is_known(self, error: ModelplaneError) -> bool:
        """Return True for an error of the known type.

        Two ActionRequiredErrors must also have the same text, which contains the
        required action. The text of a lost connection varies.
        """
        failure_type, message = self._known
        return error.type == failure_type and (
            not isinstance(error, ActionRequiredError) or error.message == message
        )


def next_pause(pause: float, longest: float) -> float:
    return min(2 * pause, longest)
