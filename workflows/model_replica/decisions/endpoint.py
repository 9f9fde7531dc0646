"""Which endpoint a ModelReplica publishes on the control cluster. Pure."""

from workflows.entity.registering.endpoint import WantedEndpoint
from workflows.model_replica.decisions.status import endpoint
from workflows.model_replica.state import ModelReplicaState


def has_control_cluster(state: ModelReplicaState) -> bool:
    """Tell whether there is a control cluster, as far as the cluster of this replica has told."""
    return bool(state.cluster and state.cluster.facts and state.cluster.facts.control_cluster)


def wanted_endpoint(state: ModelReplicaState) -> WantedEndpoint | None:
    """Give the endpoint; None while no new requests may come."""
    url = endpoint(state)
    if not url:
        return None
    facts = state.cluster.facts if state.cluster else None
    return WantedEndpoint(
        url=url,
        labels=state.labels,
        rewrite_path=f"/{state.start.namespace}/{state.start.name}/",
        cluster=state.start.cluster,
        # Another control cluster has no backend yet.
        made_from=facts.control_cluster if facts else "",
    )
