"""What the kinds that use a ModelCache share: how they wait for its first report, and when they register again."""

import contextlib
from collections.abc import Callable
from datetime import timedelta

from temporalio import workflow

# A cache that does not exist announces itself when it is created; this is the fallback.
REGISTER_RETRY = timedelta(seconds=32)

# A cache that exists reports within this time. To wait costs less than to place, or to render, twice.
FIRST_REPORT_TIMEOUT = timedelta(seconds=2)


async def wait_for_first_report(cache: str, stop: Callable[[], bool]) -> None:
    """Wait for the first report of a cache, or for another reason to stop, but not for long."""
    with contextlib.suppress(TimeoutError):
        await workflow.wait_condition(stop, timeout=FIRST_REPORT_TIMEOUT, timeout_summary=f"wait for ModelCache {cache} to answer")
