"""The cluster of a ModelReplica: its connection and facts.

The replica reads them once from the memo of the InferenceCluster, which reports later
changes.
"""

from datetime import datetime
from typing import Any

from api_types import names
from api_types.messages.entities import ClusterChanged
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.registering.awaiting import AwaitedEntities
from workflows.model_replica.orders import Order, ReadClusterMemo
from workflows.model_replica.reducers.cluster import record_cluster
from workflows.model_replica.state import ModelReplicaState


class ReplicaCluster:
    """Keeps the state of the cluster up to date."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context
        self.awaited = AwaitedEntities(context)
        self._read_at: datetime | None = None

    def record_change(self, message: ClusterChanged) -> bool:
        """Store a report; return True if the cluster is connected again.

        If the report may be a late one of an earlier cluster, the memo decides.
        """
        state = self._context.state
        if state.cluster_version.is_doubtful(message.uid):
            state.cluster_doubted = True
            self.reset_backoff()
            self._context.requeue()
            return False
        return self._record(message)

    def _record(self, message: ClusterChanged) -> bool:
        state = self._context.state
        known, inputs = state.cluster, state.inputs()
        if not record_cluster(state, message):
            return False
        if state.inputs() != inputs:
            # The old state of the cluster may have caused the failures.
            state.retry_at = ""
        self.awaited.keep(())
        self._context.mark_changed()
        return message.connected and known is not None and not known.connected

    def reset_backoff(self) -> None:
        """Read the memo with the next pass."""
        self.awaited.keep(())
        self._read_at = None

    @property
    def workflow_id(self) -> str:
        """The workflow of the InferenceCluster."""
        return names.workflow_id(
            "InferenceCluster", "", self._context.state.start.cluster
        )

    def read_if_unknown(self) -> list[Order]:
        """Read the memo if the cluster is unknown or may have been replaced, and a read is due."""
        state = self._context.state
        if (
            state.cluster is not None and not state.cluster_doubted
        ) or self.workflow_id in self.awaited:
            return []
        if self._read_at is not None and self._read_at > self._context.moment():
            self._context.requeue_at(self._read_at)
            return []
        return [ReadClusterMemo(self._context.state.start.cluster)]

    def memo_read(self, value: Any) -> bool:
        """Store the memo; return True if the cluster is connected again.

        A cluster without a memo has just started.
        """
        state = self._context.state
        if value is not None:
            found, state.cluster_doubted = ClusterChanged.model_validate(value), False
            state.cluster_version = state.cluster_version.allowing(found.uid)
            return self._record(found)
        if state.cluster is not None:
            # The cluster reports its connection when it has one.
            state.cluster_doubted = False
            return False
        self._read_at = self._context.moment() + backoff.missing(state.attempts)
        self._context.requeue_at(self._read_at)
        state.attempts += 1
        return False

    def last_memo_read(self, value: Any) -> bool:
        """Store the last memo of a closed cluster, if it is enough for the deletion.

        Return False if the replica has to wait for the cluster instead. A deleted
        cluster leaves nothing to delete: a replica that was terminated after its nodes
        were freed restarts to report its end, and its cluster may no longer exist by
        then. A terminated cluster still holds the objects and is reached as before.
        """
        state = self._context.state
        was_doubted, state.cluster_doubted = state.cluster_doubted, False
        last = None if value is None else ClusterChanged.model_validate(value)
        if (
            not state.deleting
            or last is None
            or (last.present and last.connection is None)
        ):
            # The report was late, or the next cluster of this name sends it again.
            return was_doubted and state.cluster is not None
        self.memo_read(value)
        return True
