"""Temporal forgets closed runs long before other objects ask for them.

Workflows are terminated while no worker runs. Until workers run again, Temporal has
forgotten the runs. Owners apply their objects again, the fleet heals, and a deletion
leaves nothing.

Two cases need a run that Temporal still has, because nothing else proves the owner of
the objects on a cluster: the volumes of a cache, and the pods of a replica that is lost
together with its deployment and the scheduler.
"""

import asyncio
from collections.abc import Sequence

import pytest

from api_types import names
from tests.simulation.lives.steady_fleet import CLUSTERS, SteadyFleet, in_virtual_time
from tests.simulation.lives.whole_fleet import CACHE, ENDPOINT, MODEL, SERVICE, WholeFleet, a_model
from tests.workflows.environment.harness import Json

RETENTION_SECONDS = 3600.0
AWAY_SECONDS = 3 * RETENTION_SECONDS
CLUSTER = "prod-eu"


def prefixes(namespace: str) -> dict[str, str]:
    """Return how the ids of the workflows of each kind begin in the fleet."""
    return {
        "scheduler": names.FLEET_SCHEDULER_ID,
        "cluster": names.workflow_id("InferenceCluster", "", CLUSTER),
        "class": names.workflow_id("InferenceClass", "", "h100"),
        "deployment": names.workflow_id("ModelDeployment", namespace, MODEL),
        "replica": names.workflow_id("ModelReplica", namespace, MODEL),
        "cache": names.workflow_id("ModelCache", namespace, CACHE),
        "service": names.workflow_id("ModelService", namespace, SERVICE),
        "endpoint": names.workflow_id("ModelEndpoint", namespace, ENDPOINT),
        "directory": names.endpoint_directory_id(namespace),
    }


LOST = (
    ("scheduler",),
    ("replica",),
    ("deployment",),
    ("cluster",),
    ("class",),
    ("service", "endpoint", "directory"),
    ("scheduler", "deployment"),
    ("scheduler", "cluster"),
    ("scheduler", "replica"),
    ("deployment", "replica"),
    ("cluster", "replica"),
    ("scheduler", "deployment", "cluster", "class", "service", "endpoint", "directory"),
)
"""The kinds whose workflows are all lost at once."""


async def lose(fleet: WholeFleet, lost: Sequence[str]) -> None:
    """Lose workflows while no worker runs, until Temporal has forgotten them."""
    plane = fleet.plane
    plane.world.server.retention = RETENTION_SECONDS
    await fleet.begin()
    await fleet.apply(a_model(fleet.namespace, 3))
    await fleet.ready()
    with plane.no_workers():
        for kind in lost:
            for workflow_id in fleet.running(prefixes(fleet.namespace)[kind]):
                await plane.world.terminate(workflow_id, "an accident")
        await asyncio.sleep(AWAY_SECONDS)
    await fleet.apply_again()
    await plane.shown()


async def lost_and_forgotten(plane: SteadyFleet, namespace: str, lost: Sequence[str]) -> None:
    """Lose workflows, change the model, and delete everything."""
    fleet = WholeFleet(plane, namespace)
    await lose(fleet, lost)
    await fleet.ready()
    await fleet.apply(a_model(namespace, 2, 2))
    await fleet.ready()
    await fleet.at_rest()
    await fleet.delete_everything()


def lane(lost: Sequence[str]) -> pytest.MarkDecorator:
    """Return the mark of a row."""
    return pytest.mark.long if lost == ("scheduler", "deployment") else pytest.mark.soak


@pytest.mark.parametrize(
    "lost",
    [pytest.param(each, marks=lane(each)) for each in LOST],
    ids=" and ".join,
)
@in_virtual_time
async def test_a_fleet_heals_that_lost_workflows_which_temporal_has_forgotten(
    plane: SteadyFleet, namespace: str, lost: Sequence[str]
) -> None:
    await lost_and_forgotten(plane, namespace, lost)


def conflicts(tree: Json) -> bool:
    """Return whether objects on a cluster belong to another owner."""
    return "NameConflict" in str(tree)


@pytest.mark.soak
@in_virtual_time
async def test_a_cache_that_temporal_has_forgotten_names_the_volumes_that_people_have_to_delete(
    plane: SteadyFleet, namespace: str
) -> None:
    """No run proves any more that this control plane owns the volumes.

    The model continues to serve.
    """
    fleet = WholeFleet(plane, namespace)
    await lose(fleet, ["cache"])
    volumes = [(each.cluster, each.claim) for each in plane.world.parts.volumes()]
    seen = await plane.until("ModelCache", CACHE, conflicts, namespace)
    assert len(volumes) == len(CLUSTERS)
    for _, claim in volumes:
        assert claim in str(seen["status"])
    model = await plane.ready("ModelDeployment", MODEL, namespace)
    assert model["status"]["replicas"]["ready"] == 3
    await plane.delete("ModelDeployment", MODEL, namespace)
    await plane.gone("ModelDeployment", MODEL, namespace)
    for cluster, claim in volumes:
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        plane.call(cluster, "DELETE", path)
    await fleet.apply_again()
    await fleet.ready()
    await fleet.at_rest()
    await fleet.delete_everything()
