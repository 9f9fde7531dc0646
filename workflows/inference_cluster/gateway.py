"""The gateway of a cluster's serving stack, as it was last observed. Pure."""

from typing import NamedTuple

from api_types.messages.observations import ObservedCluster
from workflows.inference_cluster.state import ClusterState


class Gateway(NamedTuple):
    """The address of the serving stack's Gateway, or why it has none."""

    address: str = ""
    problem: str = ""


def gateway_of(state: ClusterState) -> Gateway:
    """Give the gateway as it was last observed, or else as it was found at the connect."""
    observed, facts = state.observed, state.facts
    if observed and (observed.gateway_address or observed.gateway_message):
        return Gateway(observed.gateway_address, observed.gateway_message)
    return Gateway(facts.gateway_address, facts.gateway_message) if facts else Gateway()


def with_known_gateway(seen: ObservedCluster, before: ObservedCluster | None) -> ObservedCluster:
    """Keep the gateway as it was observed last while the cluster cannot be reached: an observer that starts meanwhile knows of none."""
    if before is None or seen.reachable or seen.gateway_address or seen.gateway_message:
        return seen
    return seen.model_copy(update={"gateway_address": before.gateway_address, "gateway_message": before.gateway_message})
