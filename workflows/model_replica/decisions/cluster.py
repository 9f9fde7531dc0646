"""The last report of a ModelReplica's cluster."""

from typing import NamedTuple

from api_types.messages.cluster_work import ClusterFacts, Connection
from workflows.model_replica.state import ModelReplicaState


class ClusterAccess(NamedTuple):
    """The connection of a cluster, and its facts."""

    connection: Connection
    facts: ClusterFacts


def access_of(state: ModelReplicaState) -> ClusterAccess | None:
    """Return connection and facts; None while one of them is unknown."""
    known = state.cluster
    if known is None or known.connection is None or known.facts is None:
        return None
    return ClusterAccess(known.connection, known.facts)


def connection_problem(state: ModelReplicaState) -> str:
    """Return why the cluster cannot be reached; empty if it can."""
    name, known = state.start.cluster, state.cluster
    if known is None:
        return (
            f"InferenceCluster {name} does not exist or has not started; apply it "
            "again, or skip its objects with `delete --force`"
        )
    if known.connected and access_of(state) is not None:
        return ""
    problem = f": {known.problem}" if known.problem else ""
    return f"InferenceCluster {name} is not connected{problem}"


def is_unreachable(state: ModelReplicaState) -> bool:
    """Return whether the cluster is unresponsive for so long that its endpoints are withdrawn."""
    return bool(state.cluster and state.cluster.unreachable_for_seconds)


def unreachable_problem(state: ModelReplicaState) -> str:
    """Return the problem of a cluster that is unresponsive for too long; otherwise empty."""
    if state.cluster is None or not is_unreachable(state):
        return ""
    name, seconds = state.start.cluster, state.cluster.unreachable_for_seconds
    return (
        f"neither the API server nor the gateway of InferenceCluster {name} has answered "
        f"for more than {seconds} s; "
        f"see `modelplane describe inferencecluster/{name}`"
    )
