"""ModelReplica: one complete serving instance on one cluster, from its first object to the last one deleted.

It applies its template, follows what is observed on the cluster, publishes its endpoint while it can serve, repairs drift, and is torn
down in order. Nothing missing or unreadable ever makes it delete: only its own deletion does.
"""

from typing import Any

from temporalio import workflow

from api_types.messages.caches import CacheChanged, CacheReport
from api_types.messages.entities import ClusterChanged, Delete, SetLabels, SetTemplate
from api_types.messages.observations import Observed
from api_types.messages.scheduling import Resync
from api_types.messages.signals import ModelReplicaSignals
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.model_replica.apply import ReplicaApply
from workflows.model_replica.cache import ReplicaCache
from workflows.model_replica.cluster import ReplicaCluster
from workflows.model_replica.decisions.plan import ApplyDecision, decide_apply
from workflows.model_replica.decisions.status import account_of, shared_phase, status_of
from workflows.model_replica.decisions.verdicts import Assessment, assess
from workflows.model_replica.pruning import ReplicaPruning
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState, ReplicaReport
from workflows.model_replica.teardown import ReplicaTeardown
from workflows.model_replica.template import apply_labels, apply_template, first_template


@workflow.defn(name="ModelReplica")
class ModelReplicaWorkflow(Entity[ModelReplicaState]):
    """Workflow id modelreplica/<namespace>/<name>; ends when the last step of its teardown is complete."""

    kind = "ModelReplica"

    @workflow.init
    def __init__(self, state: ModelReplicaState) -> None:
        super().__init__(state)
        self.cluster = ReplicaCluster(self.context)
        self.cache = ReplicaCache(self.context)
        self.reports = DeploymentReports(self.context)
        self.applying = ReplicaApply(self.context, self.reports)
        self.pruning = ReplicaPruning(self.context)
        self.teardown = ReplicaTeardown(self.context, self.cluster, self.cache, self.reports)
        if not state.uid:
            state.uid = state.start.uid
            self.adopt(first_template(state.start))

    @workflow.run
    async def run(self, state: ModelReplicaState) -> None:
        """Run until torn down."""
        del state
        await self.run_until_deleted()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Apply what changed, assess what is observed, report it; or take the next steps of the teardown."""
        if self.state.deleting:
            return await self.teardown.run()
        await self.cache.follow()
        if await self.cluster.ensure_connection_known():
            decision = decide_apply(self.state, workflow.now())
            self.record_decision(decision)
            if decision.reason:
                await self.applying.run(decision.reason)
        if self.state.deleting:
            return await self.teardown.run()
        self.record_assessment(assess(self.state))
        await self.cache.follow()
        await self.pruning.step()
        await self.reports.send()
        return False

    def record_decision(self, decision: ApplyDecision) -> None:
        """Store since when there is drift, and requeue for when to decide again."""
        self.state.drift_since = decision.drift_since
        if decision.check_at is not None:
            self.context.requeue_at(decision.check_at)

    def record_assessment(self, assessment: Assessment) -> None:
        """Write an assessment into conditions, events and state."""
        for kind, verdict in assessment.conditions.items():
            self.context.set_condition(kind, *verdict)
        for warning in assessment.warnings:
            self.context.record_event("Warning", *warning)
        self.state.serving, self.state.overdue = assessment.serving, assessment.overdue
        self.state.served = self.state.served or assessment.ready
        self.state.was_ready = self.state.was_ready or assessment.ready
        self.state.observed_generation = assessment.observed_generation

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @handles(ModelReplicaSignals.SET_TEMPLATE)
    def set_template(self, message: SetTemplate) -> None:
        """Adopt a newer template."""
        if not self.state.deleting and message.generation >= self.state.generation:
            self.adopt(message)

    @handles(ModelReplicaSignals.SET_LABELS)
    def set_labels(self, message: SetLabels) -> None:
        """Follow labels of users, and flags of the endpoint picker."""
        apply_labels(self.state, message)
        self.context.mark_changed()

    @handles(ModelReplicaSignals.CLUSTER_CHANGED)
    def cluster_changed(self, message: ClusterChanged) -> None:
        """Store the state of the cluster; what failed without a connection is retried at once when it is back."""
        if self.cluster.record_change(message):
            self.on_retry_requested()

    @handles(ModelReplicaSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Store what the watch of the cluster saw of this replica's objects."""
        if message.owner_uid != self.state.uid or message.replica is None:
            return
        self.state.observed = message.replica
        failure = self.state.teardown.failure if self.state.deleting else self.state.failure
        if failure.is_unreachable:
            # The cluster answers again: what failed because it did not need not wait for its backoff.
            self.state.retry_at = ""
        if failure.is_unreachable or not self.state.deleting:
            self.context.requeue()

    @handles(ModelReplicaSignals.CACHE_REPORT)
    def cache_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or why there is none yet."""
        self.cache.record_report(message)

    @handles(ModelReplicaSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        """Register anew at a cache that was created or deleted."""
        self.cache.record_change(message)

    @handles(ModelReplicaSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again to a deployment that lost its state."""
        del message
        self.repeat_reports()
        self.context.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what scheduler and deployment keep of a replica."""
        return account_of(self.state, gone=self.teardown.gone).wire()

    def adopt(self, template: SetTemplate) -> None:
        """Make a template the spec of this replica."""
        apply_template(self.state, template)
        self.context.mark_changed()

    # --- hooks of the entity ------------------------------------------------------------------------------------------------------

    def on_delete_requested(self, message: Delete) -> None:
        """Start the teardown at once, whatever the last apply was waiting for."""
        del message
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        """Reset the backoffs of apply, teardown and pruning, and compare copies of Secrets with their sources too."""
        self.state.retry_at = ""
        self.state.copies_due = self.context.now()
        self.state.prune_at, self.state.prune_attempts = "", 0

    def repeat_reports(self) -> None:
        """Report to the deployment again with the next pass."""
        self.state.reported = ReplicaReport()

    def phase(self) -> str:
        """Map the phase of a replica onto those that all kinds share."""
        return shared_phase(self.state)

    def status(self) -> dict[str, Any]:
        """Show engines, routing, inventory, the cache, and how far a teardown is."""
        return status_of(self.state)

    def details(self) -> list[str]:
        """List the steps of the teardown in the Temporal UI."""
        return self.state.teardown.lines() if self.state.deleting else []
