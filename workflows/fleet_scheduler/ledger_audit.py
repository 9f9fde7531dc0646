"""The periodic recount of the ledger.

A difference is a bug in the scheduler. It is logged and shown.
"""

from temporalio import workflow

from api_types.errors import error_message
from workflows.entity import periods
from workflows.entity.calls import activity_options
from workflows.entity.failures import LOCAL_FAILURES
from workflows.fleet_scheduler.cache.carry_over import audit_ledger
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.live_cache import read_live

# The largest ledger that is recounted while a query waits.
QUERY_ENTRIES_MAX = 10_000


class LedgerAudit:
    """The schedule of the recounts, and the result of the last one."""

    def __init__(self, cache: SchedulerCache) -> None:
        self._cache = cache
        self.is_due = False

    async def repeat(self) -> None:
        """Request a recount once per period, until cancelled."""
        while True:
            self.is_due = self._cache.fleet.ledger.size > 0
            await workflow.sleep(periods.LEDGER_AUDIT, summary="recount the ledger")

    async def run_if_due(self) -> None:
        """Compare the ledger with a recount of its entries."""
        if not self.is_due:
            return
        self.is_due = False
        state = self._cache.state
        try:
            options = activity_options.local(
                activity_options.WHOLE_CACHE, "recount the ledger"
            )
            state.audit = await read_live(
                audit_ledger, self._cache, lambda live: live, options
            )
        except LOCAL_FAILURES as error:
            state.audit = [f"the ledger could not be recounted: {error_message(error)}"]
        for difference in state.audit:
            workflow.logger.error(
                "the ledger differs from a recount", extra={"difference": difference}
            )

    def differences(self) -> list[str]:
        """Return the differences of a new recount of a small ledger.

        For a large ledger, return the result of the last periodic recount.
        """
        ledger_is_small = self._cache.fleet.ledger.size <= QUERY_ENTRIES_MAX
        return self._cache.fleet.audit() if ledger_is_small else self._cache.state.audit
