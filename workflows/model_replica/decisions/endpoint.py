"""The endpoint that a ModelReplica publishes on the control cluster. Pure."""

from workflows.entity.registering.endpoint import WantedEndpoint
from workflows.model_replica.decisions.status import endpoint
from workflows.model_replica.state import ModelReplicaState


def has_control_cluster(state: ModelReplicaState) -> bool:
    """Return whether there is a control cluster, according to the replica's cluster."""
    return bool(
        state.cluster and state.cluster.facts and state.cluster.facts.control_cluster
    )


def wanted_endpoint(state: ModelReplicaState) -> WantedEndpoint | None:
    """Return the endpoint; None while it must get no new requests."""
    url = endpoint(state)
    if not url:
        return None
    facts = state.cluster.facts if state.cluster else None
    return WantedEndpoint(
        url=url,
        labels=state.labels,
        rewrite_path=f"/{state.start.namespace}/{state.start.name}/",
        cluster=state.start.cluster,
        # A new control cluster has no backend yet.
        made_from=facts.control_cluster if facts else "",
    )
