"""How the cache passes from one run of the scheduler to the next."""

import contextlib
import gc
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

from temporalio import workflow

from api_types.errors import error_message
from workflows.entity.calls import activity_options
from workflows.entity.failures import LOCAL_FAILURES
from workflows.fleet_scheduler.cache.carry_over import (
    CacheVersion,
    PackedFleet,
    PackPage,
    joined,
    pack_cache,
)
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.live_cache import read_live

# A fleet with at most this many parts is read at once. Reading a larger fleet pauses
# between the parts.
PARTS_AT_ONCE = 3
TASK_PAUSE = timedelta(milliseconds=1)


async def load(cache: SchedulerCache) -> None:
    """Read the carried fleet.

    A large fleet is read part by part, because no workflow task may take long.
    """
    large = cache.parts_left > PARTS_AT_ONCE
    while cache.parts_left:
        with paused_collections():
            cache.read_part()
        if large and cache.parts_left:
            await workflow.sleep(
                TASK_PAUSE,
                summary=f"{cache.parts_left} parts of the fleet left to read",
            )


@contextlib.contextmanager
def paused_collections() -> Iterator[None]:
    """Pause garbage collection while a part is read.

    The part creates permanent objects, and each collection would visit all of them.
    Freezing the objects would spare later collections half a second with 100,000
    replicas. But then the fleet of an ended run would never be freed, because every
    workflow is part of a reference cycle.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


async def pack(cache: SchedulerCache) -> PackedFleet:
    """Pack the cache.

    If this fails, the next run rebuilds the cache from the entities.
    """
    pages: list[PackedFleet] = []
    try:
        while not pages or len(pages) < pages[0].pages:
            page = partial(_page, len(pages))
            options = activity_options.local(
                activity_options.WHOLE_CACHE, "pack the cache for the next run"
            )
            pages.append(await read_live(pack_cache, cache, page, options))
    except LOCAL_FAILURES as error:
        workflow.logger.exception(
            "the cache could not be packed", extra={"problem": error_message(error)}
        )
        return PackedFleet(too_large=True)
    return joined(pages)


def _page(number: int, live: CacheVersion) -> PackPage:
    return PackPage(run_id=live.run_id, version=live.version, page=number)
