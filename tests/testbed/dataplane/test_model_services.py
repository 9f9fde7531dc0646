"""Whole requests: what users apply becomes routes on the control gateway, and a request goes through two gateways to a pod and back.

Real API servers, a real Temporal, the worker as users run it, Traefik as each gateway; the engines are mocks that say who they are.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from api_types.settings import SecretSettings, Settings
from testbed.cluster.kube import collection
from testbed.dataplane import faults
from testbed.dataplane.names import PROVIDER, PROVIDER_ADDRESS
from testbed.fleet.fleet_file import CONTROL, FleetFile
from testbed.manifests import secret_name
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.testbed.conftest import control_of
from tests.workflows.conftest import apply_clusters, put_secrets
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, a_worker, condition, connected, eventually, reason
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


TOLD, SILENT = {"tier": "told"}, {"tier": "silent"}
ALL_CODES = {"attempts": 2, "backoffMilliseconds": 0, "codes": [429, 502, 503, 504]}
RETRYING: Mapping[str, tuple[list[Json], Json | None]] = {
    "once": ([selecting(TOLD)], None),
    "again": ([selecting(TOLD)], {"attempts": 2, "backoffMilliseconds": 0}),
    "codes": ([selecting(TOLD)], ALL_CODES),
    "lost": ([selecting(TOLD), selecting(SILENT)], None),
    "saved": ([selecting(TOLD), selecting(SILENT)], {}),
}
LARGE = "x" * ((1 << 20) + 1)
# The service, what the endpoint is told to do, what a client gets, and how often the endpoint is asked for it.
RETRIED = [
    ("once", "503-200", 503, 1),
    ("again", "503-200", 503, 1),
    ("again", "close-200", 502, 1),
    ("codes", "503-200", 200, 2),
    ("codes", "503", 503, 3),
    ("codes", "500-200", 500, 1),
    ("codes", "close-200", 200, 2),
    ("codes", "reset-200", 200, 2),
    ("codes", "slow", 200, 1),
]


async def a_retrying_service(services: Services, name: str) -> None:
    """Apply a service of the table, and wait until the gateway sends requests where it says."""
    entries, retries = RETRYING[name]
    await services.plane.apply(with_retries(a_service(name, *entries), retries))
    seen = await services.ready(name, len(entries))
    assert condition(seen, "RetriesReady") == ("" if retries is None else "True")
    async with httpx.AsyncClient(timeout=60) as http:

        async def status() -> int:
            return (await services.ask(http, name, "/plan/live/200")).status_code

        await eventually(status, lambda found: found == httpx.codes.OK, what=f"the gateway's route of {name}")


def with_retries(service: Json, retries: Json | None) -> Json:
    return service if retries is None else {**service, "spec": {**service["spec"], "retries": retries}}


async def arrived(services: Services, http: httpx.AsyncClient, case: str) -> list[str]:
    """Read which bodies the endpoint got."""
    found: list[str] = (await services.ask(http, "once", f"/seen/{case}")).json()
    return found


@pytest.fixture(scope="module")
async def retrying(services: Services) -> Services:
    """The services of the table, over an endpoint that fails as it is told to, and one where nothing listens."""
    await services.plane.apply(an_endpoint("told", f"http://{PROVIDER_ADDRESS}:{faults.PORT}", tier="told"))
    await services.plane.apply(an_endpoint("silent", f"http://{PROVIDER_ADDRESS}:{faults.SILENT_PORT}", tier="silent"))
    await asyncio.gather(*(a_retrying_service(services, name) for name in RETRYING))
    return services


async def test_a_request_is_sent_again_after_the_codes_of_its_service_and_no_others(retrying: Services) -> None:
    async with httpx.AsyncClient(timeout=60) as http:

        async def one(name: str, steps: str, more: Json) -> tuple[int, list[str], str]:
            case = secrets.token_hex(4)
            answer = await retrying.ask(http, name, f"/plan/{case}/{steps}", **more)
            return answer.status_code, await arrived(retrying, http, case), answer.request.content.decode()

        for name, steps, status, asked in RETRIED:
            assert await one(name, steps, {}) == (
                status,
                [(json.dumps(ASK, separators=(",", ":")))] * asked,
                json.dumps(ASK, separators=(",", ":")),
            ), steps
        # More than the gateway keeps of a request is sent once, whole.
        got, bodies, sent = await one("codes", "503-200", {"padding": LARGE})
        assert (got, len(bodies), bodies == [sent]) == (503, 1, True)


async def test_a_request_that_no_endpoint_was_sent_goes_to_the_next_one_by_itself(retrying: Services) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        counts = {
            name: Counter([(await retrying.ask(http, name, "/plan/next/200")).status_code for _ in range(10)]) for name in ("lost", "saved")
        }
    assert (set(counts["lost"]), counts["saved"]) == ({200, 502}, {200: 10})


@pytest.mark.parametrize(("step", "chunks", "whole"), [("stream", faults.CHUNKS, True), ("break", faults.CHUNKS // 2, False)])
async def test_of_a_stream_nothing_is_sent_twice_and_nothing_is_cut(retrying: Services, step: str, chunks: int, whole: bool) -> None:
    case, lines, ended = secrets.token_hex(4), list[str](), True
    async with httpx.AsyncClient(timeout=60) as http:
        try:
            async with http.stream("POST", f"{retrying.gateway}/{TEAM}/codes/plan/{case}/{step}-200", json=ASK) as answer:
                assert answer.status_code == httpx.codes.OK
                async for line in answer.aiter_lines():
                    lines += [line] if line else []
        except httpx.RemoteProtocolError:
            ended = False
        assert len(await arrived(retrying, http, case)) == 1
    assert (lines, ended) == ([f"data: 1.{number}" for number in range(chunks)], whole)


async def test_no_request_fails_while_retries_come_change_and_go_and_a_deleted_middleware_comes_back(retrying: Services) -> None:
    plane, stop, answered = retrying.plane, asyncio.Event(), Counter[int]()

    async def client(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            answered[(await retrying.ask(http, "once", "/plan/busy/200")).status_code] += 1
            await asyncio.sleep(0.01)

    async def change(retries: Json | None, shown: str) -> Json:
        await plane.apply(with_retries(a_service("once", selecting(TOLD)), retries))
        return await plane.until("ModelService", "once", lambda tree: condition(tree, "RetriesReady") == shown and settled(tree), TEAM)

    def settled(tree: Json) -> bool:
        return bool(tree["status"]["observedGeneration"] == tree["metadata"]["generation"])

    async with httpx.AsyncClient(timeout=60) as http:
        asking = asyncio.create_task(client(http))
        try:
            await change(ALL_CODES, "True")
            await change({"attempts": 1}, "True")
            await change(None, "")
            await asyncio.sleep(1)
        finally:
            stop.set()
            await asking
    assert set(answered) == {200}
    assert answered[200] > 100
    api, control = plane._kube(control_of(plane.running)), control_of(plane.running)
    path = control.server + collection("traefik.io/v1alpha1", "Middleware", TEAM)

    def stored() -> dict[str, str]:
        items = json.loads(api.call_api("GET", path, header_params={"Accept": "application/json"}).read())["items"]
        return {item["metadata"]["name"].rpartition("-")[0]: item["metadata"]["uid"] for item in items}

    async def there() -> dict[str, str]:
        return stored()

    before = await eventually(there, lambda found: set(found) == {"ms-again", "ms-codes", "ms-saved"}, what="Middlewares")
    seen = await plane.describe("ModelService", "codes", TEAM)
    assert seen
    api.call_api("DELETE", f"{path}/{seen['status']['route']}", header_params={"Accept": "application/json"})
    await eventually(there, lambda found: found.get("ms-codes", before["ms-codes"]) != before["ms-codes"], what="the Middleware of codes")
    await a_retrying_service(retrying, "codes")


async def test_what_goes_away_leaves_nothing_on_the_control_cluster(services: Services) -> None:
    plane = services.plane
    for name in ("whole", "one-cluster", "several", "external", "canary", "busy", *RETRYING):
        if await plane.describe("ModelService", name, TEAM):
            await plane.delete("ModelService", name, TEAM)
            await plane.gone("ModelService", name, TEAM)
    for name in ("qwen", "llama", "busy"):
        if await plane.describe("ModelDeployment", name, TEAM):
            await plane.delete("ModelDeployment", name, TEAM)
            await plane.gone("ModelDeployment", name, TEAM)
    for name in ("provider", "told", "silent"):
        if await plane.describe("ModelEndpoint", name, TEAM):
            await plane.delete("ModelEndpoint", name, TEAM)
            await plane.gone("ModelEndpoint", name, TEAM)
    await plane.delete("InferenceGateway", "default")
    await plane.gone("InferenceGateway", "default")
    control = control_of(plane.running)
    api = plane._kube(control)
    for path in (
        f"/apis/gateway.networking.k8s.io/v1/namespaces/{TEAM}/httproutes",
        f"/api/v1/namespaces/{TEAM}/services",
        f"/apis/discovery.k8s.io/v1/namespaces/{TEAM}/endpointslices",
        f"/apis/traefik.io/v1alpha1/namespaces/{TEAM}/middlewares",
    ):
        answer = api.call_api("GET", control.server + path, header_params={"Accept": "application/json"})
        assert json.loads(answer.read())["items"] == [], path
