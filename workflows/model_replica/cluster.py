"""What a ModelReplica knows of its cluster: how to reach it, and its facts.

It is read once from the memo of the InferenceCluster, and reported by that from then on.
"""

from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import ReadMemo
from activities.messaging.search_attributes import CONNECTION_MEMO
from api_types import names
from api_types.messages.entities import ClusterChanged
from workflows.entity import activity_options, backoff
from workflows.entity.context import EntityContext
from workflows.model_replica.decisions.cluster import access_of
from workflows.model_replica.state import ModelReplicaState


class ReplicaCluster:
    """Keeps the state of the cluster up to date."""

    def __init__(self, context: EntityContext[ModelReplicaState]) -> None:
        self._context = context

    def record_change(self, message: ClusterChanged) -> bool:
        """Store a report of the cluster; True if it is connected again."""
        state = self._context.state
        if state.cluster is not None and message.sequence < state.cluster.sequence:
            return False
        reconnected = message.connected and state.cluster is not None and not state.cluster.connected
        state.cluster = message
        self._context.mark_changed()
        return reconnected

    async def ensure_connection_known(self) -> bool:
        """Read the connection from the cluster's memo if none is known; False while there is no way to the cluster."""
        state = self._context.state
        if state.cluster is None:
            await self._read_memo()
        return access_of(state) is not None

    async def _read_memo(self) -> None:
        state, cluster = self._context.state, self._context.state.start.cluster
        memo = await workflow.execute_local_activity_method(
            EntityClient.read_memo,
            ReadMemo(workflow_id=names.workflow_id("InferenceCluster", "", cluster), key=CONNECTION_MEMO),
            **activity_options.local(activity_options.ENTITY_CALL, f"read the connection of InferenceCluster {cluster}"),
        )
        if memo.value is not None and state.cluster is None:
            state.cluster = ClusterChanged.model_validate(memo.value)
        elif memo.value is None:
            self._context.requeue_after(backoff.transient(state.attempts))
            state.attempts += 1
