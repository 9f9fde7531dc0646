"""Whole requests through two gateways to a pod and back, over routes of applied
objects.

Real API servers, a real Temporal, the worker as users run it, and Traefik as each
gateway. The engines are mocks that name themselves.
"""

import asyncio
import json
import re
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping

import httpx
import pytest
from kubernetes.client import ApiClient

from testbed.cluster.kube import collection
from testbed.dataplane import faults
from testbed.dataplane.names import PROVIDER, PROVIDER_ADDRESS
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.testbed.conftest import control_of
from tests.testbed.dataplane.retrying import (
    ALL_CODES,
    LARGE,
    RETRIED,
    RETRYING,
    TOLD,
    a_retrying_service,
    arrived,
    with_retries,
)
from tests.testbed.dataplane.services import (
    ASK,
    DEPLOYMENT,
    KINDS,
    TEAM,
    Services,
    a_fleet_with_services,
)
from tests.testbed.dataplane.streams import Streams, all_answer
from tests.workflows.environment.harness import (
    Json,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_control import (
    a_service,
    an_endpoint,
    selecting,
)
from tests.workflows.environment.topologies import run

pytestmark = [pytest.mark.testbed, pytest.mark.timeout(900)]

CLUSTER = "modelplane.ai/cluster"
# A gateway distributes requests in turns, so few of them show the weights.
REQUESTS = 400
NOTHING: Mapping[str, set[str]] = {kind: set() for kind in KINDS}


@pytest.fixture(scope="module")
async def running_services(
    wired: Testbed,
    tmp_path_factory: pytest.TempPathFactory,
    kube: Callable[[ClusterRunning], ApiClient],
) -> AsyncIterator[Services]:
    """The gateway goes at the end, and leaves nothing either."""
    async with a_fleet_with_services(
        wired, tmp_path_factory.mktemp("services"), kube
    ) as services:
        yield services
        await services.plane.delete("InferenceGateway", "default")
        await services.plane.gone("InferenceGateway", "default")
        assert services.on_control_cluster() == NOTHING


@pytest.fixture
async def services(running_services: Services) -> Services:
    await running_services.complete()
    return running_services


# The life of models and their services


async def test_models_stay_reachable_through_two_gateways_while_they_scale_roll_and_move(
    services: Services,
) -> None:
    """Real gateways decide where requests arrive, in which shares, and whether any
    fails while endpoints change.
    """
    placed = await services.deploy("qwen", 2)
    (llama,) = await services.deploy("llama", 1)
    assert set(placed.values()) == {"eu", "us"}
    await each_pattern_reaches_its_endpoints(services, placed, llama)
    await tokens_stream_through_both_gateways(services)
    await curl_names_the_replica_that_answered(services, placed)
    await paths_arrive_as_the_rewrites_of_both_gateways_say(services)
    await the_weights_of_a_canary_are_met(services, placed, llama)
    await no_request_fails_while_replicas_scale_roll_and_leave_a_deleted_cluster(
        services
    )
    await what_is_deleted_leaves_nothing_on_the_control_cluster(services)


async def each_pattern_reaches_its_endpoints(
    services: Services, qwen: Mapping[str, str], llama: str
) -> None:
    (in_eu,) = [name for name, cluster in qwen.items() if cluster == "eu"]
    await services.plane.apply(
        an_endpoint("provider", f"https://{PROVIDER}/v1", tier="external")
    )
    whole, one = (
        selecting({DEPLOYMENT: "qwen"}),
        selecting({DEPLOYMENT: "qwen", CLUSTER: "eu"}),
    )
    patterns: Mapping[str, tuple[list[Json], tuple[str, ...]]] = {
        "whole": ([whole], tuple(qwen)),
        "one-cluster": ([one], (in_eu,)),
        "several": ([whole, selecting({DEPLOYMENT: "llama"})], (*qwen, llama)),
        "external": ([selecting({"tier": "external"})], ("provider",)),
    }
    for name, (entries, _) in patterns.items():
        await services.plane.apply(a_service(name, *entries))
    for name, (_, expected) in patterns.items():
        seen = await services.ready(name, len(expected))
        assert sorted(each["name"] for each in seen["status"]["endpoints"]) == sorted(
            expected
        )
        if name != "external":
            await services.live(name, *expected)


async def tokens_stream_through_both_gateways(services: Services) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        body = {**ASK, "stream": True, "max_tokens": 20, "seconds_per_token": 0.05}
        lines: list[str] = []
        arrivals: list[float] = []
        async with http.stream(
            "POST", f"{services.gateway}/{TEAM}/whole/v1/chat/completions", json=body
        ) as answer:
            assert answer.status_code == httpx.codes.OK
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    lines.append(line.removeprefix("data: "))
                    arrivals.append(asyncio.get_running_loop().time())
        assert lines[-1] == "[DONE]"
        assert json.loads(lines[0])["object"] == "chat.completion.chunk"
        # The answer does not come in one piece at the end, as through a buffering
        # gateway.
        assert arrivals[-1] - arrivals[0] > 0.5


async def curl_names_the_replica_that_answered(
    services: Services, placed: Mapping[str, str]
) -> None:
    async def curl(path: str) -> tuple[int, list[str]]:
        options = ["-n", TEAM, "--gateway", services.gateway]
        code, said = await run(services.plane, "curl", "whole", path, *options)
        return code, said.splitlines()

    code, (status, *body) = await curl("/v1/models")
    (answer,) = (json.loads(line) for line in body)
    answers = [f"200 OK from {name} on {cluster}" for name, cluster in placed.items()]
    assert (code, status in answers, answer["object"]) == (0, True, "list"), status
    code, (status, *_) = await curl("/nowhere")
    assert (code, status.split(" from ")[0]) == (1, "404 Not Found"), status


# The requests of clients below the address of a service, and the paths that reach the
# engine.
PATHS = [
    ("whole", "/v1/messages", "/v1/messages"),
    ("whole", "/v1/unknown", "/v1/unknown"),
    ("whole", "/v1/messages/", "/v1/messages/"),
    ("whole", "/", "/"),
    # Traefik matches and strips the prefix also without a trailing slash.
    ("whole", "", "/"),
    ("rewritten", "/v1/messages", "/v1/messages"),
    ("prefixed", "/v1/messages", "/openai/v1/messages"),
    ("doubled", "/v1/messages", "/openai/v1/v1/messages"),
    ("unchanged", "/v1/messages", f"/{TEAM}/unchanged/v1/messages"),
]
REWRITES = {"rewritten": "/", "prefixed": "/openai/", "doubled": "/openai/v1/"}


async def paths_arrive_as_the_rewrites_of_both_gateways_say(services: Services) -> None:
    for name, rewrite in (*REWRITES.items(), ("unchanged", None)):
        endpoint = an_endpoint(name, f"https://{PROVIDER}/v1", tier=name)
        await services.plane.apply(
            {
                **endpoint,
                "spec": {
                    **endpoint["spec"],
                    **({"rewritePath": rewrite} if rewrite else {}),
                },
            }
        )
        await services.plane.apply(a_service(name, selecting({"tier": name})))
    for name in (*REWRITES, "unchanged"):
        await services.ready(name, 1)
    base = f"{services.gateway}/{TEAM}"
    async with httpx.AsyncClient(timeout=60) as http:

        async def asked() -> list[tuple[str, str, str]]:
            """The path in the engine's answer: it refuses all of these requests."""
            found = []
            for name, path, _ in PATHS:
                said = re.search(
                    r"GET (\S+) at pod", (await http.get(f"{base}/{name}{path}")).text
                )
                found.append((name, path, said[1] if said else ""))
            return found

        await eventually(
            asked, lambda found: found == PATHS, what="the paths at the engines"
        )
        echoed = (await http.get(f"{base}/rewritten/v1/echo?limit=2")).json()
        assert (echoed["query"], echoed["host"], echoed["scheme"]) == (
            "limit=2",
            PROVIDER,
            "https",
        )
        assert (await http.get(f"{base}/whole/health")).status_code == httpx.codes.OK
        # A prefix ends at the end of a path segment.
        assert (
            await http.get(f"{base}/whole-2/v1/models")
        ).status_code == httpx.codes.NOT_FOUND


async def the_weights_of_a_canary_are_met(
    services: Services, stable: Mapping[str, str], canary: str
) -> None:
    entries = [
        selecting({DEPLOYMENT: "qwen"}, weight=90),
        selecting({DEPLOYMENT: "llama"}, weight=10),
    ]
    await services.plane.apply(a_service("canary", *entries))
    await services.ready("canary", 3)
    await services.live("canary", *stable, canary)
    counts = await services.responders("canary", REQUESTS)
    assert counts[canary] / REQUESTS == pytest.approx(0.10, abs=0.02)
    for name in stable:
        assert counts[name] / REQUESTS == pytest.approx(0.45, abs=0.02)


async def no_request_fails_while_replicas_scale_roll_and_leave_a_deleted_cluster(
    services: Services,
) -> None:
    plane = services.plane
    with Streams([f"{services.gateway}/{TEAM}/whole"]) as streams:
        for replicas, image in ((4, 1), (2, 1), (2, 2)):
            await plane.apply(
                a_deployment(
                    "qwen",
                    TEAM,
                    replicas=replicas,
                    image=f"registry.example/engine:{image}",
                )
            )
            await services.rolled("qwen", replicas)
            await services.ready("whole", replicas)
            await all_answer(streams, replicas)
        placed = await services.placed("qwen", 2)
        leaving, cluster = next(iter(placed.items()))
        await plane.delete("InferenceCluster", cluster)
        seen = await plane.until(
            "InferenceCluster",
            cluster,
            lambda tree: leaving in message(tree, "Deleting"),
        )
        assert reason(seen, "Deleting") == "Occupied"
        assert "--evict" in message(seen, "Deleting")
        await plane.delete("InferenceCluster", cluster, evict=True)
        await plane.gone("InferenceCluster", cluster)
        moved = await services.placed("qwen", 2)
        assert set(moved.values()) == {"eu", "us"} - {cluster}
        await services.ready("whole", 2)
        await services.live("whole", *moved)
        await all_answer(streams, 2)
    assert streams.cut == []
    assert plane.our_objects(cluster, TEAM) == []


async def what_is_deleted_leaves_nothing_on_the_control_cluster(
    services: Services,
) -> None:
    await services.delete(
        "ModelService",
        "whole",
        "one-cluster",
        "several",
        "external",
        "canary",
        *REWRITES,
        "unchanged",
    )
    await services.delete("ModelDeployment", "qwen", "llama")
    await services.delete("ModelEndpoint", "provider", *REWRITES, "unchanged")
    assert services.on_control_cluster() == NOTHING


# Retried requests


async def test_requests_are_retried_as_the_service_configures_and_middlewares_follow_it(
    services: Services,
) -> None:
    """Traefik decides which failures are retried, keeps streams complete, and reads
    Middlewares beside the routes.
    """
    await services.plane.apply(
        an_endpoint("told", f"http://{PROVIDER_ADDRESS}:{faults.PORT}", tier="told")
    )
    await services.plane.apply(
        an_endpoint(
            "silent", f"http://{PROVIDER_ADDRESS}:{faults.SILENT_PORT}", tier="silent"
        )
    )
    await asyncio.gather(*(a_retrying_service(services, name) for name in RETRYING))
    await a_request_is_sent_again_after_the_codes_of_its_service_and_no_others(services)
    await a_request_that_no_endpoint_was_sent_goes_to_the_next_one(services)
    for step, chunks, whole in (
        ("stream", faults.CHUNKS, True),
        ("break", faults.CHUNKS // 2, False),
    ):
        await nothing_of_a_stream_is_sent_twice(services, step, chunks, whole=whole)
    await a_gateway_whose_class_lists_no_timeouts_routes_without_them(services)
    await no_request_fails_while_retries_come_change_and_go(services)
    await a_deleted_middleware_comes_back(services)
    await services.delete("ModelService", "timed", *RETRYING)
    await services.delete("ModelEndpoint", "told", "silent")
    assert services.on_control_cluster() == NOTHING


async def a_request_is_sent_again_after_the_codes_of_its_service_and_no_others(
    services: Services,
) -> None:
    async with httpx.AsyncClient(timeout=60) as http:

        async def one(name: str, steps: str, more: Json) -> tuple[int, list[str], str]:
            case = secrets.token_hex(4)
            answer = await services.ask(http, name, f"/plan/{case}/{steps}", **more)
            return (
                answer.status_code,
                await arrived(services, http, case),
                answer.request.content.decode(),
            )

        for name, steps, status, asked in RETRIED:
            assert await one(name, steps, {}) == (
                status,
                [(json.dumps(ASK, separators=(",", ":")))] * asked,
                json.dumps(ASK, separators=(",", ":")),
            ), steps
        # A request that is larger than the gateway's buffer is sent once, complete.
        got, bodies, sent = await one("codes", "503-200", {"padding": LARGE})
        assert (got, len(bodies), bodies == [sent]) == (503, 1, True)


async def a_request_that_no_endpoint_was_sent_goes_to_the_next_one(
    services: Services,
) -> None:
    async with httpx.AsyncClient(timeout=60) as http:
        counts = {
            name: Counter(
                [
                    (await services.ask(http, name, "/plan/next/200")).status_code
                    for _ in range(10)
                ]
            )
            for name in ("lost", "saved")
        }
    assert (set(counts["lost"]), counts["saved"]) == ({200, 502}, {200: 10})


async def nothing_of_a_stream_is_sent_twice(
    services: Services, step: str, chunks: int, *, whole: bool
) -> None:
    case, lines, ended = secrets.token_hex(4), list[str](), True
    async with httpx.AsyncClient(timeout=60) as http:
        try:
            async with http.stream(
                "POST",
                f"{services.gateway}/{TEAM}/codes/plan/{case}/{step}-200",
                json=ASK,
            ) as answer:
                assert answer.status_code == httpx.codes.OK
                async for line in answer.aiter_lines():
                    lines += [line] if line else []
        except httpx.RemoteProtocolError:
            ended = False
        assert len(await arrived(services, http, case)) == 1
    assert (lines, ended) == ([f"data: 1.{number}" for number in range(chunks)], whole)


async def a_gateway_whose_class_lists_no_timeouts_routes_without_them(
    services: Services,
) -> None:
    service = a_service("timed", selecting(TOLD))
    await services.plane.apply(
        {
            **service,
            "spec": {
                **service["spec"],
                "timeouts": {"request": "300s", "backendRequest": "60s"},
            },
        }
    )
    seen = await services.ready("timed", 1)
    said = (
        "requests are routed without request and backendRequest: GatewayClass "
        "traefik does not list HTTPRouteRequestTimeout and HTTP"
    )
    assert (condition(seen, "TimeoutsReady"), reason(seen, "TimeoutsReady")) == (
        "False",
        "TimeoutsUnsupported",
    )
    assert message(seen, "TimeoutsReady").startswith(said)
    async with httpx.AsyncClient(timeout=60) as http:

        async def status() -> int:
            return (await services.ask(http, "timed", "/plan/timed/200")).status_code

        await eventually(
            status,
            lambda found: found == httpx.codes.OK,
            what="the gateway's route of timed",
        )


async def no_request_fails_while_retries_come_change_and_go(services: Services) -> None:
    plane, stop, answered = services.plane, asyncio.Event(), Counter[int]()

    async def client(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            answered[
                (await services.ask(http, "once", "/plan/busy/200")).status_code
            ] += 1
            await asyncio.sleep(0.02)

    async def change(retries: Json | None, shown: str) -> None:
        await plane.apply(with_retries(a_service("once", selecting(TOLD)), retries))
        await plane.until(
            "ModelService",
            "once",
            lambda tree: condition(tree, "RetriesReady") == shown and settled(tree),
            TEAM,
        )
        # Requests arrive by the new route for a while.
        answers = answered.total()
        await eventually(
            lambda: asyncio.sleep(0, answered.total()),
            lambda total: total >= answers + 20,
            what="answers",
        )

    def settled(tree: Json) -> bool:
        return bool(
            tree["status"]["observedGeneration"] == tree["metadata"]["generation"]
        )

    async with httpx.AsyncClient(timeout=60) as http:
        asking = asyncio.create_task(client(http))
        try:
            await change(ALL_CODES, "True")
            await change({"attempts": 1}, "True")
            await change(None, "")
        finally:
            stop.set()
            await asking
    assert set(answered) == {200}


async def a_deleted_middleware_comes_back(services: Services) -> None:
    plane = services.plane
    api, control = plane._kube(control_of(plane.running)), control_of(plane.running)
    path = control.server + collection("traefik.io/v1alpha1", "Middleware", TEAM)

    async def there() -> dict[str, str]:
        items = json.loads(
            api.call_api(
                "GET", path, header_params={"Accept": "application/json"}
            ).read()
        )["items"]
        return {
            item["metadata"]["name"].rpartition("-")[0]: item["metadata"]["uid"]
            for item in items
        }

    before = await eventually(
        there,
        lambda found: set(found) == {"ms-again", "ms-codes", "ms-saved"},
        what="Middlewares",
    )
    seen = await plane.describe("ModelService", "codes", TEAM)
    assert seen
    api.call_api(
        "DELETE",
        f"{path}/{seen['status']['route']}",
        header_params={"Accept": "application/json"},
    )
    await eventually(
        there,
        lambda found: found.get("ms-codes", before["ms-codes"]) != before["ms-codes"],
        what="the Middleware of codes",
    )
    await a_retrying_service(services, "codes")
