"""Pods become ready and unready again and again, for hours.

Histories stay bounded, workflows continue as new, and at rest routes and statuses are true.
"""

import asyncio

import pytest

from tests.simulation.lives.steady_fleet import CLUSTERS, SteadyFleet, in_virtual_time
from tests.simulation.lives.whole_fleet import WholeFleet
from tests.simulation.reconciling import key_of
from tests.simulation.runs import CONTINUED

FLAP_SECONDS = (20.0, 90.0)
EVENTS_MAX = 250
EVENTS_OF_ONE_TASK_MAX = 40
EVENTS_PER_FLAP_MAX = 40
"""A flap is two changes of a pod. Its replica, deployment, directory and service follow both."""
HOUR = 3600.0


async def flap(fleet: WholeFleet, cluster: str, ends: float) -> int:
    """Let the pods of a cluster flap independently; return the number of changes."""
    world, draw = fleet.world, fleet.world.source(f"flaps at {cluster}")
    server = fleet.plane.server(cluster)
    flaps, is_ready = 0, True
    while world.clock.seconds() < ends:
        await asyncio.sleep(draw.uniform(*FLAP_SECONDS))
        is_ready = not is_ready
        for pod in server.store.find("", "Pod", fleet.namespace):
            flaps += server.kubelets.probe(key_of(pod), ready=is_ready)
    for pod in server.store.find("", "Pod", fleet.namespace):
        server.kubelets.probe(key_of(pod), ready=True)
    return flaps


async def flapping(plane: SteadyFleet, namespace: str, hours: float) -> None:
    """Let all pods flap for some hours."""
    fleet = WholeFleet(plane, namespace)
    server = plane.world.server
    server.events_max = EVENTS_MAX
    await fleet.begin()
    before = events(plane)
    ends = plane.world.clock.seconds() + hours * HOUR
    flaps = sum(await asyncio.gather(*(flap(fleet, cluster, ends) for cluster in CLUSTERS)))
    grown = {key: count - before.get(key, 0) for key, count in events(plane).items()}
    assert flaps > hours * HOUR / FLAP_SECONDS[1]
    assert {key: more for key, more in grown.items() if more > EVENTS_PER_FLAP_MAX * flaps} == {}
    runs = [run for execution in server.executions.values() for run in execution.runs]
    assert max(run.events for run in runs) <= EVENTS_MAX + EVENTS_OF_ONE_TASK_MAX
    continued = {run.kind for run in runs if run.status == CONTINUED}
    assert {"ModelReplica", "ModelDeployment", "EndpointDirectory", "ModelService"} <= continued
    await fleet.ready()
    await fleet.at_rest()
    await fleet.delete_everything()


def events(plane: SteadyFleet) -> dict[str, int]:
    """Return the events of all runs of each workflow."""
    executions = plane.world.server.executions
    return {key: sum(run.events for run in each.runs) for key, each in executions.items()}


@pytest.mark.long
@in_virtual_time
async def test_an_hour_of_flapping_pods_leaves_short_histories_and_true_routes(
    plane: SteadyFleet, namespace: str
) -> None:
    await flapping(plane, namespace, 1.0)


@pytest.mark.soak
@in_virtual_time
async def test_a_day_of_flapping_pods_leaves_short_histories_and_true_routes(
    plane: SteadyFleet, namespace: str
) -> None:
    await flapping(plane, namespace, 24.0)
