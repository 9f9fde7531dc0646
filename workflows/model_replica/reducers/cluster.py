"""How a report of its cluster changes a ModelReplica: changes the given state; no I/O, no clock."""

from api_types.messages.entities import ClusterChanged
from workflows.model_replica.state import ModelReplicaState


def record_cluster(state: ModelReplicaState, message: ClusterChanged) -> bool:
    """Record what the cluster reports; False if something newer is known of it.

    A cluster that was applied again has to connect first: until it has, the replica is reached and found as before. One that was deleted
    leaves nothing to the next one of that name, and one that says that it has no connection any more has none.
    """
    version, known = state.cluster_version, state.cluster
    if not version.accepts(message.uid, message.sequence):
        return False
    if message.facts is not None:
        state.facts_uid = message.uid
    elif known is not None and known.present and message.uid != state.facts_uid:
        message = message.model_copy(update={"connection": known.connection, "facts": known.facts})
    version = version.advanced(message.uid, message.sequence)
    state.cluster, state.cluster_version = message, version if message.present else version.ended(message.uid)
    return True
