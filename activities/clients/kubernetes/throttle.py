"""A rate limit for the requests of one credential.

Hundreds of workflows of one worker may call one cluster in the same second. The API server would return 429 and delay all other clients of
the cluster; so requests queue here instead.
"""

import asyncio


class Throttle:
    """A token bucket: `rate` requests per second on average, `burst` at once."""

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._free_at = 0.0

    async def acquire(self) -> None:
        """Wait until one more request is allowed."""
        now = asyncio.get_running_loop().time()
        # Each request moves the time at which the bucket is full again; a request waits for what that time is ahead by more than the burst.
        self._free_at = max(self._free_at, now) + 1 / self._rate
        wait_seconds = self._free_at - now - self._burst / self._rate
        if wait_seconds > 0:
            await asyncio.sleep(wait_seconds)
