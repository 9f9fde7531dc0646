"""Decide whether the endpoints on a cluster leave their routes while it is silent.

A silent API server is no reason: pods and gateway may serve. The endpoints leave when
the gateway is silent as well. When most clusters of the fleet are silent, the network
of the workers is the likelier cause, and all routes stay as they are.
"""

from datetime import datetime, timedelta

from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import CountEntities
from workflows.entity.calls.sending import call_entities
from workflows.entity.context import EntityContext
from workflows.inference_cluster.state import ClusterState

# Observers of other clusters notice the same failure of a network within this time.
NOTICED_BY_ALL = timedelta(seconds=60)
COUNT_AGAIN = timedelta(seconds=60)


class Silence:
    """Keeps `withdrawn` and `fleet_silent` of the state."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self.context = context
        self.state = context.state

    async def judge(self) -> None:
        """Withdraw or publish the endpoints on the cluster. The report carries it."""
        left = time_to_withdrawal(self.state, self.context.moment())
        if left is None or not _gateway_is_silent(self.state):
            self.state.withdrawn, self.state.fleet_silent = False, ""
            return
        if self.state.withdrawn:
            return
        if left > timedelta():
            self.context.requeue_after(left)
            return
        counted = await call_entities(
            EntityClient.count_entities,
            CountEntities(kind=self.context.kind),
            "count the silent clusters",
        )
        if counted.unknown * 2 > counted.running:
            self._suspect_network(f"{counted.unknown} of {counted.running}")
            return
        self.state.withdrawn, self.state.fleet_silent = True, ""
        self.context.record_event(
            "Warning",
            "EndpointsWithdrawn",
            "neither the API server nor the gateway answers: requests go to endpoints on "
            "other clusters",
        )

    def _suspect_network(self, silent: str) -> None:
        if not self.state.fleet_silent:
            self.context.record_event(
                "Warning",
                "NetworkSuspected",
                f"{silent} clusters do not answer, so the network of the workers may have "
                "failed: no route changes; check it",
            )
        self.state.fleet_silent = silent
        self.context.requeue_after(COUNT_AGAIN)


def time_to_withdrawal(state: ClusterState, now: datetime) -> timedelta | None:
    """Return the time until the endpoints of a silent cluster may be withdrawn.

    The setting is `cluster.unreachableAfter`. Return None while the cluster answers.
    """
    if not state.unreachable_since:
        return None
    after = state.facts.withdraw_after_seconds if state.facts else 0
    silent = now - datetime.fromisoformat(state.unreachable_since)
    noticed = now - datetime.fromisoformat(state.unreachable_noticed)
    return max(timedelta(seconds=after) - silent, NOTICED_BY_ALL - noticed)


def routes_message(state: ClusterState) -> str:
    """Return what happens to the endpoints on a silent cluster, and why."""
    if state.withdrawn:
        return "the gateway does not answer either, so the endpoints are withdrawn"
    if state.fleet_silent:
        return (
            f"{state.fleet_silent} clusters do not answer, so the network of the workers "
            "may have failed: the endpoints stay in their routes"
        )
    seen = state.observed.gateway_answers if state.observed else None
    if seen:
        return "the gateway answers, so the endpoints stay in their routes"
    return "the endpoints stay in their routes"


def _gateway_is_silent(state: ClusterState) -> bool:
    return state.observed is not None and state.observed.gateway_answers is False
