"""Whole requests: what users apply becomes routes on the control gateway, and a request goes through two gateways to a pod and back.

Real API servers, a real Temporal, the worker as users run it, Traefik as each gateway; the engines are mocks that say who they are.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from api_types.settings import SecretSettings, Settings
from testbed.dataplane.names import PROVIDER
from testbed.fleet.fleet_file import CONTROL, FleetFile
from testbed.manifests import secret_name
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.testbed.conftest import control_of
from tests.workflows.conftest import apply_clusters, put_secrets
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, a_worker, connected, eventually, reason
from tests.workflows.environment.simulated_control import a_gateway, a_service, an_endpoint, selecting

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(300)]

FLEET = """
classes:
  eight:
    devices: [{name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 8}]
clusters:
  - {name: eu, pools: [{name: gpus, class: eight, nodes: 6}]}
  - {name: us, pools: [{name: gpus, class: eight, nodes: 6}]}
"""
TEAM = "ml-team"
DEPLOYMENT, CLUSTER = "modelplane.ai/deployment", "modelplane.ai/cluster"
REQUESTS, AT_ONCE = 5_000, 16
ASK = {"model": "simulated", "messages": [{"role": "user", "content": "hello"}]}


@dataclass
class Services:
    """The control plane and its gateway."""

    plane: ControlPlane
    gateway: str

    async def ready(self, name: str, endpoints: int) -> Json:
        """Wait until a service routes so many endpoints."""

        def holds(seen: Json) -> bool:
            return len(seen["status"].get("endpoints", ())) == endpoints and reason(seen, "Ready") == "RouteConfigured"

        return await self.plane.until("ModelService", name, holds, TEAM)

    async def ask(self, http: httpx.AsyncClient, name: str, path: str = "/v1/chat/completions", **more: Any) -> httpx.Response:
        return await http.post(f"{self.gateway}/{TEAM}/{name}{path}", json={**ASK, **more})

    async def responders(self, name: str, count: int) -> Counter[str]:
        """Ask so often, and count who answered; each answer must be one."""
        answered: Counter[str] = Counter()
        gate = asyncio.Semaphore(AT_ONCE)

        async def one(http: httpx.AsyncClient) -> None:
            async with gate:
                answer = await self.ask(http, name)
                assert answer.status_code == httpx.codes.OK, answer.text
                answered[answer.headers["x-modelplane-endpoint"]] += 1

        async with httpx.AsyncClient(timeout=60) as http:
            await asyncio.gather(*(one(http) for _ in range(count)))
        return answered

    async def live(self, name: str, *expected: str) -> None:
        """Wait until the gateway itself sends requests to these and no others: it follows its routes within a moment."""

        async def seen() -> set[str]:
            try:
                return set(await self.responders(name, 40))
            except AssertionError:
                # It has accepted the route, and has not taken it over yet.
                return set()

        await eventually(seen, lambda found: found == set(expected), what=f"the endpoints of {name}")


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory, kube: Callable[[ClusterRunning], ApiClient]) -> AsyncIterator[Services]:
    folder = tmp_path_factory.mktemp("services")
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        running = testbed.up(data_plane=True)
        await put_secrets(running, secret_store(Settings(secrets=SecretSettings(directory=folder / "secrets"))))
        settings = {"MODELPLANE_CONTROL_CLUSTER__NAME": secret_name(CONTROL)}
        with a_worker(running.temporal_address, folder / "secrets", folder / "worker.log", **settings) as worker:
            async with connected(running) as client:
                plane = ControlPlane(client, running, worker, kube)
                await apply_clusters(plane)
                await plane.apply(a_gateway())
                await plane.ready("InferenceGateway", "default")
                yield Services(plane, control_of(running).gateway_url)
    finally:
        testbed.down()


async def deploy(services: Services, name: str, replicas: int, **more: Any) -> dict[str, str]:
    """Run a deployment; gives the cluster of each replica by its name."""
    await services.plane.apply(a_deployment(name, TEAM, replicas=replicas, **more))
    seen = await services.plane.until(
        "ModelDeployment", name, lambda tree: (tree["status"].get("replicas") or {}).get("ready") == replicas, TEAM
    )
    return {each["replica"]: each["cluster"] for each in seen["status"]["placements"]}


async def test_one_service_for_each_pattern_of_the_worked_examples(services: Services) -> None:
    qwen = await deploy(services, "qwen", 2)
    llama = await deploy(services, "llama", 1)
    assert set(qwen.values()) == {"eu", "us"}
    (in_eu,) = [name for name, cluster in qwen.items() if cluster == "eu"]
    (other,) = llama
    await services.plane.apply(an_endpoint("provider", f"https://{PROVIDER}/v1", tier="external"))
    whole, one = selecting({DEPLOYMENT: "qwen"}), selecting({DEPLOYMENT: "qwen", CLUSTER: "eu"})
    patterns: Mapping[str, tuple[list[Json], tuple[str, ...]]] = {
        "whole": ([whole], tuple(qwen)),
        "one-cluster": ([one], (in_eu,)),
        "several": ([whole, selecting({DEPLOYMENT: "llama"})], (*qwen, other)),
        "external": ([selecting({"tier": "external"})], ("provider",)),
    }
    for name, (entries, _) in patterns.items():
        await services.plane.apply(a_service(name, *entries))
    for name, (_, expected) in patterns.items():
        seen = await services.ready(name, len(expected))
        assert sorted(each["name"] for each in seen["status"]["endpoints"]) == sorted(expected)
        if name != "external":
            await services.live(name, *expected)


async def test_tokens_stream_through_both_gateways(services: Services) -> None:
    await deploy(services, "qwen", 2)
    await services.plane.apply(a_service("whole", selecting({DEPLOYMENT: "qwen"})))
    await services.ready("whole", 2)
    async with httpx.AsyncClient(timeout=60) as http:
        body = {**ASK, "stream": True, "max_tokens": 20, "seconds_per_token": 0.05}
        lines: list[str] = []
        arrivals: list[float] = []
        async with http.stream("POST", f"{services.gateway}/{TEAM}/whole/v1/chat/completions", json=body) as answer:
            assert answer.status_code == httpx.codes.OK
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    lines.append(line.removeprefix("data: "))
                    arrivals.append(asyncio.get_running_loop().time())
        assert lines[-1] == "[DONE]"
        assert json.loads(lines[0])["object"] == "chat.completion.chunk"
        # Not in one piece at the end: a gateway that buffers would do that.
        assert arrivals[-1] - arrivals[0] > 0.5


async def test_weights_of_a_canary_are_met(services: Services) -> None:
    stable, canary = await deploy(services, "qwen", 2), await deploy(services, "llama", 1)
    entries = [selecting({DEPLOYMENT: "qwen"}, weight=90), selecting({DEPLOYMENT: "llama"}, weight=10)]
    await services.plane.apply(a_service("canary", *entries))
    await services.ready("canary", 3)
    await services.live("canary", *stable, *canary)
    counts = await services.responders("canary", REQUESTS)
    share = sum(counts[name] for name in canary) / REQUESTS
    assert share == pytest.approx(0.10, abs=0.02)
    for name in stable:
        assert counts[name] / REQUESTS == pytest.approx(0.45, abs=0.02)


async def test_no_request_fails_while_replicas_scale_roll_and_drain(services: Services) -> None:
    plane = services.plane
    await deploy(services, "busy", 2)
    await plane.apply(a_service("busy", selecting({DEPLOYMENT: "busy"})))
    await services.ready("busy", 2)
    stop, failed, answered = asyncio.Event(), list[str](), Counter[str]()

    async def clients(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            try:
                answer = await services.ask(http, "busy")
                answered[answer.headers.get("x-modelplane-endpoint", "")] += 1
                if answer.status_code != httpx.codes.OK:
                    failed.append(f"{answer.status_code} {answer.text}")
            except httpx.HTTPError as error:
                failed.append(repr(error))
            await asyncio.sleep(0.02)

    async def settled(count: int) -> None:
        def holds(seen: Json) -> bool:
            status = seen["status"]
            counts = (status.get("replicas") or {}, (status.get("rollout") or {}).get("updatedReady"))
            return counts == ({"total": count, "ready": count}, count)

        await plane.until("ModelDeployment", "busy", holds, TEAM)
        await services.ready("busy", count)

    async with httpx.AsyncClient(timeout=60) as http:
        tasks = [asyncio.create_task(clients(http)) for _ in range(4)]
        try:
            await plane.scale("busy", TEAM, 4)
            await settled(4)
            await plane.scale("busy", TEAM, 2)
            await settled(2)
            await deploy(services, "busy", 2, image="registry.example/engine:2")
            await settled(2)
        finally:
            stop.set()
            await asyncio.gather(*tasks)
    assert failed == []
    assert sum(answered.values()) > 100
    assert len(answered) >= 4, "all that were there for a while have answered"


async def test_what_goes_away_leaves_nothing_on_the_control_cluster(services: Services) -> None:
    plane = services.plane
    for name in ("whole", "one-cluster", "several", "external", "canary", "busy"):
        if await plane.describe("ModelService", name, TEAM):
            await plane.delete("ModelService", name, TEAM)
            await plane.gone("ModelService", name, TEAM)
    for name in ("qwen", "llama", "busy"):
        if await plane.describe("ModelDeployment", name, TEAM):
            await plane.delete("ModelDeployment", name, TEAM)
            await plane.gone("ModelDeployment", name, TEAM)
    if await plane.describe("ModelEndpoint", "provider", TEAM):
        await plane.delete("ModelEndpoint", "provider", TEAM)
        await plane.gone("ModelEndpoint", "provider", TEAM)
    await plane.delete("InferenceGateway", "default")
    await plane.gone("InferenceGateway", "default")
    control = control_of(plane.running)
    api = plane._kube(control)
    for path in (
        f"/apis/gateway.networking.k8s.io/v1/namespaces/{TEAM}/httproutes",
        f"/api/v1/namespaces/{TEAM}/services",
        f"/apis/discovery.k8s.io/v1/namespaces/{TEAM}/endpointslices",
    ):
        answer = api.call_api("GET", control.server + path, header_params={"Accept": "application/json"})
        assert json.loads(answer.read())["items"] == [], path
