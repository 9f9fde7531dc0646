"""A cluster that does not answer for longer than `cluster.unreachableAfter`."""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial

from api_types import clock
from api_types.messages.observations import Observed, ObservedCluster
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_clusters import SimulatedClusters, a_class, a_cluster

NAMESPACE = "ml-team"
UNREACHABLE_AFTER_SECONDS = 3
SILENT_SECONDS = 40
# How a replica tells its deployment.
REPORT = "tell_many"


async def the_placement(plane: ControlPlane) -> Json:
    (placed,) = (await plane.describe("ModelDeployment", "qwen", NAMESPACE))["status"]["placements"]
    shown: Json = placed
    return shown


async def endpoint(plane: ControlPlane) -> str:
    return str((await the_placement(plane))["endpoint"])


Observe = Callable[[ObservedCluster], Awaitable[None]]


async def a_replica_that_serves(plane: ControlPlane) -> tuple[Observe, Json]:
    """Apply a cluster and a deployment. Return how to observe the cluster, and the placement."""
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    cluster = await plane.ready("InferenceCluster", "eu")
    await plane.apply(a_deployment("qwen", NAMESPACE))
    await plane.ready("ModelDeployment", "qwen", NAMESPACE)

    async def observe(seen: ObservedCluster) -> None:
        observed = Observed(owner_uid=cluster["metadata"]["uid"], digest="", cluster=seen)
        await plane.handle("InferenceCluster", "eu").signal("observed", observed.wire())

    return observe, await the_placement(plane)


@on_a_virtual_loop
async def test_its_endpoints_are_withdrawn_and_published_again_and_nothing_is_deleted() -> None:
    async with virtual_plane(SimulatedClusters(settings={"withdraw_after_seconds": UNREACHABLE_AFTER_SECONDS})) as plane:
        observe, before = await a_replica_that_serves(plane)
        assert before["endpoint"] == f"http://10.245.0.1/{NAMESPACE}/{before['replica']}/v1"

        silence = timedelta(seconds=SILENT_SECONDS)
        await observe(ObservedCluster(reachable=False, silent_seconds=SILENT_SECONDS, error="no response"))
        lost = await plane.until("InferenceCluster", "eu", lambda seen: condition(seen, "Ready") == "Unknown")
        rows = {row["type"]: row for row in lost["status"]["conditions"]}
        noticed = datetime.fromisoformat(rows["ClusterReady"]["lastTransitionTime"])
        last_answer = clock.timestamp(noticed - silence)
        assert message(lost, "ClusterReady") == f"no answer since {last_answer}: no response"
        await eventually(partial(endpoint, plane), lambda shown: shown == "", what="the withdrawal of the endpoint")
        silent = await plane.describe("ModelReplica", before["replica"], NAMESPACE)
        assert silent["status"]["phase"] == "Unreachable"
        assert (await the_placement(plane))["message"].startswith(
            f"InferenceCluster eu has not answered for more than {UNREACHABLE_AFTER_SECONDS} s"
        )
        await observe(ObservedCluster(gateway_address="10.245.0.1"))
        await eventually(partial(endpoint, plane), lambda shown: shown == before["endpoint"], what="the endpoint")
        scheduled = await plane.activities_scheduled("ModelReplica", before["replica"], NAMESPACE)
        assert [name for name in scheduled if name != REPORT] == ["apply_replica"]


@on_a_virtual_loop
async def test_replicas_hear_that_it_answers_again_while_its_deletion_waits_for_them() -> None:
    settings = {"withdraw_after_seconds": UNREACHABLE_AFTER_SECONDS}
    async with virtual_plane(SimulatedClusters(settings=settings)) as plane:
        observe, before = await a_replica_that_serves(plane)
        await observe(ObservedCluster(reachable=False, error="no response"))
        await eventually(partial(endpoint, plane), lambda shown: shown == "", what="the withdrawal")
        await plane.delete("InferenceCluster", "eu")
        await plane.until("InferenceCluster", "eu", lambda seen: reason(seen, "Deleting") == "Occupied")
        await observe(ObservedCluster(gateway_address="10.245.0.1"))
        await eventually(partial(endpoint, plane), lambda shown: shown == before["endpoint"], what="the endpoint")
        # The scheduler's answer is about the newest report, so the deletion goes on.
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("InferenceCluster", "eu")
