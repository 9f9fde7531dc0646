"""Continue-as-new: hundreds of signals over many runs are neither lost nor applied twice."""

import asyncio
import uuid
from collections.abc import Callable
from functools import partial
from operator import eq
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.search_attributes import identity_at_start
from activities.secrets.selection import secret_store
from api_types import names, queues
from api_types.clock import utc_now
from api_types.messages.entities import Scale, SetSpec
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from testbed.running import ClusterRunning, Running
from tests.environment.local_hub import LocalHub, Repo
from tests.workflows.conftest import apply_clusters, put_secrets
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_cache,
    a_deployment,
    a_worker,
    eventually,
)
from tests.workflows.environment.replaying import replay_all
from tests.workflows.environment.short_runs import (
    address_of,
    runs,
    server_with_short_runs,
)

SIGNALS = 500
# Requests that fill several runs of the scheduler.
MORE_MAX = 100
AT_ONCE = 25


@pytest.mark.testbed("shared")
async def test_five_hundred_scale_signals_while_runs_follow_each_other_are_each_applied_once(
    tmp_path: Path,
) -> None:
    async with server_with_short_runs(events=60) as client:
        with a_worker(
            address_of(client), tmp_path / "secrets", tmp_path / "worker.log"
        ):
            await storm(client)


async def send(handle: WorkflowHandle[Any, Any], order: Json) -> None:
    """Send a scale order until the server has accepted it.

    Its request id makes duplicates one order.
    """
    while True:
        try:
            await handle.signal("scale", order)
        except RPCError as error:
            if error.status not in (
                RPCStatusCode.DEADLINE_EXCEEDED,
                RPCStatusCode.CANCELLED,
                RPCStatusCode.RESOURCE_EXHAUSTED,
            ):
                raise
        else:
            return


async def storm(client: Client) -> None:
    name = f"storm-{uuid.uuid4().hex[:8]}"
    workflow_id = names.workflow_id("ModelDeployment", "storm", name)
    document = a_deployment(name, "storm", replicas=0)
    handle = await client.start_workflow(
        "ModelDeployment",
        None,
        id=workflow_id,
        task_queue=queues.WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        **identity_at_start("ModelDeployment", "storm", name),
        start_signal="set_spec",
        start_signal_args=[
            SetSpec(request_id="first", by="test", manifest=document).wire()
        ],
    )
    handle = client.get_workflow_handle(workflow_id)
    # Each count differs from the one before, so each accepted order is exactly one
    # generation.
    for burst in range(SIGNALS // AT_ONCE):
        orders = [
            Scale(
                request_id=f"{burst}/{number}",
                by="test",
                replicas=burst * AT_ONCE + number + 1,
            )
            for number in range(AT_ONCE)
        ]
        await asyncio.gather(
            *(
                send(handle, {**order.wire(), "replicas": order.replicas % 1000 + 1})
                for order in orders
            )
        )

    async def generation() -> int:
        try:
            return int((await handle.query("describe"))["metadata"]["generation"])
        except RPCError:
            # The owner is busy with the burst and answers later.
            return 0

    await eventually(
        generation,
        lambda seen: seen == 1 + SIGNALS,
        what="the generation of the deployment",
    )
    await asyncio.sleep(2)
    assert (
        await eventually(
            generation, lambda seen: seen > 0, what="an answer of the deployment"
        )
        == 1 + SIGNALS
    )
    assert await runs(client, workflow_id) > 1
    # A delayed deployment sends one request for many orders, so the number of requests
    # in the burst depends on the machine.
    more = 0
    while await runs(client, names.FLEET_SCHEDULER_ID) == 1:
        more += 1
        assert more < MORE_MAX, "the scheduler has not continued as new"
        await send(
            handle,
            Scale(request_id=f"more/{more}", by="test", replicas=more % 2).wire(),
        )
        await eventually(
            generation,
            partial(eq, 1 + SIGNALS + more),
            what="the generation of the deployment",
        )
    described = await handle.query("describe")
    assert "of" in next(
        item["message"]
        for item in described["status"]["conditions"]
        if item["type"] == "ReplicasScheduled"
    )


@pytest.mark.soak
@pytest.mark.testbed("shared")
async def test_a_model_is_served_across_many_runs_of_all_its_workflows(
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
    tmp_path: Path,
    hub: LocalHub,
) -> None:
    await put_secrets(
        testbed,
        secret_store(Settings(secrets=SecretSettings(directory=tmp_path / "secrets"))),
    )
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    hub.repos["acme/long"] = Repo()
    settings = {"MODELPLANE_CACHE__HUB_ENDPOINT": hub.address}
    began = utc_now()
    async with server_with_short_runs(events=15) as client:
        with a_worker(
            address_of(client),
            tmp_path / "secrets",
            tmp_path / "worker.log",
            **settings,
        ) as worker:
            await a_long_life(ControlPlane(client, testbed, worker, kube), namespace)
        await replay_all(client, began, tmp_path)


async def a_long_life(plane: ControlPlane, namespace: str) -> None:
    await apply_clusters(plane)
    await plane.apply(a_cache("long", namespace, "acme/long"))
    await plane.apply(
        a_deployment("long", namespace, replicas=1, modelCacheRef={"name": "long"})
    )
    first = await plane.ready("ModelDeployment", "long", namespace)
    for count in (3, 2, 4):
        await plane.scale("long", namespace, count)
        await plane.until(
            "ModelDeployment", "long", partial(has_replicas, count), namespace
        )
    replica = first["status"]["placements"][0]["replica"]
    for workflow_id in (
        names.workflow_id("ModelDeployment", namespace, "long"),
        names.workflow_id("ModelReplica", namespace, replica),
        names.workflow_id("ModelCache", namespace, "long"),
        names.workflow_id(
            "InferenceCluster", "", first["status"]["placements"][0]["cluster"]
        ),
        names.FLEET_SCHEDULER_ID,
    ):
        await eventually(
            partial(runs, plane.client, workflow_id),
            lambda count: count > 1,
            what=f"runs of {workflow_id}",
        )
    assert await plane.scheduler("audit") == []
    await plane.delete("ModelCache", "long", namespace)
    await plane.delete("ModelDeployment", "long", namespace)
    for kind in ("ModelDeployment", "ModelCache"):
        await plane.gone(kind, "long", namespace)
    for cluster in plane.running.clusters:
        assert plane.our_objects(cluster, namespace) == []


def has_replicas(count: int, seen: Json) -> bool:
    """Return whether exactly `count` replicas exist, all of them ready."""
    counts = seen.get("status", {}).get("replicas", {})
    return (counts.get("total", 0), counts.get("ready", 0)) == (count, count)
