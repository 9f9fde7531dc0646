"""ModelCache: stages the same revision of weights on every cluster that it selects.

It pins the revision, fills a volume on each cluster, and retries failed downloads. It
assigns new artifacts to its users one after the other, and deletes only volumes that no
pod mounts. A temporarily missing storage class, a deleted token or an unavailable hub
never causes the deletion of a volume.
"""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from activities.render.inputs.findings import InvalidSpec
from api_types import names
from api_types.messages.caches import CacheSite, CacheUse
from api_types.messages.entities import SecretsChanged
from api_types.messages.observations import Observed
from api_types.messages.signals import ModelCacheSignals
from workflows.entity.calls.sending import REPEAT_BROADCAST
from workflows.entity.conditions import FALSE, TRUE, condition_of, is_true
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.periods import RESYNC
from workflows.entity.start import read_carried
from workflows.model_cache.claims import claims_in_use
from workflows.model_cache.clusters import SURVEY_EVERY_RESYNCS, StagingClusters
from workflows.model_cache.credential import CredentialWatch
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import is_downloading
from workflows.model_cache.reports import account
from workflows.model_cache.results import reset_backoff, write_copies_again
from workflows.model_cache.revision import RevisionResolver
from workflows.model_cache.spec import (
    artifact_of,
    desired_staging,
    match_labels,
    nothing_staged,
)
from workflows.model_cache.staging import Staging
from workflows.model_cache.state import CacheState, ClusterStaging
from workflows.model_cache.status import (
    ClusterPhase,
    artifact_verdict,
    by_name,
    cluster_phases,
    details_table,
    matched_verdict,
    no_clusters,
    ready_verdict,
    removal_progress,
    status_fields,
    unresolved,
)
from workflows.model_cache.users import Users

# How often a new cache announces itself.
ANNOUNCEMENTS = 2

# The first pause between checks whether users still run, while a deletion waits for
# them. It doubles each time, because deleting the users may take days.
CHECK_USERS = timedelta(minutes=1)


@workflow.defn(name="ModelCache")
class ModelCacheWorkflow(Entity[CacheState]):
    """Workflow ID: modelcache/<namespace>/<name>.

    It ends when the cache is deleted and no cluster holds its objects.
    """

    kind = "ModelCache"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, CacheState) or CacheState())
        self.clusters = StagingClusters(self.context)
        self.revision = RevisionResolver(self.context)
        self.credential = CredentialWatch(self.context)
        self.staging = Staging(self.context)
        self.users = Users(self.context)
        self.users_checked = self.context.moment()
        self.removing = False

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the cache is deleted and no cluster holds its objects."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(ModelCacheSignals.CLUSTER_CHANGED)
    def cluster_changed(self, message: CacheSite) -> None:
        """Record a report of a cluster."""
        self.clusters.reported(message)

    @handles(ModelCacheSignals.CACHE_USED)
    def cache_used(self, message: CacheUse) -> None:
        """Record a user of this cache, and the claims that its pods mount."""
        self.users.register(message)

    @handles(ModelCacheSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Record an observer's report about this cache's objects."""
        if message.owner_uid != self.state.uid or message.cache is None:
            return
        staging = self.state.stagings.get(message.cache.cluster)
        if staging is None:
            return
        version = staging.observed_version.allowing(staging.site_version.uid)
        if version.accepts(message.order, staging.site_version.uid):
            staging.observed_version = version.advanced(message.order)
            for loss in record_observation(
                staging, message.cache, self.context.moment()
            ):
                self.context.record_event("Warning", "VolumeLost", loss)
            self.context.requeue()

    @handles(ModelCacheSignals.SECRETS_CHANGED)
    def secrets_changed(self, message: SecretsChanged) -> None:
        """Apply the Secrets of running Jobs again.

        A pod that waits for a pull secret continues. A running Job uses the change in
        its next pod.
        """
        if message.uid == self.state.uid:
            write_copies_again(self.state.stagings.values())
            self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Return the known clusters with objects of this cache."""
        return account(self.namespace, self.name, self.state).wire()

    # Hooks of the entity

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Query all clusters again and retry failed steps.

        A new spec or the refresh annotation may have fixed the failures.
        """
        del new_generation
        self.clusters.survey_for_new_spec()
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        """Retry all failed steps now."""
        for staging in self.state.stagings.values():
            staging.retry_at, staging.errors = "", 0
            for copy in staging.copies:
                reset_backoff(copy)
        self.revision.retry()

    def receivers(self) -> list[str]:
        """Return the clusters on which this cache is registered."""
        return [
            names.workflow_id("InferenceCluster", "", name)
            for name, staging in self.state.stagings.items()
            if staging.registered and staging.site.present
        ]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Query lost clusters. Their last report may have missed this cache."""
        for name, staging in self.state.stagings.items():
            if names.workflow_id("InferenceCluster", "", name) in workflow_ids:
                staging.doubted = True

    def on_resync(self) -> None:
        """In every sixth resync, query all clusters and apply incomplete artifacts.

        Both cost several history events. A Job that nobody has observed is applied in
        every resync: it may have ended before the workflow was reset.
        """
        self.state.resyncs += 1
        of_all = self.state.resyncs % SURVEY_EVERY_RESYNCS == 0
        for staging in self.state.stagings.values():
            for copy in staging.copies:
                is_unobserved = is_downloading(copy) and not copy.job_observed
                if not copy.ready_at and (of_all or is_unobserved):
                    copy.applied_generation = 0
        if of_all:
            self.clusters.repeat_survey()

    async def stop_background_tasks(self) -> None:
        """Stop all background tasks. The next run starts them again."""
        await self.credential.stop()
        await self.staging.stop()

    # One pass

    async def reconcile(self) -> bool:
        """Run one pass: tear down a deleted cache, or else stage the artifact."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        try:
            await self.stage()
        except InvalidSpec as error:
            # The renderer validates image references more strictly than the admission.
            self.context.set_condition(
                "SpecAccepted", FALSE, "InvalidInput", str(error)
            )
            self.context.set_condition("Ready", FALSE, "InvalidInput", str(error))
        return False

    async def stage(self) -> None:
        """Run one pass to stage the artifact on the selected clusters."""
        origin = artifact_of(self.namespace, self.name, self.state).origin
        if self.state.announcements < ANNOUNCEMENTS:
            await self.users.announce()
            self.state.announcements += 1
            self.context.requeue_after(REPEAT_BROADCAST)
        await self.clusters.survey()
        if self.state.stagings:
            self.revision.learn()
            await self.revision.pin()
        desired = (
            None
            if self.revision.is_awaited()
            else desired_staging(self.namespace, self.name, self.state)
        )
        if not self.state.deleting:
            if desired:
                await self.staging.start_steps(desired)
            self.credential.update(desired)
        self.update_conditions(origin)
        await self.users.report()
        self.state.observed_generation = self.state.generation

    def update_conditions(self, origin: str) -> None:
        """Update the conditions, and record events for changes."""
        stagings, phases = self.ordered(), self.phases()
        current = [staging.copies[0] for staging in stagings if staging.copies]
        credentials = [copy.missing_credential for copy in current]
        missing = next(filter(None, credentials), "")
        no_cluster = no_clusters(self.state)
        matched = matched_verdict(phases, no_cluster)
        artifact = artifact_verdict(phases, missing, no_cluster)
        last = condition_of(self.state.conditions, "ArtifactReady")
        self.context.set_condition("ClustersMatched", *matched)
        self.context.set_condition("ArtifactReady", *artifact)
        selected = [each.cluster for each in phases if each.selected]
        if (
            selected
            and artifact.status != TRUE
            and (last is None or last.reason == "NoClusters")
        ):
            self.context.record_event(
                "Normal",
                "Staging",
                f"Staging {origin} to {len(selected)} clusters: {', '.join(selected)}",
            )
        if artifact.reason in ("AuthSecretMissing", "NoClusters") and (
            last is None or last.reason != artifact.reason
        ):
            self.context.record_event("Warning", artifact.reason, artifact.message)
        if artifact.status == TRUE and not is_true(self.state.conditions, "Ready"):
            self.context.record_event(
                "Normal",
                "Staged",
                f"{origin} is staged on all {len(selected)} clusters",
            )
            self.state.was_ready = True
        self.context.set_condition(
            "Ready", *ready_verdict(artifact, was_ready=self.state.was_ready)
        )

    # Teardown

    def waits_for_users(self) -> bool:
        """Return whether replicas mount the cache and nothing has been deleted yet."""
        return (
            bool(self.users.mounting()) and not self.state.forced and not self.removing
        )

    async def tear_down(self) -> bool:
        """Wait for the last user, then remove the cache from all clusters.

        Return True when nothing is left.
        """
        self.context.set_condition("Ready", FALSE, "Deleting", "")
        if not self.state.surveys:
            # A cache that is deleted before its first pass does not know yet which
            # clusters an earlier cache of its name has left.
            await self.clusters.survey()
        check_at = self.users_checked + self._users_pause
        is_due = check_at <= self.context.moment()
        if self.users.mounting() and not self.state.forced and is_due:
            self.users_checked = self.context.moment()
            self.state.users_checks += 1
            await self.users.drop_terminated()
        replicas = self.users.mounting()
        if replicas and not self.state.forced:
            users = ", ".join(replicas)
            self.context.set_condition(
                "Deleting",
                FALSE,
                "InUse",
                f"used by ModelReplica {users}; delete them or remove their modelCacheRef",
            )
            await self.users.report()
            self.context.requeue_at(self.users_checked + self._users_pause)
            return False
        if self.state.forced == "step" and replicas:
            self.state.forced = ""
        elif self.state.forced:
            await self.staging.leave_behind("deletion was forced")
        if not self.removing:
            # An artifact that is still being staged would be removed right away.
            self.removing = True
            await self.stop_background_tasks()
        self.users.release_all()
        await self.staging.start_steps(nothing_staged(self.state))
        if self.state.stagings:
            self.context.set_condition(
                "Deleting", FALSE, "TearingDown", removal_progress(self.ordered())
            )
            return False
        self.clusters.list_what_silent_clusters_may_have()
        await self.users.report_gone()
        return True

    @property
    def _users_pause(self) -> timedelta:
        """The pause before the next question to the users.

        It grows with each question, also in the next run.
        """
        doubled: int = 1 << min(self.state.users_checks, 8)
        return min(CHECK_USERS * doubled, RESYNC)

    # Status

    def ordered(self) -> list[ClusterStaging]:
        """Return the clusters, sorted by name."""
        return by_name(self.state.stagings)

    def phases(self) -> list[ClusterPhase]:
        """Return the phase on each cluster, sorted by name."""
        return cluster_phases(
            self.ordered(), match_labels(self.state.spec), unresolved(self.state.pin)
        )

    def phase(self) -> str:
        """Return the phase.

        The cache is Failed if it failed on all clusters, and Degraded if it was ready
        before and is now complete on some clusters only.
        """
        phase = super().phase()
        artifact = condition_of(self.state.conditions, "ArtifactReady")
        if phase == "Progressing" and artifact and artifact.reason == "Failed":
            return "Failed"
        return "Degraded" if phase == "Progressing" and self.state.was_ready else phase

    def details(self) -> list[str]:
        """Return a table of the clusters for the Temporal UI."""
        return details_table(self.phases())

    def status(self) -> dict[str, Any]:
        unselected = [
            name
            for name, staging in self.state.stagings.items()
            if staging.unselected_since
        ]
        retained = [
            name for name in unselected if claims_in_use(self.state.users, name)
        ]
        return status_fields(self.state, self.phases(), retained)
