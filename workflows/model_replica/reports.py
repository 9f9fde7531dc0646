"""What a ModelReplica reports to its deployment, and how often."""

from datetime import timedelta
from typing import Any

from temporalio import workflow

from api_types.messages.delivery import entity
from api_types.messages.entities import ReplicaChanged
from api_types.messages.signals import ModelDeploymentSignals
from workflows.entity.context import EntityContext
from workflows.model_replica.decisions.status import report_of
from workflows.model_replica.state import ModelReplicaState, ReplicaReport

# Progress on the way to Ready is reported no more often than this.
PROGRESS_INTERVAL = timedelta(seconds=5)


def is_progress_only(report: ReplicaReport, last: ReplicaReport) -> bool:
    """Tell whether a report differs from the last one only by progress, which the deployment need not know at once."""
    if report == last or report.phase in ("Failed", "Terminating"):
        return False
    return (report.ready, report.serving, report.endpoint) == (last.ready, last.serving, last.endpoint)


class DeploymentReports:
    """Reports what changed to the deployment."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self._reported_at = workflow.now()

    async def send(self) -> None:
        """Report what changed; progress waits for its interval."""
        state, report = self._context.state, report_of(self._context.state)
        due = self._reported_at + PROGRESS_INTERVAL
        if is_progress_only(report, state.reported) and workflow.now() < due:
            self._context.requeue_at(due)
        elif report != state.reported:
            state.reported, self._reported_at = report, workflow.now()
            if not await self._send(**report.model_dump()) and not state.deleting:
                title = f"ModelDeployment {self._context.namespace}/{state.start.deployment}"
                self._context.record_event("Warning", "Orphaned", f"{title} does not run")

    async def send_gone(self) -> None:
        """Report that nothing remains but what is listed as left behind."""
        await self._send(phase="Gone", left_behind=self._context.state.left_behind)

    async def _send(self, **fields: Any) -> bool:
        state = self._context.state
        state.sequence += 1
        message = ReplicaChanged(name=self._context.name, uid=state.uid, sequence=state.sequence, **fields)
        deployment = entity(ModelDeploymentSignals, self._context.namespace, state.start.deployment)
        return await self._context.signal(deployment, ModelDeploymentSignals.REPLICA_CHANGED, message)
