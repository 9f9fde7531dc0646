"""Applies reports of the cluster to the state of a ModelReplica, without clock and I/O."""

from api_types.messages.entities import ClusterChanged
from workflows.model_replica.state import ModelReplicaState


def record_cluster(state: ModelReplicaState, message: ClusterChanged) -> bool:
    """Record a report of the cluster; return False if it is outdated.

    A cluster that was applied again has to connect first. Until then the replica is
    reached as before. A deleted cluster leaves nothing to its successor, and a cluster
    that reports no connection has none.
    """
    version, known = state.cluster_version, state.cluster
    if not version.accepts(message.uid, message.sequence):
        return False
    if message.facts is not None:
        state.facts_uid = message.uid
    elif known is not None and known.present and message.uid != state.facts_uid:
        message = message.model_copy(
            update={"connection": known.connection, "facts": known.facts}
        )
    version = version.advanced(message.uid, message.sequence)
    state.cluster, state.cluster_version = (
        message,
        version if message.present else version.ended(message.uid),
    )
    return True
