"""Models and their services on a testbed with a data plane: two clusters behind the
control cluster's gateway.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from activities.watching import health
from api_types import labels, names
from api_types.clock import utc_now
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from testbed.fleet.fleet_file import CONTROL
from testbed.manifests import secret_name
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.environment.stopped_parts import stopped
from tests.testbed.conftest import control_of
from tests.workflows.conftest import apply_clusters, put_secrets
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    a_worker,
    connected,
    eventually,
    reason,
)
from tests.workflows.environment.replaying import replay_all
from tests.workflows.environment.simulated_control import a_gateway
from tests.workflows.environment.worker_that_notices_soon import SECONDS_VARIABLE

TEAM = "ml-team"
DEPLOYMENT = "modelplane.ai/deployment"
AT_ONCE = 16
ASK = {"model": "simulated", "messages": [{"role": "user", "content": "hello"}]}
# How long gateways have to follow their routes before a pod stops, and how long
# requests have to end, also if tests share two processors.
DRAIN_SECONDS, GRACE_SECONDS = 5, 300
# The objects of services and endpoints on the control cluster.
KINDS = {
    "HTTPRoute": "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes",
    "Service": "/api/v1/namespaces/{}/services",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Middleware": "/apis/traefik.io/v1alpha1/namespaces/{}/middlewares",
}


@dataclass
class Services:
    """The control plane, its gateway, and the testbed of both."""

    plane: ControlPlane
    gateway: str
    owner: Testbed

    async def complete(self) -> None:
        """Create the clusters and the gateway again if an earlier test deleted them."""
        await apply_clusters(self.plane)
        await self.plane.apply(a_gateway())
        await self.plane.ready("InferenceGateway", "default")

    async def deploy(self, name: str, replicas: int, **more: Any) -> dict[str, str]:
        """Run a deployment. Return the cluster of each replica by its name."""
        await self.plane.apply(a_deployment(name, TEAM, replicas=replicas, **more))
        return await self.placed(name, replicas)

    async def placed(self, name: str, replicas: int) -> dict[str, str]:
        """Wait until so many replicas are Ready.

        Return the cluster of each by its name.
        """

        def holds(seen: Json) -> bool:
            return (seen["status"].get("replicas") or {}).get("ready") == replicas

        seen = await self.plane.until("ModelDeployment", name, holds, TEAM)
        return {
            each["replica"]: each["cluster"] for each in seen["status"]["placements"]
        }

    async def rolled(self, name: str, replicas: int) -> None:
        """Wait until there are so many replicas, each Ready and up to date with its
        deployment.
        """

        def holds(seen: Json) -> bool:
            status = seen["status"]
            counts = (
                status.get("replicas") or {},
                (status.get("rollout") or {}).get("updatedReady"),
            )
            # A leaving replica is no longer counted, and keeps its placement until it
            # is gone.
            return (
                counts == ({"total": replicas, "ready": replicas}, replicas)
                and len(status["placements"]) == replicas
            )

        await self.plane.until("ModelDeployment", name, holds, TEAM)

    async def delete(self, kind: str, *objects: str) -> None:
        """Delete objects of the team at once, and wait until they are gone."""
        there = [
            name for name in objects if await self.plane.describe(kind, name, TEAM)
        ]
        for name in there:
            await self.plane.delete(kind, name, TEAM)
        for name in there:
            await self.plane.gone(kind, name, TEAM)

    async def ready(self, name: str, endpoints: int) -> Json:
        """Wait until a service routes so many endpoints."""

        def holds(seen: Json) -> bool:
            return (
                len(seen["status"].get("endpoints", ())) == endpoints
                and reason(seen, "Ready") == "RouteConfigured"
            )

        return await self.plane.until("ModelService", name, holds, TEAM)

    async def ask(
        self,
        http: httpx.AsyncClient,
        name: str,
        path: str = "/v1/chat/completions",
        **more: Any,
    ) -> httpx.Response:
        return await http.post(
            f"{self.gateway}/{TEAM}/{name}{path}", json={**ASK, **more}
        )

    async def responders(self, name: str, count: int) -> Counter[str]:
        """Send so many requests, and count the responders.

        Each response must be a success.
        """
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(http: httpx.AsyncClient) -> httpx.Response:
            async with gate:
                return await self.ask(http, name)

        # Check after all have ended: a client that is closed earlier leaves connections
        # open.
        async with httpx.AsyncClient(timeout=60) as http:
            answers = await asyncio.gather(*(one(http) for _ in range(count)))
        for answer in answers:
            assert answer.status_code == httpx.codes.OK, answer.text
        return Counter(answer.headers["x-modelplane-endpoint"] for answer in answers)

    async def live(self, name: str, *expected: str) -> None:
        """Wait until the gateway itself sends requests to these pods and no others."""

        async def seen() -> set[str]:
            try:
                return set(await self.responders(name, 40))
            except AssertionError:
                # The gateway has accepted the route, and does not use it yet.
                return set()

        await eventually(
            seen, lambda found: found == set(expected), what=f"the endpoints of {name}"
        )

    def on_control_cluster(self) -> dict[str, set[str]]:
        """Return the names of the team's objects on the control cluster, by kind."""
        return {
            kind: {
                item["metadata"]["name"]
                for item in self._control(path.format(TEAM))["items"]
            }
            for kind, path in KINDS.items()
        }

    def annotate_pod(self, cluster: str, replica: str, annotations: Json) -> None:
        """Annotate the only pod of a replica."""
        workload = names.workload_name(TEAM, replica)
        (pod,) = [
            pod
            for pod in self.plane.pods(cluster, TEAM)
            if pod["metadata"]["labels"].get(labels.SERVING) == workload
        ]
        path = f"/api/v1/namespaces/{TEAM}/pods/{pod['metadata']['name']}"
        self.plane.call(
            cluster,
            "PATCH",
            path,
            {"metadata": {"annotations": annotations}},
            "application/merge-patch+json",
        )

    def _control(self, path: str) -> Any:
        control = control_of(self.plane.running)
        answer = self.plane._kube(control).call_api(
            "GET", control.server + path, header_params={"Accept": "application/json"}
        )
        return json.loads(answer.read())

    def pods(self) -> set[str]:
        """Return the pods of the team that nobody has deleted."""
        found = [
            pod["metadata"]
            for cluster in self.plane.running.clusters
            for pod in self.plane.pods(cluster, TEAM)
        ]
        return {
            metadata["name"]
            for metadata in found
            if "deletionTimestamp" not in metadata
        }

    def without_control_cluster(
        self, seconds: float
    ) -> AbstractAsyncContextManager[Awaitable[None]]:
        """Stop the control cluster's API server for so many seconds or for the block.

        Its gateway keeps running.
        """
        parts = [
            f"{CONTROL}.{part}"
            for part in ("kube-apiserver", "kube-controller-manager")
        ]
        return stopped(self.owner, self.plane.running.home, parts, seconds)


@asynccontextmanager
async def a_fleet_with_services(
    testbed: Testbed,
    folder: Path,
    kube: Callable[[ClusterRunning], ApiClient],
    probe_seconds: float = health.PROBE_SECONDS,
    **more: str,
) -> AsyncIterator[Services]:
    """Run a worker on a testbed, which probes clusters every so many seconds.

    `more` are variables of its environment. At the end every run is replayed.
    """
    running, began = testbed.running(), utc_now()
    assert running
    await put_secrets(
        running,
        secret_store(Settings(secrets=SecretSettings(directory=folder / "secrets"))),
    )
    settings = {
        "MODELPLANE_CONTROL_CLUSTER__NAME": secret_name(CONTROL),
        "MODELPLANE_TEARDOWN__DRAIN_SECONDS": str(DRAIN_SECONDS),
        "MODELPLANE_WORKLOADS__TERMINATION_GRACE_SECONDS": str(GRACE_SECONDS),
        SECONDS_VARIABLE: str(probe_seconds),
        **more,
    }
    module = "tests.workflows.environment.worker_that_notices_soon"
    with a_worker(
        running.temporal_address,
        folder / "secrets",
        folder / "worker.log",
        module,
        **settings,
    ) as worker:
        async with connected(running) as client:
            plane = ControlPlane(client, running, worker, kube)
            yield Services(plane, control_of(running).gateway_url, testbed)
            await replay_all(client, began, folder)
