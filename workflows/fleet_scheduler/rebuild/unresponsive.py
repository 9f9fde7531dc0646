"""Entities whose accounts are missing.

Activities query them concurrently with decisions, and end when one of them answers.
"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityCancellationType, ActivityConfig

from api_types import names, queues
from api_types.payloads.packing import pack
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.rebuild.activities import (
    AccountsPage,
    ReadAccounts,
    await_accounts,
)
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption

# The activity lasts until an entity answers. The server retries it after a timeout,
# which writes no event.
_AWAIT = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(days=1),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)
    ),
    cancellation_type=ActivityCancellationType.TRY_CANCEL,
)

# Newly missing entities get their own activity, which starts at once. With more
# activities than this, a single activity queries all entities again.
_ACTIVITIES_MAX = 4


class MissingAccounts:
    """Requests missing accounts, and stores the answers until they can be adopted.

    They are not adopted at once, because a running decision may be reading the same
    cache.
    """

    def __init__(self, state: SchedulerState, adoption: AccountAdoption) -> None:
        self._state = state
        self._adoption = adoption
        self._tasks: dict[asyncio.Task[None], list[str]] = {}
        # Each page has the number of messages that this run had read at its request.
        self._arrived: list[tuple[int, AccountsPage]] = []
        # None means that the accounts of the previous run are unknown.
        self._settled: dict[str, list[str]] | None = None

    @property
    def arrived(self) -> bool:
        """Return whether some received accounts are not adopted yet."""
        return bool(self._arrived)

    def adopt(self) -> None:
        """Adopt the received accounts.

        They decide which clusters take new replicas. After a takeover, a cluster that
        answers must first receive the epoch. Another scheduler that takes over an older
        state than this one detects its mistake by that epoch.
        """
        pages, self._arrived = self._arrived, []
        for asked_at, page in pages:
            untold = self._untold(page)
            self._state.raise_epoch(page.accounts.epoch)
            for workflow_id in page.answered:
                if workflow_id not in untold:
                    self._state.unresponsive.pop(workflow_id, None)
            for workflow_id in page.unresponsive:
                # The next query begins with the other entities.
                if (
                    clusters := self._state.unresponsive.pop(workflow_id, None)
                ) is not None:
                    self._state.unresponsive[workflow_id] = clusters
            added = self._adoption.adopt(page.accounts, asked_at)
            self._adoption.await_unknown_clusters(added)
            if any(
                workflow_id.startswith("modeldeployment/")
                for workflow_id in page.answered
            ):
                # Only their deployment knows these replicas, so each may be gone by
                # now.
                self._adoption.check_unlisted(added, ())
            self._state.untold += [
                workflow_id
                for workflow_id in untold
                if workflow_id not in self._state.asked_again
            ]
        self.settle()

    def _untold(self, page: AccountsPage) -> list[str]:
        """Return the clusters without the present epoch, after a takeover."""
        state = self._state
        if state.takeover is None:
            return []
        reports = [
            report for report in page.accounts.read_clusters() if not report.gone
        ]
        for report in reports:
            state.raise_epoch(report.epoch)
        of_another = {
            names.workflow_id("InferenceCluster", "", report.name)
            for report in reports
            if report.epoch != state.epoch
        }
        return [
            workflow_id for workflow_id in page.answered if workflow_id in of_another
        ]

    def settle(self) -> None:
        """Allow new replicas on clusters without missing accounts."""
        if self._state.unresponsive != self._settled:
            self._settled = dict(self._state.unresponsive)
            self._adoption.allow_accounted()

    def ask(self) -> None:
        """Request all missing accounts. Earlier requests continue."""
        self._tasks = {
            task: ids for task, ids in self._tasks.items() if not task.done()
        }
        asked_again, self._state.asked_again = self._state.asked_again, []
        running = {workflow_id for ids in self._tasks.values() for workflow_id in ids}
        new = [
            name
            for name in self._state.unresponsive
            if name not in self._state.untold
            and (name not in running or name in asked_again)
        ]
        if not new:
            return
        if len(self._tasks) >= _ACTIVITIES_MAX:
            self._cancel()
            new = list(self._state.unresponsive)
        self._tasks[asyncio.create_task(self._await(new))] = new

    async def _await(self, workflow_ids: Iterable[str]) -> None:
        entities, asked_at = (
            dict.fromkeys(workflow_ids, ""),
            self._adoption.messages_read,
        )
        summary = f"wait for the accounts of {len(entities)} entities"
        wanted = ReadAccounts(
            epoch=self._state.epoch,
            entities=pack(entities),
            clusters_untold=self._state.takeover is not None,
            charged=pack(self._adoption.charged(entities)),
        )
        options = activity_options.remote(_AWAIT, summary)
        page = await until_accepted(
            lambda: workflow.execute_activity(await_accounts, wanted, **options),
            summary,
        )
        self._arrived.append((asked_at, page))

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks = {}

    async def stop(self) -> None:
        """Stop the queries before continue-as-new. The next run repeats them."""
        tasks = list(self._tasks)
        self._cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
