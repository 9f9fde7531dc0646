"""Keep one credential within a rate.

Hundreds of workflows of one worker may turn to one cluster in the same second. The API server would answer 429 and make everybody else on
the cluster wait; so the queue stands here, where nobody else waits in it.
"""

import asyncio


class Throttle:
    """A token bucket: `rate` turns per second on average, `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = 0.0

    async def turn(self) -> None:
        """Wait for one's turn."""
        now = asyncio.get_running_loop().time()
        # Each turn moves the moment on at which the bucket is full again; being ahead of it by more than the burst means to wait.
        self._free_at = max(self._free_at, now) + 1 / self._rate
        wait_seconds = self._free_at - now - self._burst / self._rate
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)
