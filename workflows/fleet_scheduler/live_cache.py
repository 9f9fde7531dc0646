"""The local activities of the scheduler that read the live cache of its run."""

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
    """Execute a local activity on the present cache.

    A replay of this run in the same process has its own cache, which replaces this one
    until it is registered again. Raises one of `LOCAL_FAILURES`.
    """
    run_id = workflow.info().run_id
    while True:
        cache_registry.register(run_id, cache)
        try:
            return await workflow.execute_local_activity(
                activity,
                argument(CacheVersion(run_id=run_id, version=cache.fleet.version)),
                **options,
            )
        except LOCAL_FAILURES as error:
            if error_type(error) != StaleSnapshot.__name__:
                raise
