"""The reports of a ModelReplica to its deployment."""

from datetime import timedelta
from typing import Any

from api_types.messages.delivery import entity
from api_types.messages.entities import ReplicaChanged
from api_types.messages.signals import ModelDeploymentSignals
from workflows.entity.context import EntityContext
from workflows.model_replica.decisions.status import report_of
from workflows.model_replica.orders import Order, SendReplicaSignal
from workflows.model_replica.state import ModelReplicaState, ReplicaReport

# The minimal interval between reports of progress on the way to Ready.
PROGRESS_INTERVAL = timedelta(seconds=5)


def is_progress_only(report: ReplicaReport, last: ReplicaReport) -> bool:
    """Return whether a report differs from the last one only in progress, which may wait."""
    if report == last or report.phase in ("Failed", "Terminating"):
        return False
    return (report.ready, report.serving, report.endpoint) == (
        last.ready,
        last.serving,
        last.endpoint,
    )


class DeploymentReports:
    """Reports changes to the deployment."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self._deployment = entity(
            ModelDeploymentSignals, context.namespace, context.state.start.deployment
        )
        self._reported_at = context.moment()

    def report(self) -> list[Order]:
        """Return a report of changes; progress waits for its interval."""
        state, report, now = (
            self._context.state,
            report_of(self._context.state),
            self._context.moment(),
        )
        due = self._reported_at + PROGRESS_INTERVAL
        if is_progress_only(report, state.reported) and now < due:
            self._context.requeue_at(due)
            return []
        if report == state.reported:
            return []
        # A repeated workflow task may return to the last reported values, and would
        # send no report.
        recorded = state.reported != ReplicaReport() and not state.deleting
        state.reported, self._reported_at = report, now
        return [self._report(recorded=recorded, **report.model_dump())]

    def report_gone(self) -> Order:
        """Report that only the listed objects are left behind."""
        return self._report(phase="Gone", left_behind=self._context.state.left_behind)

    def sent(self, order: SendReplicaSignal, *, found: bool) -> None:
        """Record whether the receiver of a signal runs."""
        state = self._context.state
        if (
            not found
            and not state.deleting
            and order.signal.workflow_id == self._deployment.workflow_id
        ):
            title = (
                f"ModelDeployment {self._context.namespace}/{state.start.deployment}"
            )
            self._context.record_event("Warning", "Orphaned", f"{title} does not run")

    def _report(self, *, recorded: bool = False, **fields: Any) -> Order:
        state = self._context.state
        state.sequence = self._context.next_number(state.sequence)
        message = ReplicaChanged(
            name=self._context.name, uid=state.uid, sequence=state.sequence, **fields
        )
        return SendReplicaSignal(
            ModelDeploymentSignals.REPLICA_CHANGED.request(self._deployment, message),
            recorded,
        )
