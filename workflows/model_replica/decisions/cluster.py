"""What a ModelReplica reads from the last report of its cluster."""

from typing import NamedTuple

from api_types.messages.cluster_work import ClusterFacts, Connection
from workflows.model_replica.state import ModelReplicaState


class ClusterAccess(NamedTuple):
    """How to reach a cluster, and its facts."""

    connection: Connection
    facts: ClusterFacts


def access_of(state: ModelReplicaState) -> ClusterAccess | None:
    """Give how to reach the cluster and its facts; None while either is unknown."""
    known = state.cluster
    if known is None or known.connection is None or known.facts is None:
        return None
    return ClusterAccess(known.connection, known.facts)


def connection_problem(state: ModelReplicaState) -> str:
    """Say that the cluster cannot be reached now, and why as far as it reports that; empty while it can."""
    name, known = state.start.cluster, state.cluster
    if known is None:
        return f"InferenceCluster {name} does not exist, or has not started; apply it again, or skip what is on it with `delete --force`"
    if known.connected and access_of(state) is not None:
        return ""
    return f"InferenceCluster {name} is not connected{f': {known.problem}' if known.problem else ''}"


def is_unreachable(state: ModelReplicaState) -> bool:
    """Tell whether the cluster has been unresponsive for so long that its endpoints must be withdrawn."""
    return bool(state.cluster and state.cluster.unreachable_for_seconds)


def unreachable_problem(state: ModelReplicaState) -> str:
    """Say that the cluster has been unresponsive for too long, and where its own problem is shown; empty while it is not."""
    if state.cluster is None or not is_unreachable(state):
        return ""
    name, seconds = state.start.cluster, state.cluster.unreachable_for_seconds
    return f"InferenceCluster {name} has not answered for more than {seconds} s; see `modelplane describe inferencecluster/{name}`"
