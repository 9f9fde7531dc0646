"""A cluster whose API server and gateway are silent for `cluster.unreachableAfter`."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from functools import partial

import pytest

from api_types import clock
from api_types.messages.observations import Observed, ObservedCluster
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
)

NAMESPACE = "ml-team"
UNREACHABLE_AFTER_SECONDS = 3
SILENT_SECONDS = 40
# The activity by which a replica reports to its deployment.
REPORT = "tell_many"


async def the_placement(plane: ControlPlane) -> Json:
    (placed,) = (await plane.describe("ModelDeployment", "qwen", NAMESPACE))["status"][
        "placements"
    ]
    shown: Json = placed
    return shown


async def endpoint(plane: ControlPlane) -> str:
    return str((await the_placement(plane))["endpoint"])


Observe = Callable[[str, ObservedCluster], Awaitable[None]]

ANSWERING = ObservedCluster(gateway_address="10.245.0.1", gateway_answers=True)
# Neither the API server nor the gateway answers.
LOST = ObservedCluster(
    reachable=False,
    silent_seconds=SILENT_SECONDS,
    error="no response",
    gateway_answers=False,
)


@asynccontextmanager
async def a_replica_that_serves(
    *others: str,
) -> AsyncIterator[tuple[VirtualPlane, Observe, Json]]:
    """Apply a cluster, a deployment on it, and then other clusters.

    Yield the control plane, a function that reports an observation of a cluster, and
    the placement.
    """
    settings = {"withdraw_after_seconds": UNREACHABLE_AFTER_SECONDS}
    async with virtual_plane(SimulatedClusters(settings=settings)) as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        ready = {"eu": await plane.ready("InferenceCluster", "eu")}
        await plane.apply(a_deployment("qwen", NAMESPACE))
        await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        for name in others:
            await plane.apply(a_cluster(name))
            ready[name] = await plane.ready("InferenceCluster", name)

        async def observe(name: str, seen: ObservedCluster) -> None:
            uid = ready[name]["metadata"]["uid"]
            observed = Observed(owner_uid=uid, digest="", cluster=seen)
            await plane.handle("InferenceCluster", name).signal(
                "observed", observed.wire()
            )

        yield plane, observe, await the_placement(plane)


async def until_the_endpoint_is(plane: ControlPlane, wanted: str) -> None:
    await eventually(
        partial(endpoint, plane),
        lambda shown: shown == wanted,
        what=f"the endpoint {wanted!r}",
    )


async def until_described(plane: ControlPlane, text: str) -> Json:
    """Wait until `ClusterReady` of the silent cluster contains a text."""
    return await plane.until(
        "InferenceCluster", "eu", lambda seen: text in message(seen, "ClusterReady")
    )


def events(shown: Json) -> list[str]:
    return [event["reason"] for event in shown["status"]["events"]]


@on_a_virtual_loop
async def test_endpoints_are_withdrawn_and_published_again_and_nothing_is_deleted() -> (
    None
):
    async with a_replica_that_serves("us") as (plane, observe, before):
        assert (
            before["endpoint"]
            == f"http://10.245.0.1/{NAMESPACE}/{before['replica']}/v1"
        )

        silence = timedelta(seconds=SILENT_SECONDS)
        await observe("eu", LOST)
        lost = await plane.until(
            "InferenceCluster", "eu", lambda seen: condition(seen, "Ready") == "Unknown"
        )
        rows = {row["type"]: row for row in lost["status"]["conditions"]}
        noticed = datetime.fromisoformat(rows["ClusterReady"]["lastTransitionTime"])
        last_answer = clock.timestamp(noticed - silence)
        assert message(lost, "ClusterReady").startswith(
            f"no answer since {last_answer}: no response; "
        )
        await until_the_endpoint_is(plane, "")
        lost = await until_described(plane, "so the endpoints are withdrawn")
        assert "EndpointsWithdrawn" in events(lost)
        silent = await plane.describe("ModelReplica", before["replica"], NAMESPACE)
        assert silent["status"]["phase"] == "Unreachable"
        assert (
            "the gateway of InferenceCluster eu has answered for more than "
            f"{UNREACHABLE_AFTER_SECONDS} s" in (await the_placement(plane))["message"]
        )
        await observe("eu", ANSWERING)
        await until_the_endpoint_is(plane, before["endpoint"])
        scheduled = await plane.activities_scheduled(
            "ModelReplica", before["replica"], NAMESPACE
        )
        assert [name for name in scheduled if name != REPORT] == ["apply_replica"]


@pytest.mark.parametrize("answers", [True, None])
@on_a_virtual_loop
async def test_endpoints_stay_while_only_the_api_server_is_known_to_be_silent(
    *, answers: bool | None
) -> None:
    async with a_replica_that_serves("us") as (plane, observe, before):
        await observe("eu", LOST.model_copy(update={"gateway_answers": answers}))
        await until_described(plane, "the endpoints stay in their routes")
        await asyncio.sleep(10 * UNREACHABLE_AFTER_SECONDS)
        assert await endpoint(plane) == before["endpoint"]


@on_a_virtual_loop
async def test_endpoints_return_when_the_gateway_answers_before_the_api_server() -> (
    None
):
    async with a_replica_that_serves("us") as (plane, observe, before):
        await observe("eu", LOST)
        await until_the_endpoint_is(plane, "")
        await observe("eu", LOST.model_copy(update={"gateway_answers": True}))
        await until_the_endpoint_is(plane, before["endpoint"])


@on_a_virtual_loop
async def test_a_new_observer_does_not_forget_that_the_gateway_is_silent() -> None:
    async with a_replica_that_serves("us") as (plane, observe, _):
        await observe("eu", LOST)
        await observe("eu", LOST.model_copy(update={"gateway_answers": None}))
        await until_the_endpoint_is(plane, "")


@on_a_virtual_loop
async def test_no_route_changes_while_most_clusters_are_silent() -> None:
    async with a_replica_that_serves("us", "asia") as (plane, observe, before):
        for name in ("us", "eu"):
            await observe(name, LOST)
        suspected = await until_described(plane, "2 of 3 clusters do not answer")
        assert "NetworkSuspected" in events(suspected)
        assert await endpoint(plane) == before["endpoint"]
        await observe("us", ANSWERING)
        await until_the_endpoint_is(plane, "")


@on_a_virtual_loop
async def test_replicas_learn_that_a_deleting_cluster_answers_again() -> None:
    async with a_replica_that_serves("us") as (plane, observe, before):
        await observe("eu", LOST)
        await until_the_endpoint_is(plane, "")
        # No replica can move away.
        await plane.delete("InferenceCluster", "us")
        await plane.gone("InferenceCluster", "us")
        await plane.delete("InferenceCluster", "eu")
        await plane.until(
            "InferenceCluster",
            "eu",
            lambda seen: reason(seen, "Deleting") == "Occupied",
        )
        await observe("eu", ANSWERING)
        await until_the_endpoint_is(plane, before["endpoint"])
        # The scheduler's answer is about the newest report, so the deletion continues.
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("InferenceCluster", "eu")
