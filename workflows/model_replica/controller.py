"""Decides the next steps of a ModelReplica.

It receives messages and results, and returns orders. Nothing here waits or calls. Other
parts of the workflow follow the cache and delete objects of older generations.
"""

from typing import Any

from api_types.messages.entities import ClusterChanged
from workflows.entity.context import EntityContext
from workflows.entity.registering.endpoint import EndpointPublication
from workflows.model_replica.apply import ReplicaApply
from workflows.model_replica.cluster import ReplicaCluster
from workflows.model_replica.decisions.endpoint import (
    has_control_cluster,
    wanted_endpoint,
)
from workflows.model_replica.decisions.verdicts import assess
from workflows.model_replica.orders import Order
from workflows.model_replica.reducers import messages
from workflows.model_replica.reports import DeploymentReports
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.teardown import ReplicaTeardown


class ModelReplicaController:
    """Decides on applies, reports and the steps of the teardown."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self._state = context.state
        self.cluster = ReplicaCluster(context)
        self.reports = DeploymentReports(context)
        self.applying = ReplicaApply(context, self.reports)
        self.publication = EndpointPublication(
            context, context.state.endpoint, "ModelReplica"
        )
        self.teardown = ReplicaTeardown(
            context, self.cluster, self.reports, self.publication
        )
        if not self._state.uid:
            messages.start(self._state)
            if self._state.start.deleting:
                self._state.deletion_timestamp = context.now()
            context.mark_changed()

    # Orders

    def apply(self) -> list[Order]:
        """Return the apply of the present generation, if it is due."""
        if self._state.deleting:
            return []
        return self.cluster.read_if_unknown() or self.applying.next_orders()

    def tear_down(self) -> list[Order]:
        """Return the next step of the teardown; none while it waits or is complete."""
        return self.teardown.next_orders()

    def publish(self) -> list[Order]:
        """Return orders that publish or withdraw the endpoint; none without a control cluster."""
        state = self._state
        if state.deleting or not has_control_cluster(state):
            return []
        orders = (
            self.publication.publish(wanted, may_apply=True)
            if (wanted := wanted_endpoint(state))
            else self.publication.suspend()
        )
        return list(orders)

    def report(self) -> list[Order]:
        """Return a report to the deployment, if something changed."""
        return [] if self.teardown.gone else self.reports.report()

    # Conclusions

    def conclude(self) -> None:
        """Write the conclusions of the pass into conditions, events and the state."""
        state, assessment = self._state, assess(self._state)
        for kind, verdict in assessment.conditions.items():
            self._context.set_condition(kind, *verdict)
        for warning in assessment.warnings:
            self._context.record_event("Warning", *warning)
        state.serving, state.overdue = assessment.serving, assessment.overdue
        state.served = state.served or assessment.ready
        state.was_ready = state.was_ready or assessment.ready
        state.observed_generation = assessment.observed_generation

    # Messages

    def cluster_changed(self, message: ClusterChanged) -> None:
        """Store the state of the cluster; retry failures when its connection is back."""
        if self.cluster.record_change(message):
            self.retry()
        if self._state.deleting:
            # A running attempt may wait for a worker of that cluster.
            self.teardown.show_connection()

    def memo_read(self, value: Any) -> None:
        """Store the memo of the cluster."""
        if self.cluster.memo_read(value):
            self.retry()

    def retry(self) -> None:
        """Make pending attempts now."""
        messages.retry(self._state, self._context.moment())
        self.applying.retry()
        self.publication.retry()
        self.cluster.reset_backoff()

    def copies_found(self) -> None:
        """Apply again: the objects that were missing for copies exist now."""
        self.applying.retry()
        self._context.requeue()
