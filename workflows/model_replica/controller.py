"""What a ModelReplica does next, without doing it: messages come in, orders go out, and results come back.

Nothing here waits or calls. The cache, and the objects of older generations, are followed by parts of the workflow of their own.
"""

from typing import Any

from api_types.messages.entities import ClusterChanged
from workflows.entity.context import EntityContext
from workflows.entity.registering.endpoint import EndpointPublication
from workflows.model_replica.apply import Patched, ReplicaApply, all_patched
from workflows.model_replica.cluster import ReplicaCluster
from workflows.model_replica.decisions.endpoint import has_control_cluster, wanted_endpoint
from workflows.model_replica.decisions.verdicts import assess
from workflows.model_replica.orders import Order
from workflows.model_replica.reducers import messages
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.teardown import ReplicaTeardown


class ReplicaController:
    """Decides over a replica: what to apply, what to report, and the steps of its teardown."""

    def __init__(self, context: EntityContext[ModelReplicaState], patched: Patched = all_patched) -> None:
        self._context = context
        self._state = context.state
        self.cluster = ReplicaCluster(context)
        self.reports = DeploymentReports(context)
        self.applying = ReplicaApply(context, self.reports, patched)
        self.publication = EndpointPublication(context, context.state.endpoint, "ModelReplica", patched)
        self.teardown = ReplicaTeardown(context, self.cluster, self.reports, self.publication)
        if not self._state.uid:
            messages.start(self._state)
            if self._state.start.deleting:
                self._state.deletion_timestamp = context.now()
            context.mark_changed()

    # --- orders ---------------------------------------------------------------------------------------------------------------------

    def apply(self) -> list[Order]:
        """Order what brings the cluster to the present generation; none if that is done, has to wait, or the replica is deleted."""
        if self._state.deleting:
            return []
        return self.cluster.read_if_unknown() or self.applying.next_orders()

    def tear_down(self) -> list[Order]:
        """Order the next step of the teardown; none while the current one waits, or when all are complete."""
        return self.teardown.next_orders()

    def publish(self) -> list[Order]:
        """Order what brings the endpoint to its services, or takes it out of their routes; none without a control cluster."""
        state = self._state
        if state.deleting or not has_control_cluster(state):
            return []
        orders = self.publication.publish(wanted, may_apply=True) if (wanted := wanted_endpoint(state)) else self.publication.suspend()
        return list(orders)

    def report(self) -> list[Order]:
        """Order a report to the deployment, if there is something new."""
        return [] if self.teardown.gone else self.reports.report()

    # --- conclusions ----------------------------------------------------------------------------------------------------------------

    def conclude(self) -> None:
        """Write what follows from the state into conditions, events and the state itself."""
        state, assessment = self._state, assess(self._state)
        for kind, verdict in assessment.conditions.items():
            self._context.set_condition(kind, *verdict)
        for warning in assessment.warnings:
            self._context.record_event("Warning", *warning)
        state.serving, state.overdue = assessment.serving, assessment.overdue
        state.served = state.served or assessment.ready
        state.was_ready = state.was_ready or assessment.ready
        state.observed_generation = assessment.observed_generation

    # --- messages -------------------------------------------------------------------------------------------------------------------

    def cluster_changed(self, message: ClusterChanged) -> None:
        """Store the state of the cluster; what failed without a connection is retried at once when it is back."""
        if self.cluster.record_change(message):
            self.retry()
        if self._state.deleting:
            # An attempt may be waiting for a worker of that cluster.
            self.teardown.show_connection()

    def memo_read(self, value: Any) -> None:
        """Store the memo of the cluster."""
        if self.cluster.memo_read(value):
            self.retry()

    def retry(self) -> None:
        """Retry now what waits for its next attempt."""
        messages.retry(self._state, self._context.moment())
        self.applying.retry()
        self.publication.retry()
        self.cluster.reset_backoff()

    def copies_found(self) -> None:
        """Apply again: what was to be copied and was missing is there."""
        self.applying.retry()
        self._context.requeue()
