"""The gateway of a cluster's serving stack, as last observed. Pure."""

from typing import Any, NamedTuple

from api_types.messages.observations import ObservedCluster
from workflows.inference_cluster.state import ClusterState


class Gateway(NamedTuple):
    """The address of the serving stack's Gateway, or why it has none."""

    address: str = ""
    problem: str = ""


def gateway_of(state: ClusterState) -> Gateway:
    """Return the gateway of the last observation, or else of the last connect."""
    observed, facts = state.observed, state.facts
    if observed and (observed.gateway_address or observed.gateway_message):
        return Gateway(observed.gateway_address, observed.gateway_message)
    return Gateway(facts.gateway_address, facts.gateway_message) if facts else Gateway()


def answering_gateway(state: ClusterState) -> str:
    """Return the address at which the gateway answered to an observer, or ""."""
    known = state.observed is not None and state.observed.gateway_answers is not None
    return gateway_of(state).address if known else ""


def with_known_gateway(
    seen: ObservedCluster, before: ObservedCluster | None
) -> ObservedCluster:
    """Keep the last observed gateway while the cluster is unreachable.

    An observer that starts in that time does not know the gateway.
    """
    if before is None or seen.reachable:
        return seen
    known = dict[str, Any]()
    if seen.gateway_answers is None:
        known["gateway_answers"] = before.gateway_answers
    if not (seen.gateway_address or seen.gateway_message):
        known["gateway_address"] = before.gateway_address
        known["gateway_message"] = before.gateway_message
    return seen.model_copy(update=known)
