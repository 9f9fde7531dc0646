"""How a ModelCache works on its clusters: one step at a time on each, many clusters side by side.

Each step is one activity in the background, so that a cluster that does not answer delays no other. What a step did is noted when it ends;
one that was lost is done again, for all of them may be.
"""

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError, is_cancelled_exception

from activities.caches.activities import CacheActivities
from activities.messaging import EntityClient
from activities.render.objects.teardown import CACHE_STEPS
from api_types import names
from api_types.errors import error_message, error_type, is_permanent
from api_types.messages.caches import ApplyCache, CacheApplied, CacheOnCluster, DeleteCacheObjects
from api_types.messages.cluster_work import Connection, TeardownStepResult
from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.resources.status import LeftBehind
from workflows.entity import activity_options, backoff
from workflows.model_cache.plan import NextStep, Wanted, absorb, chooses, follow, must_leave, next_deed, next_look
from workflows.model_cache.state import ClusterStaging, Copy
from workflows.model_cache.users import CacheUsers

# Clusters that are worked on at once by one cache.
AT_ONCE = 16


class CacheStaging(CacheUsers):
    """The part of a cache that brings artefacts to clusters and takes them away."""

    def __init__(self, state: Any) -> None:
        super().__init__(state)
        self.at_work: dict[str, asyncio.Task[None]] = {}

    @abstractmethod
    def order(self, place: ClusterStaging, copy: Copy, connection: Connection, *, hydrate: bool) -> ApplyCache:
        """Say all that is needed to stage an artefact."""

    async def stop_background_tasks(self) -> None:
        """End what runs on clusters; the next run begins it again."""
        running = list(self.at_work.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.at_work = {}

    async def work(self, wanted: Wanted) -> None:
        """Begin the next step on every cluster that has one, and note when to look again."""
        now = workflow.now()
        for name, task in list(self.at_work.items()):
            if task.done():
                del self.at_work[name]
                if not task.cancelled():
                    task.result()
            elif name in self.state.places and not self.state.places[name].site.present:
                # Nobody answers there any more; what waits for it would wait for ever.
                task.cancel()
        for name, place in sorted(self.state.places.items()):
            if name in self.at_work:
                continue
            used = self.used_on(name)
            follow(place, wanted, now)
            if not place.site.present or (not place.copies and self._is_of_no_use(place, wanted, used)):
                await self._forget(name)
                continue
            deed = next_deed(place, wanted, used, now)
            if deed and len(self.at_work) < AT_ONCE:
                self.at_work[name] = asyncio.create_task(self._do(place, deed))
            elif not deed and (at := next_look(place, used)):
                self.requeue_after(at - now)

    def _is_of_no_use(self, place: ClusterStaging, wanted: Wanted, used: frozenset[str]) -> bool:
        return must_leave(place, wanted, used, workflow.now()) or not chooses(wanted.match_labels, place.site)

    async def _forget(self, name: str) -> None:
        """Let go of a cluster where nothing is left, or whose record is gone."""
        place = self.state.places.pop(name)
        if not place.site.present and place.copies:
            self.event("Warning", "Abandoned", f"InferenceCluster {name} was deleted; its volumes went with it or stay there")
        if place.registered and place.site.present:
            await self.tell(names.workflow_id("InferenceCluster", "", name), "cache_staged", self._on_cluster(staged=False))
        self.touch()

    def _on_cluster(self, *, staged: bool) -> CacheOnCluster:
        return CacheOnCluster(cache=f"{self.namespace}/{self.name}", staged=staged)

    async def _do(self, place: ClusterStaging, deed: NextStep) -> None:
        """Do one step on one cluster and note what came of it."""
        try:
            if deed.kind == "stage":
                await self._stage(place, deed)
            else:
                await self._remove(place, deed)
            place.error, place.errors, place.retry_at = ("", ""), 0, ""
        except ActivityError as error:
            if not is_cancelled_exception(error):
                self._note_failure(place, error)
        finally:
            self.touch()

    def _note_failure(self, place: ClusterStaging, error: ActivityError) -> None:
        kind = error_type(error) or "ClusterUnreachable"
        pause = backoff.permanent(place.errors) if is_permanent(kind) else backoff.transient(place.errors)
        place.error, place.errors = (kind, error_message(error)), place.errors + 1
        place.retry_at = (workflow.now() + pause).isoformat()
        self.event("Warning", kind, f"{place.site.name}: {place.error[1]}")

    async def _stage(self, place: ClusterStaging, deed: NextStep) -> None:
        copy, connection, cluster = deed.copy, place.site.connection, place.site.name
        if connection is None:
            return
        if not place.registered:
            # Before anything is there: a cluster that is being deleted waits for whoever has something on it.
            place.registered = True
            if not await self._announce_on(cluster):
                place.site = place.site.model_copy(update={"present": False})
                return
        copy.tidy = copy.tidy and not deed.hydrate
        order = self.order(place, copy, connection, hydrate=deed.hydrate)
        applied = await self._on(
            connection,
            CacheActivities.apply_cache,
            order,
            activity_options.remote(activity_options.CLUSTER_CALL, f"stage {self.name} on {cluster}"),
        )
        self._note_applied(place, copy, order, applied)

    async def _announce_on(self, cluster: str) -> bool:
        """Tell a cluster that something will be there; False when it does not run.

        No local activity as elsewhere: several clusters are worked on side by side, and what local activities gave one by one, a replay
        gives all at once, so that the steps between them would take other turns.
        """
        payload = self._on_cluster(staged=True).wire()
        tell = SignalRequest(workflow_id=names.workflow_id("InferenceCluster", "", cluster), signal="cache_staged", payload=payload)
        words = f"tell {cluster} that {self.name} comes"
        told = await workflow.execute_activity_method(
            EntityClient.tell_many, SignalBatch(signals=[tell]), **activity_options.remote(activity_options.ENTITY_BATCH, words)
        )
        return not told.missing

    def _note_applied(self, place: ClusterStaging, copy: Copy, order: ApplyCache, applied: CacheApplied) -> None:
        copy.applied, copy.digest, copy.warning = order.generation, applied.volume_digest, "; ".join(applied.warnings)
        for warning in applied.warnings:
            self.event("Warning", "Staging", f"{place.site.name}: {warning}")
        copy.missing = applied.credential_missing
        if order.hydrate:
            self.state.credential = applied.credential_version
        if applied.job_uid and applied.job_uid != copy.job:
            copy.job, copy.seen, copy.attempts = applied.job_uid, False, copy.attempts + 1
            copy.failure, copy.exit_code, copy.started_at = "", 0, self.now()
        if copy.missing:
            copy.tidy = True
        if place.observed:
            absorb(place, place.observed, workflow.now(), fresh=False)

    async def _remove(self, place: ClusterStaging, deed: NextStep) -> None:
        connection, cluster = place.site.connection, place.site.name
        if connection is None:
            return
        titles = ", ".join(step.title for step in CACHE_STEPS if step.number in deed.steps)
        order = DeleteCacheObjects(
            connection=connection,
            cluster=cluster,
            namespace=self.namespace,
            uid=self.state.uid,
            claim=deed.copy.claim,
            steps=list(deed.steps),
        )
        done: TeardownStepResult = await self._on(
            connection,
            CacheActivities.delete_cache_objects,
            order,
            activity_options.remote(activity_options.UNTIL_GONE, f"{cluster}: {titles}"),
        )
        for skipped in done.skipped:
            self.event("Warning", "NotOurs", f"{cluster}: left alone: {skipped}")
        deed.copy.tidy = True
        if deed.kind == "leave":
            place.copies = [copy for copy in place.copies if copy is not deed.copy]

    @staticmethod
    def _on(connection: Connection, method: Any, order: Any, config: Any) -> Awaitable[Any]:
        queue = {"task_queue": connection.task_queue} if connection.task_queue else {}
        return workflow.execute_activity_method(method, order, **{**config, **queue})

    def leave_behind(self, why: str) -> None:
        """Give up every cluster and list what may stay there."""
        for name, place in sorted(self.state.places.items()):
            for copy in place.copies:
                for kind, suffix in (("Job", "-hyd"), ("Secret", "-auth"), ("PersistentVolumeClaim", "")):
                    if kind == "PersistentVolumeClaim" or not copy.tidy:
                        left = LeftBehind(kind=kind, name=f"{copy.claim}{suffix}", namespace=self.namespace, location=name, reason=why)
                        self.state.left_behind.append(left)
        self.state.places = {}
