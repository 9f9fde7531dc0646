"""Record one lifecycle of each workflow type:

`pytest tests/workflows/histories/record.py`.

This is no test and is run by hand: before a release with `RELEASE=0.1.0`, which names
the folder, or else for the current commit. An existing file is never overwritten,
because later versions must replay it.
"""

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import ApiClient
from temporalio.client import Client

from api_types import names
from api_types.errors import CapacityUnavailable, QuotaExceeded
from api_types.sections.stacks import StackSettings
from testbed.running import ClusterRunning
from tests.activities.clouds.builders import an_eks_pool
from tests.environment.local_hub import LocalHub, Repo, a_commit
from tests.environment.stack_testbed import CLUSTER
from tests.environment.summary import Summary
from tests.workflows.cloud_cluster.control_plane import cloud_plane, workflow_worker
from tests.workflows.environment.harness import (
    ControlPlane,
    a_cache,
    a_deployment,
    message,
    reason,
)
from tests.workflows.environment.managed_stack import managed_stack
from tests.workflows.environment.protocol_fleet import protocol_fleet
from tests.workflows.environment.short_runs import server_with_short_runs
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    plane_of,
    simulated_plane,
)
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)
from tests.workflows.histories import wire_names
from tests.workflows.histories.recorded import HISTORIES, LIFE, git
from tests.workflows.stack_upgrades.simulated_stacks import (
    SimulatedStacks,
    a_managed_cluster,
)

SHORT_RUN_OF_CLOUDS = 200


def scrubbed(value: Any) -> Any:
    """Remove strings that identify the recording machine."""
    if isinstance(value, dict):
        return {
            key: "worker" if key == "identity" else scrubbed(item)
            for key, item in value.items()
        }
    return [scrubbed(item) for item in value] if isinstance(value, list) else value


@pytest.mark.testbed
async def test_record_a_lifecycle_of_each_workflow_type(
    plane: ControlPlane, hub: LocalHub
) -> None:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    cluster = min(plane.running.clusters)
    hub.repos["acme/life"] = Repo()
    await plane.apply(a_cache("life", namespace, "acme/life"))
    await plane.apply(
        a_deployment("life", namespace, replicas=1, modelCacheRef={"name": "life"})
    )
    first = await plane.ready("ModelDeployment", "life", namespace)
    await plane.scale("life", namespace, 2)
    await plane.until(
        "ModelDeployment",
        "life",
        lambda seen: seen["status"]["replicas"]["ready"] == 2,
        namespace,
    )
    await plane.apply(
        a_deployment(
            "life",
            namespace,
            replicas=1,
            image="example/engine:2",
            modelCacheRef={"name": "life"},
        )
    )
    await plane.until(
        "ModelDeployment",
        "life",
        lambda seen: seen["status"]["replicas"]["ready"] == 2,
        namespace,
    )
    commit = hub.repos["acme/life"].branches["main"] = a_commit("refreshed")
    await plane.apply(a_cache("life", namespace, "acme/life", refresh="1"))
    await plane.until(
        "ModelCache",
        "life",
        lambda seen: seen["status"].get("resolvedRevision") == commit,
        namespace,
    )
    await plane.ready("ModelCache", "life", namespace)
    await plane.delete("ModelCache", "life", namespace)
    await plane.delete("ModelDeployment", "life", namespace)
    for kind in ("ModelDeployment", "ModelCache"):
        await plane.gone(kind, "life", namespace)
    pool = (await plane.describe("InferenceCluster", cluster))["spec"]["nodePools"][0]
    ids = {
        "ModelCache": names.workflow_id("ModelCache", namespace, "life"),
        "ModelDeployment": names.workflow_id("ModelDeployment", namespace, "life"),
        "ModelReplica": names.workflow_id(
            "ModelReplica", namespace, first["status"]["placements"][0]["replica"]
        ),
        "InferenceCluster": names.workflow_id("InferenceCluster", "", cluster),
        "InferenceClass": names.workflow_id("InferenceClass", "", pool["className"]),
        "FleetScheduler": names.FLEET_SCHEDULER_ID,
    }
    await record(plane.client, ids)


async def record(client: Client, ids: dict[str, str], life: str = LIFE) -> None:
    """Write the history of one workflow of each kind."""
    for kind, workflow_id in ids.items():
        history = await client.get_workflow_handle(workflow_id).fetch_history()
        made_by = (
            os.environ.get("RELEASE")
            or git(HISTORIES, "rev-parse", "--short=8", "HEAD").strip()
        )
        path = HISTORIES / made_by / kind / f"{life}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x") as file:
            file.write(
                json.dumps(scrubbed(history.to_json_dict()), separators=(",", ":"))
                + "\n"
            )


@pytest.mark.testbed
async def test_record_the_deletion_of_a_cluster_in_use_and_of_its_class() -> None:
    """This uses its own control plane, so the testbed's clusters stay."""
    async with simulated_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("life", "ml"))
        await plane.ready("ModelDeployment", "life", "ml")
        await plane.delete("InferenceClass", "h100-8x")
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: reason(seen, "Deleting") == "InUse",
        )
        await plane.delete("InferenceCluster", "eu")
        await plane.until(
            "InferenceCluster", "eu", lambda seen: "life-" in message(seen, "Deleting")
        )
        await plane.delete("ModelDeployment", "life", "ml")
        for kind, name, namespace in (
            ("ModelDeployment", "life", "ml"),
            ("InferenceCluster", "eu", ""),
            ("InferenceClass", "h100-8x", ""),
        ):
            await plane.gone(kind, name, namespace)
        ids = {
            kind: names.workflow_id(kind, "", name)
            for kind, name in (
                ("InferenceCluster", "eu"),
                ("InferenceClass", "h100-8x"),
            )
        }
        await record(plane.client, ids, "deleted")


@pytest.mark.testbed
async def test_record_a_service_with_its_endpoints_and_the_gateway() -> None:
    """The simulated control cluster answers like a real one."""
    async with simulated_plane(
        SimulatedControl(settings={"drain_seconds": 1})
    ) as plane:
        await plane.apply(a_gateway())
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.apply(
            an_endpoint(
                "provider",
                "https://api.example.com/v1",
                namespace="ml",
                tier="external",
            )
        )
        await plane.apply(a_deployment("life", "ml", replicas=2))
        own = selecting({"modelplane.ai/deployment": "life"}, weight=90)
        await plane.apply(
            a_service(
                "life", own, selecting({"tier": "external"}, weight=10), namespace="ml"
            )
        )
        routed = await plane.until(
            "ModelService",
            "life",
            lambda seen: len(seen["status"].get("endpoints", ())) == 3,
            "ml",
        )
        await plane.ready("ModelService", "life", "ml")
        await plane.scale("life", "ml", 1)
        await plane.until(
            "ModelService",
            "life",
            lambda seen: len(seen["status"].get("endpoints", ())) == 2,
            "ml",
        )
        await plane.delete("ModelDeployment", "life", "ml")
        await plane.gone("ModelDeployment", "life", "ml")
        for kind, name, namespace in (
            ("ModelService", "life", "ml"),
            ("ModelEndpoint", "provider", "ml"),
            ("InferenceGateway", "default", ""),
        ):
            await plane.delete(kind, name, namespace)
            await plane.gone(kind, name, namespace)
        replica = next(
            each["name"] for each in routed["status"]["endpoints"] if "cluster" in each
        )
        ids = {
            "ModelService": names.workflow_id("ModelService", "ml", "life"),
            "ModelEndpoint": names.workflow_id("ModelEndpoint", "ml", "provider"),
            "InferenceGateway": names.workflow_id("InferenceGateway", "", "default"),
            "EndpointDirectory": names.endpoint_directory_id("ml"),
        }
        await record(plane.client, ids)
        await record(
            plane.client,
            {"ModelReplica": names.workflow_id("ModelReplica", "ml", replica)},
            "routed",
        )


@pytest.mark.testbed
async def test_record_a_gateway_that_is_installed() -> None:
    async with simulated_plane(SimulatedControl()) as plane:
        await plane.apply(a_gateway(installed=True))
        await plane.ready("InferenceGateway", "default")
        await plane.delete("InferenceGateway", "default")
        await plane.gone("InferenceGateway", "default")
        await record(
            plane.client,
            {"InferenceGateway": names.workflow_id("InferenceGateway", "", "default")},
            "installed",
        )


@pytest.mark.testbed
async def test_record_a_stack_that_is_installed_and_removed(
    tmp_path: Path,
    kube: Callable[[ClusterRunning], ApiClient],
    pytestconfig: pytest.Config,
) -> None:
    async with managed_stack(tmp_path, kube, Summary.of(pytestconfig)) as managed:
        await managed.apply()
        await managed.ready()
        await managed.delete()
        await managed.gone()
        await record(
            managed.plane.client,
            {"InferenceCluster": names.workflow_id("InferenceCluster", "", CLUSTER)},
            "stack",
        )


@pytest.mark.testbed
async def test_record_stacks_that_are_upgraded() -> None:
    """The simulated clusters answer like real ones."""
    clusters = SimulatedStacks()
    clusters.open.set()
    async with protocol_fleet(clients=1) as fleet, plane_of(fleet, clusters) as plane:
        await plane.apply(a_class())
        for cluster in ("asia", "eu"):
            await plane.apply(a_managed_cluster(cluster))
        for cluster in ("asia", "eu"):
            await plane.ready("InferenceCluster", cluster)
        clusters.stack_settings = StackSettings(versions={"leaderWorkerSet": "v0.8.1"})

        def is_upgraded(seen: dict[str, Any]) -> bool:
            return "the serving stack is upgraded" in [
                event["message"] for event in seen["status"]["events"]
            ]

        for cluster in ("asia", "eu"):
            await plane.until("InferenceCluster", cluster, is_upgraded)
            await plane.delete("InferenceCluster", cluster)
            await plane.gone("InferenceCluster", cluster)
        await record(fleet.client, {"StackUpgrades": names.STACK_UPGRADES_ID})
        await record(
            fleet.client,
            {"InferenceCluster": names.workflow_id("InferenceCluster", "", "eu")},
            "upgraded",
        )


async def test_record_a_cluster_at_a_cloud() -> None:
    async with (
        server_with_short_runs(SHORT_RUN_OF_CLOUDS) as client,
        workflow_worker(client),
        cloud_plane(client, "EKS") as plane,
    ):
        plane.cloud.refuse["create", "net/vpc"] = [
            QuotaExceeded("VPCs per region: limit 5")
        ]
        plane.cloud.broken["pool/gpu"] = (1, CapacityUnavailable)
        await plane.apply(an_eks_pool())
        await plane.until(lambda seen: "QuotaExceeded" in seen["message"])
        await plane.retry_now()
        await plane.ready()
        await plane.apply(an_eks_pool(maxNodeCount=4), an_eks_pool("b"))
        await plane.until(lambda seen: seen["ready"] and "pool/b" in str(seen))
        await plane.delete()
        await plane.gone()
        await record(client, {"CloudCluster": plane.id})


def test_record_the_names_on_the_wire() -> None:
    wire_names.RECORDED.write_text(json.dumps(wire_names.wire_names(), indent=1) + "\n")
