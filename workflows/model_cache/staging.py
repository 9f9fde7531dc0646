"""Run the steps of a ModelCache on its clusters: one at a time on each cluster.

Steps on several clusters run concurrently. Each step is an activity in the background,
so a cluster that does not answer does not delay others. Results are recorded when a
step ends. A step whose result is lost is repeated, because every step is idempotent.
"""

import asyncio
from collections.abc import Mapping

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.caches.activities import CacheActivities
from activities.render.objects.teardown import CACHE_STEPS
from api_types.messages.caches import ApplyCache, CacheOnCluster, DeleteCacheObjects
from api_types.messages.cluster_work import Connection
from api_types.messages.delivery import entity
from api_types.messages.signals import InferenceClusterSignals
from workflows.entity.calls import activity_options
from workflows.entity.context import EntityContext
from workflows.entity.failures import failure_of
from workflows.model_cache.claims import claims_in_use
from workflows.model_cache.plan import (
    NextStep,
    can_forget,
    first_to_stage,
    is_on_cluster,
    must_remove,
    next_check,
    next_step,
    turn_ends,
)
from workflows.model_cache.results import (
    begin_turn,
    drop_what_is_elsewhere,
    left_behind,
    left_by_label,
    not_taken_over,
    record_applied,
    record_deleted,
    record_failure,
    record_success,
    update_selection,
)
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, CacheState, ClusterStaging

# The number of clusters on which one cache works at once.
CONCURRENCY = 16


class Staging:
    """Stages artifacts on clusters and removes them."""

    def __init__(self, context: EntityContext[CacheState]) -> None:
        self.context = context
        self.state = context.state
        self.running: dict[str, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        """Cancel all running steps. The next pass or the next run starts them again."""
        running = list(self.running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.running = {}

    async def start_steps(self, desired: DesiredStaging) -> None:
        """Start the next step on each cluster, and requeue for later steps."""
        now = self.context.moment()
        self._collect_finished()
        first = self._first(desired)
        for name, staging in sorted(self.state.stagings.items()):
            if name in self.running:
                continue
            used = claims_in_use(self.state.users, name)
            update_selection(staging, desired, now, first)
            must_go = must_remove(staging, desired, used, now)
            if must_go and self._drop_what_is_elsewhere(staging):
                self.context.mark_changed()
            if can_forget(staging, desired, used, now):
                await self._forget(name)
                continue
            step = next_step(staging, desired, used, now)
            if step and len(self.running) < CONCURRENCY:
                self.running[name] = asyncio.create_task(self._do(staging, step))
            elif not step:
                time = next_check(staging, used, now)
                if time:
                    self.context.requeue_at(time)

    def _first(self, desired: DesiredStaging) -> str:
        """Return the first cluster to stage an unresolved reference.

        Requeue for the end of its turn.
        """
        now = self.context.moment()
        first = first_to_stage(self.state.stagings, desired, now)
        begin_turn(self.state.stagings, first, now)
        if first and self.state.stagings[first].turn_began:
            self.context.requeue_at(turn_ends(self.state.stagings[first]))
        return first

    def _drop_what_is_elsewhere(self, staging: ClusterStaging) -> bool:
        """Drop artifacts without objects on the cluster; return whether there were any.

        No deletion has to wait for them.
        """
        if all(is_on_cluster(staging, copy) for copy in staging.copies):
            return False
        drop_what_is_elsewhere(staging)
        return True

    def _collect_finished(self) -> None:
        for name, task in list(self.running.items()):
            if task.done():
                del self.running[name]
                if not task.cancelled():
                    task.result()
            elif (
                name in self.state.stagings
                and not self.state.stagings[name].site.present
            ):
                # No worker serves a deleted cluster, so the step would never end.
                task.cancel()

    async def _forget(self, name: str) -> None:
        """Drop a cluster without artifacts, or one that no longer exists."""
        staging = self.state.stagings.pop(name)
        if not staging.site.present and (staging.copies or self.state.reset):
            self.context.record_event(
                "Warning",
                "Abandoned",
                f"InferenceCluster {name} was deleted; volumes on it may still exist",
            )
            self._list({name: staging}, f"InferenceCluster {name} was deleted")
        if staging.registered and staging.site.present:
            await self._register(name, staged=False)
        self.context.mark_changed()

    # Steps

    async def _do(self, staging: ClusterStaging, step: NextStep) -> None:
        """Run one step on one cluster and record its result."""
        try:
            if step.kind == "stage":
                await self._stage(staging, step)
            else:
                await self._remove(staging, step)
            record_success(staging)
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self._record_failure(staging, error)
        except asyncio.CancelledError:
            self.context.mark_changed()
            raise
        # Do not use a `finally` block here: Python runs it also when a worker evicts
        # the run, and the workflow has no clock then.
        self.context.mark_changed()

    def _record_failure(self, staging: ClusterStaging, error: ActivityError) -> None:
        failure = failure_of(error)
        record_failure(staging, failure, self.context.moment())
        self.context.record_event(
            "Warning", failure.type, f"{staging.site.name}: {failure.message}"
        )

    async def _stage(self, staging: ClusterStaging, step: NextStep) -> None:
        copy = step.copy
        connection, cluster = staging.site.connection, staging.site.name
        if connection is None:
            return
        if not staging.registered:
            # Register before the first apply: a cluster that is being deleted waits for
            # registered caches.
            staging.registered = True
            if not await self._register(cluster, staged=True):
                staging.site = staging.site.model_copy(update={"present": False})
                return
        was_clean = copy.cleaned_up
        # The call may make a Job and a credential, and fail afterwards.
        copy.cleaned_up = was_clean and not step.hydrate
        order = self._order(staging, copy, connection, hydrate=step.hydrate)
        summary = f"stage {self.context.name} on {cluster}"
        applied = await workflow.execute_activity_method(
            CacheActivities.apply_cache,
            order,
            **activity_options.on_cluster(
                activity_options.CACHE_CALL, summary, connection.task_queue
            ),
        )
        if order.hydrate:
            self.state.credential = applied.credential_version
        record_applied(
            staging,
            copy,
            order.generation,
            applied,
            self.context.moment(),
            was_clean=was_clean,
        )
        self.state.left_behind = not_taken_over(self.state.left_behind, cluster)
        if applied.adopted:
            self.context.record_event(
                "Normal",
                "Adopted",
                f"{cluster}: adopted volume claim {applied.claim} of an earlier run",
            )
        for warning in applied.warnings:
            self.context.record_event("Warning", "Staging", f"{cluster}: {warning}")

    async def _register(self, cluster: str, *, staged: bool) -> bool:
        """Report to a cluster whether it holds objects of this cache.

        Return False if the cluster's workflow has ended. A local activity must never
        send this signal. Several clusters are worked on concurrently. During a replay
        the results of local activities arrive all at once, so the steps between them
        would run in another order.
        """
        report = CacheOnCluster(
            cache=f"{self.context.namespace}/{self.context.name}",
            uid=self.state.uid,
            sequence=self.context.next_registration(),
            staged=staged,
        )
        return await self.context.signal_recorded(
            entity(InferenceClusterSignals, "", cluster),
            InferenceClusterSignals.CACHE_STAGED,
            report,
        )

    def _order(
        self,
        staging: ClusterStaging,
        copy: CacheCopy,
        connection: Connection,
        *,
        hydrate: bool,
    ) -> ApplyCache:
        pin = self.state.pin
        revision = pin.revision if pin and not copy.literal else ""
        return ApplyCache(
            connection=connection,
            cluster=staging.site.name,
            namespace=self.context.namespace,
            name=self.context.name,
            uid=self.state.uid,
            generation=self.state.generation,
            spec=self.state.spec or {},
            # An artifact that was staged by an unresolved reference is named after the
            # reference.
            revision=revision,
            storage_class_name=staging.storage_class,
            scheduler_type=staging.site.scheduler_type,
            hydrate=hydrate,
            failed_job_uid=copy.failed_job_uid,
        )

    async def _remove(self, staging: ClusterStaging, step: NextStep) -> None:
        connection, cluster = staging.site.connection, staging.site.name
        if step.copy.by_pods:
            # Only pods and nodes hold the data. There are no objects on the cluster.
            record_deleted(staging, step)
            return
        if connection is None:
            return
        titles = ", ".join(
            each.title for each in CACHE_STEPS if each.number in step.teardown_steps
        )
        order = DeleteCacheObjects(
            connection=connection,
            cluster=cluster,
            namespace=self.context.namespace,
            uid=step.copy.owner_uid or self.state.uid,
            claim=step.copy.claim,
            steps=list(step.teardown_steps),
            search=step.kind == "remove" and staging.copies == [step.copy],
        )
        done = await workflow.execute_activity_method(
            CacheActivities.delete_cache_objects,
            order,
            **activity_options.on_cluster(
                activity_options.LONG_WAIT,
                f"{cluster}: {titles}",
                connection.task_queue,
            ),
        )
        for skipped in done.skipped:
            self.context.record_event(
                "Warning", "NotOwned", f"{cluster}: not deleted: {skipped}"
            )
        if done.skipped and step.kind == "remove":
            # A terminated cache of this name may have left these objects.
            why = f"not deleted: {done.skipped[0]}"
            left = left_by_label(
                self.context.namespace, self.context.name, cluster, why
            )
            self.state.add_left_behind([left])
        record_deleted(staging, step, done.earlier)

    async def leave_behind(self, reason: str) -> None:
        """Give up all clusters, and list the objects that may stay there."""
        self._list(self.state.stagings, reason)
        given_up, self.state.stagings = self.state.stagings, {}
        for name, staging in sorted(given_up.items()):
            if staging.registered and staging.site.present:
                await self._register(name, staged=False)

    def _list(self, stagings: Mapping[str, ClusterStaging], reason: str) -> None:
        namespace, name = self.context.namespace, self.context.name
        self.state.add_left_behind(left_behind(stagings, namespace, reason))
        if self.state.reset:
            # The copies of the tasks that were reset are unknown.
            self.state.add_left_behind(
                [left_by_label(namespace, name, each, reason) for each in stagings]
            )
