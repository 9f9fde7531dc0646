"""Long lives: a storm of signals over many runs loses none and applies none twice."""

import asyncio
import base64
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.caches import CacheActivities
from activities.clients.hub import HuggingFaceHub
from activities.clients.pool import KubernetesPool
from activities.clusters import ClusterActivities
from activities.messaging import Messaging, attributes_of, ensure_scheduler
from activities.render.artefact import SOURCE_HUGGINGFACE
from activities.render.settings import RenderSettings
from activities.revisions import RevisionActivities
from activities.secrets import StoredSecret
from activities.stores import secret_store
from activities.workloads import WorkloadActivities
from api_types import names, queues
from api_types.messages import Scale, SetSpec
from api_types.settings import KubeconfigSettings, SecretSettings, Settings
from testbed.install import Installer
from testbed.testbed import TEMPORAL, ClusterRunning, Running
from testbed.versions import TOOLS
from tests.local_hub import LocalHub, Repo
from tests.workflows.conftest import documents
from tests.workflows.harness import ControlPlane, Json, a_cache, a_deployment, eventually
from worker import register_search_attributes
from workflows import registry

pytestmark = pytest.mark.timeout(300)

SIGNALS = 2000
AT_ONCE = 25
THREADS = 32


@asynccontextmanager
async def impatient_server(events: int, on_clusters: Sequence[Callable[..., Any]] = ()) -> AsyncIterator[Client]:
    """A real server that suggests continue-as-new after so many events, with workers in this process."""
    program = Installer(print).programs(tool for tool in TOOLS if tool.name == TEMPORAL)[TEMPORAL]
    limit = ["--dynamic-config-value", f"limit.historyCount.suggestContinueAsNew={events}"]
    async with await WorkflowEnvironment.start_local(
        data_converter=pydantic_data_converter, dev_server_existing_path=str(program), dev_server_extra_args=limit
    ) as server:
        await register_search_attributes(server.client)
        messaging = Messaging()
        telling = [messaging.tell, messaging.tell_many, messaging.read_memo, messaging.ask_each, messaging.start_replicas]
        telling += [messaging.survey, messaging.broadcast]
        parts: dict[str, dict[str, Any]] = {
            queues.WORKFLOWS: {"workflows": registry.ENTITIES, "activities": telling},
            queues.SCHEDULER: {"workflows": registry.SCHEDULER_WORKFLOWS, "activities": [*telling, *registry.SCHEDULER_ACTIVITIES]},
        }
        if on_clusters:
            parts[queues.CLUSTERS] = {"activities": on_clusters}
        with ThreadPoolExecutor(max_workers=THREADS) as threads:
            async with AsyncExitStack() as workers:
                for queue, part in parts.items():
                    worker = Worker(
                        server.client,
                        task_queue=queue,
                        workflow_runner=registry.sandbox(),
                        activity_executor=threads,
                        max_concurrent_activities=THREADS,
                        **part,
                    )
                    await workers.enter_async_context(worker)
                await ensure_scheduler(server.client)
                yield server.client


async def runs(client: Client, workflow_id: str) -> int:
    return sum([1 async for _ in client.list_workflows(f'WorkflowId = "{workflow_id}"')])


async def test_two_thousand_scale_signals_while_runs_follow_each_other_are_each_applied_once() -> None:
    async with impatient_server(events=60) as client:
        await storm(client)


async def send(handle: WorkflowHandle[Any, Any], order: Json) -> None:
    """Send a scale order until the server has taken it; one that was taken twice is one order, since it has a request id."""
    while True:
        try:
            await handle.signal("scale", order)
        except RPCError as error:
            if error.status not in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED, RPCStatusCode.RESOURCE_EXHAUSTED):
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
        search_attributes=attributes_of("ModelDeployment", "storm", name),
        start_signal="set_spec",
        start_signal_args=[SetSpec(request_id="first", by="test", manifest=document).wire()],
    )
    handle = client.get_workflow_handle(workflow_id)
    # Each count differs from the one before, so each accepted order is exactly one generation.
    for burst in range(SIGNALS // AT_ONCE):
        orders = [Scale(request_id=f"{burst}/{number}", by="test", replicas=burst * AT_ONCE + number + 1) for number in range(AT_ONCE)]
        await asyncio.gather(*(send(handle, {**order.wire(), "replicas": order.replicas % 1000 + 1}) for order in orders))

    async def generation() -> int:
        try:
            return int((await handle.query("describe"))["metadata"]["generation"])
        except RPCError:
            # The owner is busy with the storm and answers later.
            return 0

    await eventually(generation, lambda seen: seen == 1 + SIGNALS, within=120, what="the generation of the deployment")
    await asyncio.sleep(2)
    assert await generation() == 1 + SIGNALS
    assert await runs(client, workflow_id) > 1
    assert await runs(client, names.FLEET_SCHEDULER_ID) > 1
    described = await handle.query("describe")
    assert "of" in next(item["message"] for item in described["status"]["conditions"] if item["type"] == "ReplicasScheduled")


@pytest.mark.testbed
async def test_a_model_lives_through_many_runs_of_all_its_workflows(
    testbed: Running, kube: Callable[[ClusterRunning], ApiClient], tmp_path: Path, hub: LocalHub
) -> None:
    store = secret_store(Settings(secrets=SecretSettings(directory=tmp_path)))
    for document in documents(testbed.manifests / "secrets.yaml"):
        data = {key: base64.b64decode(value) for key, value in document["data"].items()}
        await store.put(StoredSecret(document["metadata"]["namespace"], document["metadata"]["name"], data))
    pool = KubernetesPool(store, KubeconfigSettings(allow_loopback=True))
    clusters = ClusterActivities(pool, settings={"drain_seconds": 1})
    workloads = WorkloadActivities(pool, store, RenderSettings())
    hands = [clusters.connect_cluster, clusters.watch_cluster, workloads.apply_replica]
    hands += [workloads.prune_replica, workloads.teardown_replica_step]
    caches = CacheActivities(pool, store, RenderSettings())
    revisions = RevisionActivities(store, {SOURCE_HUGGINGFACE: HuggingFaceHub(hub.address)})
    hands += [caches.apply_cache, caches.delete_cache_objects, caches.await_credential, revisions.resolve_revision]
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    hub.repos["acme/long"] = Repo()
    async with impatient_server(events=15, on_clusters=hands) as client:
        plane = ControlPlane(client, testbed, None, kube)
        for file in ("classes.yaml", "clusters.yaml"):
            for document in documents(testbed.manifests / file):
                await plane.apply(document)
        await plane.apply(a_cache("long", namespace, "acme/long"))
        await plane.apply(a_deployment("long", namespace, replicas=1, modelCacheRef={"name": "long"}))
        first = await plane.ready("ModelDeployment", "long", namespace, within=120)
        for count in (3, 2, 4):
            await plane.scale("long", namespace, count)
            await plane.until("ModelDeployment", "long", lambda seen, n=count: replicas_of(seen) == (n, n), namespace, within=120)
        replica = first["status"]["placements"][0]["replica"]
        for workflow_id in (
            names.workflow_id("ModelDeployment", namespace, "long"),
            names.workflow_id("ModelReplica", namespace, replica),
            names.workflow_id("ModelCache", namespace, "long"),
            names.workflow_id("InferenceCluster", "", first["status"]["placements"][0]["cluster"]),
            names.FLEET_SCHEDULER_ID,
        ):
            await eventually(lambda wanted=workflow_id: runs(client, wanted), lambda count: count > 1, what=f"runs of {workflow_id}")
        assert await plane.scheduler("audit") == []
        await plane.delete("ModelCache", "long", namespace)
        await plane.delete("ModelDeployment", "long", namespace)
        for kind in ("ModelDeployment", "ModelCache"):
            await plane.gone(kind, "long", namespace, within=120)
        for cluster in testbed.clusters:
            assert plane.our_objects(cluster, namespace) == []
    await pool.close()


def replicas_of(seen: Json) -> tuple[int, int]:
    counts = seen.get("status", {}).get("replicas", {})
    return counts.get("total", 0), counts.get("ready", 0)
