"""ModelReplica: one complete serving instance on one cluster, from its first object to the last one gone.

It applies what its template says, reads what the cluster's observer tells, publishes its endpoint while it can serve, puts right what
others change, and leaves in order. Nothing missing or unreadable ever makes it delete: only its own deletion does.
"""

from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.messaging import CONNECTION_MEMO, EntityClient, ReadMemo
from activities.workloads.activities import WorkloadActivities
from api_types import labels, names
from api_types.errors import ClusterUnreachable, error_message, error_reason, error_type, is_permanent
from api_types.messages.cluster_work import Applied, ApplyReplica
from api_types.messages.entities import ClusterChanged, ReplicaChanged, ReplicaState, Resync, SetLabels, SetTemplate
from api_types.messages.observations import Observed
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE, TRUE, is_true
from workflows.model_replica.cache import ReplicaCaches
from workflows.model_replica.pruning import ReplicaPruning
from workflows.model_replica.readings import drift, shown
from workflows.model_replica.state import ReplicaCarried
from workflows.model_replica.teardown import ReplicaTeardown
from workflows.model_replica.verdicts import ReplicaJudging

# An observation may have left the cluster before our last apply was visible there: drift counts when it stays.
DRIFT_PATIENCE = timedelta(seconds=2)

# Nothing tells of a Secret that changed in the store; looking costs a handful of events, so it is done seldom, and on `retry_now`.
COPIES_LOOKED_AFTER = timedelta(hours=1)

# What happens on the way to Ready is told to the deployment no more often than this.
NEWS_PATIENCE = timedelta(seconds=5)

# The reason that a condition shows for an error, where it is not the error's own name.
_REASONS = {
    "InvalidInput": "InvalidSpec",
    "StillThere": "Deploying",
    "StackMissing": "ServingStackMissing",
    "Unsupported": "RoutingUnsupported",
    "CredentialsInvalid": "ClusterUnreachable",
    "PermissionDenied": "ClusterUnreachable",
}


@workflow.defn(name="ModelReplica")
class ModelReplicaWorkflow(ReplicaCaches, ReplicaJudging, ReplicaPruning, ReplicaTeardown):
    """One replica of a deployment."""

    kind = "ModelReplica"

    @workflow.init
    def __init__(self, state: ReplicaCarried) -> None:
        super().__init__(state)
        self.told_at = workflow.now()
        birth = state.birth
        if not state.uid:
            state.uid = birth.uid
            self.take_template(SetTemplate(**{field: getattr(birth, field) for field in SetTemplate.model_fields}))

    @workflow.run
    async def run(self, state: ReplicaCarried) -> None:
        """Live until torn down."""
        del state
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @workflow.signal
    def set_template(self, order: Any) -> None:
        """Take a newer template."""
        message = self.read(SetTemplate, order)
        if message and not self.state.deleted and message.generation >= self.state.generation:
            self.take_template(message)

    @workflow.signal
    def set_labels(self, order: Any) -> None:
        """Take what users say of the deployment besides its template: labels, and flags of the endpoint picker."""
        message = self.read(SetLabels, order)
        if message:
            self.state.labels = {**message.labels, **self.managed_labels()}
            self.state.picker_flags = message.picker_flags
            self.touch()

    @workflow.signal
    def cluster_changed(self, order: Any) -> None:
        """Note how the cluster is."""
        message = self.read(ClusterChanged, order)
        if message and (self.state.cluster is None or message.sequence >= self.state.cluster.sequence):
            if message.connected and self.state.cluster and not self.state.cluster.connected:
                self.on_retry_requested()
            self.state.cluster = message
            self.touch()

    @workflow.signal
    def observed(self, order: Any) -> None:
        """Note what the observer saw of this replica's objects."""
        message = self.read(Observed, order)
        if message and message.owner_uid == self.state.uid and message.replica is not None:
            self.state.observed = message.replica
            unanswered = (self.state.teardown.trouble if self.state.deleted else self.state.failure)[0] == ClusterUnreachable.__name__
            if unanswered:
                # The cluster has just been heard: what failed for want of an answer need not wait for its time.
                self.state.retry_at = ""
            if unanswered or not self.state.deleted:
                self.requeue()

    @workflow.signal
    def resync(self, order: Any = None) -> None:
        """Report again to a deployment that lost its state."""
        if order is None or self.read(Resync, order) is not None:
            self.repeat_reports()
            self.requeue()

    def repeat_reports(self) -> None:
        """Report to the deployment again with the next pass."""
        self.state.told = {}

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what scheduler and deployment keep of a replica."""
        birth = self.state.birth
        return ReplicaState(
            uid=self.state.uid,
            namespace=self.namespace,
            deployment=birth.deployment,
            name=self.name,
            cluster=birth.cluster,
            index=birth.index,
            generation=self.state.generation,
            entry=self.state.entry,
            ready=is_true(self.state.conditions, "Ready"),
            serving=self.state.serving,
            deleting=bool(self.state.deleted),
            gone=self.gone,
        ).wire()

    def managed_labels(self) -> dict[str, str]:
        """Give the labels that win over those of users."""
        birth = self.state.birth
        return {
            labels.DEPLOYMENT: names.label_value(birth.deployment),
            labels.CLUSTER: names.label_value(birth.cluster),
            labels.REPLICA_INDEX: str(birth.index),
        }

    def take_template(self, order: SetTemplate) -> None:
        """Adopt a template as this replica's spec."""
        self.state.labels = {**order.labels, **self.managed_labels()}
        self.state.picker_flags = order.picker_flags
        self.state.entry = order.entry
        if order.spec != self.state.spec or order.generation != self.state.generation:
            self.state.spec, self.state.generation = order.spec, order.generation
            self.state.retry_at = ""
        self.touch()

    def on_retry_requested(self) -> None:
        """Forget how long the next attempt was to wait, and look after copies of Secrets too."""
        self.state.retry_at = ""
        self.state.copies_due = self.now()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Apply, judge, tell."""
        if self.state.deleted:
            return await self.tear_down()
        await self.follow_cache()
        if await self.knows_cluster() and self.wants_apply():
            await self.apply()
        if self.state.deleted:
            return await self.tear_down()
        self.judge()
        await self.follow_cache()
        await self.prune()
        await self.report()
        return False

    async def knows_cluster(self) -> bool:
        """Read how to reach the cluster, once; afterwards it tells us of changes."""
        if self.state.cluster is None:
            cluster = self.state.birth.cluster
            memo = await workflow.execute_local_activity_method(
                EntityClient.read_memo,
                ReadMemo(workflow_id=names.workflow_id("InferenceCluster", "", cluster), key=CONNECTION_MEMO),
                **activity_options.local(activity_options.ENTITY_CALL, f"read how to reach {cluster}"),
            )
            if memo.value is not None and self.state.cluster is None:
                self.state.cluster = ClusterChanged.model_validate(memo.value)
            elif memo.value is None:
                self.requeue_after(backoff.transient(self.state.attempts))
                self.state.attempts += 1
        known = self.state.cluster
        return known is not None and known.connection is not None and known.facts is not None

    def wants_apply(self) -> bool:
        """Tell whether what stands on the cluster is not what the spec asks for."""
        if self.state.retry_at and self.is_early(self.state.retry_at):
            return False
        applied = self.state.applied
        if applied is None or self.state.applied_generation != self.state.generation or self.state.applied_inputs != self.inputs():
            return True
        if self.copies_are_due(applied):
            return True
        if self.state.observed is None or not drift(applied, self.state.observed):
            self.state.drift_since = ""
            return False
        if not self.state.drift_since:
            self.state.drift_since = workflow.now().isoformat()
        waited = workflow.now() - datetime.fromisoformat(self.state.drift_since)
        if waited < DRIFT_PATIENCE:
            self.requeue_after(DRIFT_PATIENCE - waited)
            return False
        self.event("Normal", "Drift", f"put right: {', '.join(drift(applied, self.state.observed))}")
        return True

    def inputs(self) -> list[Any]:
        """Give what an apply takes from outside the spec, and must follow."""
        return [self.state.cache_claim, self.state.picker_flags]

    def copies_are_due(self, applied: Applied) -> bool:
        """Tell whether it is time to look whether the Secrets that were copied have changed."""
        if not any(not item.digest for item in applied.inventory):
            return False
        due = datetime.fromisoformat(self.state.copies_due or self.now())
        if workflow.now() >= due:
            return True
        self.requeue_after(due - workflow.now())
        return False

    def order(self) -> ApplyReplica:
        """Say all that is needed to render this replica."""
        known, birth = self.state.cluster, self.state.birth
        if known is None or known.connection is None or known.facts is None or self.state.spec is None:
            raise ValueError("an order was asked for before the cluster was known")
        return ApplyReplica(
            connection=known.connection,
            facts=known.facts.model_copy(update={"routing": self.state.surface or known.facts.routing}),
            namespace=self.namespace,
            name=self.name,
            uid=self.state.uid,
            generation=self.state.generation,
            deployment=birth.deployment,
            cluster=birth.cluster,
            index=birth.index,
            spec=self.state.spec,
            cache_claim=self.state.cache_claim,
            picker_flags=self.state.picker_flags,
            inventory=self.state.applied.inventory if self.state.applied else [],
        )

    async def apply(self) -> None:
        """Bring the cluster to the present generation; a newer one, or deletion, takes over at once."""
        order, inputs = self.order(), self.inputs()
        await self.withdraw_for_another_shape()
        self.state.attempted, self.state.whole = True, False
        self.state.surface = order.facts.routing
        if self.state.applied is None:
            self.condition("ModelAccepted", FALSE, "Deploying", f"applying to {order.cluster}")
            self.condition("Ready", FALSE, "Creating", f"applying to {order.cluster}")
            self.publish()
        try:
            applied = await self.unless(
                lambda: bool(self.state.deleted) or self.state.generation != order.generation,
                workflow.execute_activity_method(
                    WorkloadActivities.apply_replica,
                    order,
                    **activity_options.remote(
                        activity_options.APPLY,
                        f"apply {self.name} generation {order.generation} to {order.cluster}",
                        order.connection.task_queue,
                    ),
                ),
            )
        except ActivityError as error:
            kind = error_type(error) or "ClusterUnreachable"
            self.state.failure = (kind, error_message(error))
            self.state.failure_reason = error_reason(error) or _REASONS.get(kind, kind)
            pause = backoff.permanent(self.state.attempts) if is_permanent(kind) else backoff.transient(self.state.attempts)
            self.state.attempts += 1
            self.state.retry_at = (workflow.now() + pause).isoformat()
            self.requeue_after(pause)
            self.event("Warning", self.state.failure_reason, self.state.failure[1])
            return
        if applied is None:
            self.requeue()
            return
        if self.state.applied is None:
            self.event("Normal", "Applied", f"{len(applied.inventory)} objects on {order.cluster}")
        for warning in [
            warning for warning in applied.warnings if self.state.applied is None or warning not in self.state.applied.warnings
        ]:
            self.event("Warning", "Rendering", warning)
        self.state.prune, self.state.prune_at = self.state.prune or self.state.applied_generation not in (0, order.generation), ""
        self.state.prune = self.state.prune or self.state.applied_inputs not in ([], inputs)
        self.state.applied, self.state.applied_generation, self.state.whole = applied, order.generation, True
        self.state.applied_inputs, self.state.applied_mode = inputs, self.mode()
        self.state.copies_due = (workflow.now() + COPIES_LOOKED_AFTER).isoformat()
        self.state.failure, self.state.retry_at, self.state.attempts, self.state.drift_since = ("", ""), "", 0, ""
        # What was seen before this apply may look like drift; look once more when the observer had time to see it.
        self.requeue_after(DRIFT_PATIENCE)

    def mode(self) -> str:
        """Give how the engines share the work."""
        mode: str = (self.state.spec or {}).get("serving", {}).get("mode", "Unified")
        return mode

    async def withdraw_for_another_shape(self) -> None:
        """Take the endpoint away before engines change their parts: pods of both shapes behind one picker answer neither way."""
        if self.state.serving and self.state.applied_mode not in ("", self.mode()):
            self.state.serving = False
            self.condition("Serving", FALSE, "NotServing", f"changes from {self.state.applied_mode} to {self.mode()}")
            self.condition("Ready", FALSE, "Unavailable", f"changes from {self.state.applied_mode} to {self.mode()}")
            await self.report()

    # --- telling and showing ------------------------------------------------------------------------------------------------------

    async def report(self) -> None:
        """Tell the deployment what changed."""
        news: dict[str, Any] = {
            "ready": is_true(self.state.conditions, "Ready"),
            "serving": self.state.serving,
            "endpoint": self.endpoint(),
            "phase": "Terminating" if self.state.deleted else self.detailed_phase(),
            "generation": self.state.applied_generation,
            "message": self.state.teardown.message() if self.state.deleted else self.first_message(),
        }
        if self.may_wait(news):
            self.requeue_after(NEWS_PATIENCE - (workflow.now() - self.told_at))
        elif news != self.state.told:
            self.state.told, self.told_at = news, workflow.now()
            self.state.sequence += 1
            heard = await self.tell(self.deployment_id, "replica_changed", self._news(**news))
            if not heard and not self.state.deleted:
                self.event("Warning", "Orphaned", f"ModelDeployment {self.namespace}/{self.state.birth.deployment} does not run")

    def first_message(self) -> str:
        """Give the words of the first condition that is not True."""
        return next((c.message for c in self.state.conditions if c.status != TRUE and c.message), "")

    def may_wait(self, news: dict[str, Any]) -> bool:
        """Tell whether all that is new are words on the way to Ready, which the deployment need not hear one by one."""
        told = self.state.told
        if news == told or news["phase"] in ("Failed", "Terminating"):
            return False
        same = all(news[field] == told.get(field, False) for field in ("ready", "serving")) and news["endpoint"] == told.get("endpoint", "")
        return same and workflow.now() - self.told_at < NEWS_PATIENCE

    @property
    def deployment_id(self) -> str:
        """Name the workflow of the deployment."""
        return names.workflow_id("ModelDeployment", self.namespace, self.state.birth.deployment)

    async def report_gone(self) -> None:
        """Tell the deployment that nothing is left but what is listed as left behind."""
        self.state.sequence += 1
        await self.tell(self.deployment_id, "replica_changed", self._news(phase="Gone", left_behind=self.state.left_behind))

    def _news(self, **news: Any) -> ReplicaChanged:
        return ReplicaChanged(name=self.name, uid=self.state.uid, sequence=self.state.sequence, **news)

    def status(self) -> dict[str, Any]:
        """Show engines, routing and inventory."""
        applied, seen = self.state.applied, self.state.observed
        status: dict[str, Any] = {"phase": self.detailed_phase()}
        if self.state.deleted:
            status["teardown"] = self.state.teardown.shown()
        if applied is None:
            return status
        return status | shown(applied, seen, self.endpoint()) | self.cache_status()
