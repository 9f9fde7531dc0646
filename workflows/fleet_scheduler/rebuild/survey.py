"""The rebuild of a scheduler without state: a survey of all entities in steps.

It ends before the first decision. Its progress is carried, so a fleet that is too large
for one run is read in several.
"""

from collections.abc import Mapping
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.workflow import ActivityConfig

from api_types import queues
from api_types.payloads.packing import pack
from workflows.entity.calls import activity_options
from workflows.entity.calls.refusals import until_accepted
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SurveyProgress
from workflows.fleet_scheduler.rebuild.activities import (
    EntityPage,
    ListEntities,
    ReadAccounts,
    list_for_rebuild,
    read_accounts,
)
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption, replica_id

# One page: a round of queries takes half a minute at most.
_PAGE = ActivityConfig(
    task_queue=queues.WORKFLOWS,
    start_to_close_timeout=timedelta(seconds=90),
    heartbeat_timeout=timedelta(seconds=30),
    retry_policy=RetryPolicy(
        initial_interval=timedelta(milliseconds=200),
        maximum_interval=timedelta(seconds=10),
    ),
)

_REPLICAS = ["ModelReplica"]
_DEPLOYMENTS = ["ModelDeployment"]
# Deployments come before replicas: a replica that starts meanwhile is in one of the
# answers. Both are listed twice, because one listing may omit some. Clusters are last:
# each lists the replicas whose objects it sees, and only unreported ones are queried.
_STEPS = (
    _DEPLOYMENTS,
    _REPLICAS,
    _DEPLOYMENTS,
    _REPLICAS,
    ["InferenceClass", "InferenceCluster"],
)
_SECOND_DEPLOYMENTS, _SECOND_REPLICAS = 2, 3
# Visibility lists an entity within a second of its start. The listing after this time
# has the entities that the first one omitted.
_LISTED_WITHIN = timedelta(seconds=2)


class Rebuild:
    """Reads the accounts of all entities into the cache."""

    def __init__(self, cache: SchedulerCache, adoption: AccountAdoption) -> None:
        self._cache = cache
        self._state = cache.state
        self._adoption = adoption

    def begin(self) -> None:
        """Draw an epoch, and begin without any state."""
        self._state.epoch = max(self._state.epoch + 1, self._cache.now())
        self._state.rebuild, self._state.takeover, self._state.untold = False, None, []
        self._start()

    def _start(self) -> None:
        self._cache.forget_fleet()
        self._state.survey = SurveyProgress()

    async def run(self) -> None:
        """Continue until all entities are read, or until this run should end.

        The next run continues.
        """
        while (
            progress := self._state.survey
        ) is not None and not workflow.info().is_continue_as_new_suggested():
            if progress.step == len(_STEPS):
                self._state.survey, self._state.announced = None, self._state.epoch
                self._adoption.await_unknown_clusters(self._cache.fleet.entries())
                self._adoption.allow_accounted()
                return
            kinds = _STEPS[progress.step]
            if progress.step == _SECOND_DEPLOYMENTS and not (
                progress.after or progress.left or progress.listed
            ):
                await workflow.sleep(
                    _LISTED_WITHIN,
                    summary="wait until visibility lists what was just started",
                )
            if kinds == _REPLICAS:
                await self._check_replicas()
            else:
                await self._read_all(progress, kinds)

    async def _read_all(self, progress: SurveyProgress, kinds: list[str]) -> None:
        """Read the next page of some kinds, without deployments that were read."""
        if progress.left:
            await self._read(progress.left)
            return
        if progress.listed:
            self._next_step()
            return
        listed = await self._list(kinds, progress.after)
        unread = {
            workflow_id: cluster
            for workflow_id, cluster in listed.read().items()
            if not self._was_read(workflow_id)
        }
        self._state.survey = progress.model_copy(
            update={
                "after": listed.after,
                "left": pack(unread) if unread else "",
                "listed": not listed.after,
            }
        )

    def _was_read(self, workflow_id: str) -> bool:
        """Return whether a deployment has received the epoch and a query.

        An unresponsive deployment is queried again elsewhere.
        """
        kind, _, name = workflow_id.partition("/")
        return kind == "modeldeployment" and (
            workflow_id in self._state.unresponsive
            or bool(self._cache.deployments[name].uid)
        )

    async def _check_replicas(self) -> None:
        """Read the accounts of replicas that no deployment has listed.

        Request the accounts of charged replicas that visibility omits.
        """
        seen: set[str] = set()
        while (
            progress := self._state.survey
        ) is not None and not workflow.info().is_continue_as_new_suggested():
            if progress.left:
                await self._read(progress.left)
            elif progress.listed:
                if progress.step == _SECOND_REPLICAS:
                    self._adoption.check_unlisted(
                        list(self._cache.fleet.entries()), seen
                    )
                self._next_step()
                return
            else:
                listed = await self._list(_REPLICAS, progress.after if seen else "")
                entities = listed.read()
                seen.update(entities)
                charged = {replica_id(entry) for entry in self._cache.fleet.entries()}
                unknown = {
                    workflow_id: cluster
                    for workflow_id, cluster in entities.items()
                    if workflow_id not in charged
                }
                self._state.survey = progress.model_copy(
                    update={
                        "after": listed.after,
                        "left": pack(unknown) if unknown else "",
                        "listed": not listed.after,
                    }
                )

    async def _list(self, kinds: list[str], after: str) -> EntityPage:
        wanted, summary = (
            ListEntities(kinds=kinds, after=after),
            f"list {', '.join(kinds)}",
        )
        options = activity_options.remote(_PAGE, summary)
        return await until_accepted(
            lambda: workflow.execute_activity(list_for_rebuild, wanted, **options),
            summary,
        )

    async def _read(self, left: str) -> None:
        """Read one page of accounts.

        An epoch greater than that of this scheduler restarts the rebuild, with a still
        greater one.
        """
        wanted, summary = (
            ReadAccounts(epoch=self._state.epoch, entities=left),
            f"read accounts for epoch {self._state.epoch}",
        )
        options = activity_options.remote(_PAGE, summary)
        page = await until_accepted(
            lambda: workflow.execute_activity(read_accounts, wanted, **options), summary
        )
        if page.accounts.epoch > self._state.epoch:
            self._state.epoch = page.accounts.epoch + 1
            self._start()
            return
        self._adoption.adopt(page.accounts)
        self._state.unresponsive |= holding(page.unresponsive)
        self._state.survey = (
            self._state.survey.model_copy(update={"left": page.left})
            if self._state.survey
            else None
        )

    def _next_step(self) -> None:
        progress = self._state.survey
        if progress is not None:
            self._state.survey = SurveyProgress(step=progress.step + 1)


def holding(unresponsive: Mapping[str, str]) -> dict[str, list[str]]:
    """Return unresponsive entities, with the clusters that they block."""
    return {
        workflow_id: [cluster] if cluster else []
        for workflow_id, cluster in unresponsive.items()
    }
