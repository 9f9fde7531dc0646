"""The local activities of the scheduler, which read the live cache of its run."""

from collections.abc import Callable
from typing import TypeVar

from temporalio import workflow
from temporalio.workflow import LocalActivityConfig

from api_types.errors import StaleSnapshot, error_type
from workflows.entity.failures import LOCAL_FAILURES
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import CacheVersion
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache

ArgumentT = TypeVar("ArgumentT", bound=CacheVersion)
ResultT = TypeVar("ResultT")


async def read_live(
    activity: Callable[[ArgumentT], ResultT],
    cache: SchedulerCache,
    argument: Callable[[CacheVersion], ArgumentT],
    options: LocalActivityConfig,
) -> ResultT:
    """Execute a local activity on the cache as it is. Raises one of `LOCAL_FAILURES`.

    A replay of this run in the same process has a cache of its own, which takes the place of this one until it is registered again.
    """
    run_id = workflow.info().run_id
    while True:
        cache_registry.register(run_id, cache)
        try:
            return await workflow.execute_local_activity(
                activity, argument(CacheVersion(run_id=run_id, version=cache.fleet.version)), **options
            )
        except LOCAL_FAILURES as error:
            if error_type(error) != StaleSnapshot.__name__:
                raise
