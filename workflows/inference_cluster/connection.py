"""How an InferenceCluster connects: once per generation, and again with backoff after a failure."""

from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.clusters.activities import ClusterActivities
from api_types.messages.cluster_work import ClusterFacts, Connect, Connection
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, failure_of
from workflows.inference_cluster.spec import connection_of, declared_facts
from workflows.inference_cluster.state import ClusterState


class ClusterConnection:
    """Connects to the cluster and keeps what was found there."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state
        self.retry_at: datetime | None = None

    def reset_backoff(self) -> None:
        """Make the next attempt with the next pass."""
        self.retry_at = None

    def update_declared(self) -> None:
        """Take over what the spec and the annotations declare now."""
        if self.state.facts:
            self.state.facts = self.state.facts.model_copy(update=declared_facts(self.state))

    async def connect(self) -> bool:
        """Connect, unless that was done for this generation or its backoff is not over; True when it was done now."""
        connection = connection_of(self.context.name, self.state)
        if connection is None or self.state.connected_generation == self.state.generation:
            return False
        if self.retry_at and workflow.now() < self.retry_at:
            self.context.requeue_at(self.retry_at)
            return False
        if self.state.facts is None and not self.state.failure.type:
            self._show_connecting()
        try:
            facts = await self._find_facts(connection)
        except ActivityError as error:
            self._record_failure(failure_of(error))
            return False
        if facts is None:
            return False
        self.state.facts = facts.model_copy(update=declared_facts(self.state))
        self.state.failure = NO_FAILURE
        self.state.attempts = 0
        self.state.unreachable_since = ""
        self.state.connected_generation = self.state.generation
        self.context.record_event("Normal", "Connected", f"Kubernetes {facts.kubernetes_version}, DRA {facts.dra_version or 'not served'}")
        return True

    async def _find_facts(self, connection: Connection) -> ClusterFacts | None:
        """Connect; None when the cluster was deleted meanwhile."""
        return await self.context.run_until(
            lambda: self.state.deleting,
            workflow.execute_activity_method(
                ClusterActivities.connect_cluster,
                Connect(connection=connection),
                **activity_options.remote(activity_options.CLUSTER_CALL, f"connect to {self.context.name}", connection.task_queue),
            ),
        )

    def _show_connecting(self) -> None:
        """Publish that the first attempt is being made, for it may take minutes."""
        self.context.set_condition("ClusterReady", FALSE, "Provisioning", "connecting")
        self.context.set_condition("BackendReady", FALSE, "WaitingForCluster", "connecting")
        self.context.set_condition("Ready", FALSE, "Creating", "connecting")
        self.context.publish()

    def _record_failure(self, failure: Failure) -> None:
        self.state.failure = failure
        self.context.record_event("Warning", failure.type, failure.message)
        delay = backoff.after_retries(self.state.attempts)
        self.state.attempts += 1
        self.retry_at = workflow.now() + delay
        self.context.requeue_after(delay)

    def lose(self, error: BaseException) -> None:
        """Connect again after a delay, because the observer ended with an error."""
        self.state.failure = failure_of(error)
        self.state.connected_generation = 0
        self.retry_at = workflow.now() + backoff.transient(self.state.attempts)
        self.context.requeue()
