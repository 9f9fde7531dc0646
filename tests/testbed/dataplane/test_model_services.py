"""Whole requests: what users apply becomes routes on the control gateway, and a request goes through two gateways to a pod and back.

Real API servers, a real Temporal, the worker as users run it, Traefik as each gateway; the engines are mocks that say who they are.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial

import httpx
import pytest
from kubernetes.client import ApiClient

from api_types import names
from testbed.dataplane.names import PROVIDER
from testbed.running import ClusterRunning
from tests.random_cases import FACTOR, generator
from tests.testbed.dataplane.services import ASK, TEAM, Services, a_fleet_with_services
from tests.testbed.dataplane.streams import Streams
from tests.workflows.conftest import apply_clusters
from tests.workflows.environment.harness import Json, a_deployment, eventually, message, reason
from tests.workflows.environment.simulated_control import a_service, an_endpoint, selecting

LOG = logging.getLogger(__name__)
pytestmark = [pytest.mark.testbed, pytest.mark.timeout(300)]

DEPLOYMENT, CLUSTER = "modelplane.ai/deployment", "modelplane.ai/cluster"
REQUESTS = 5_000
# A campaign takes the time that is promised, and what counts as lost for users.
IS_CAMPAIGN = FACTOR > 1
OUTAGE_SECONDS, LOST_AFTER_SECONDS = (600.0, 120.0) if IS_CAMPAIGN else (20.0, 3.0)
# The replicas of deployments before an outage of the control cluster, and what they are to be after it.
FIRST, CHANGED = {"grown": 1, "shrunk": 2, "rolled": 2}, {"grown": 2, "shrunk": 1, "rolled": 2}


@pytest.fixture(scope="module")
async def services(tmp_path_factory: pytest.TempPathFactory, kube: Callable[[ClusterRunning], ApiClient]) -> AsyncIterator[Services]:
    async with a_fleet_with_services(tmp_path_factory.mktemp("services"), kube, LOST_AFTER_SECONDS) as services:
        yield services


async def test_one_service_for_each_pattern_of_the_worked_examples(services: Services) -> None:
    qwen = await services.deploy("qwen", 2)
    llama = await services.deploy("llama", 1)
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
    await services.deploy("qwen", 2)
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
    stable, canary = await services.deploy("qwen", 2), await services.deploy("llama", 1)
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
    name = "busy"
    await services.deploy(name, 2)
    await plane.apply(a_service(name, selecting({DEPLOYMENT: name})))
    await services.ready(name, 2)
    await services.live(name, *await services.placed(name, 2))
    stop, failed, answered = asyncio.Event(), list[str](), Counter[str]()

    async def clients(http: httpx.AsyncClient) -> None:
        while not stop.is_set():
            try:
                answer = await services.ask(http, name)
                answered[answer.headers.get("x-modelplane-endpoint", "")] += 1
                if answer.status_code != httpx.codes.OK:
                    failed.append(f"{answer.status_code} {answer.text}")
            except httpx.HTTPError as error:
                failed.append(repr(error))
            await asyncio.sleep(0.02)

    async with httpx.AsyncClient(timeout=60) as http:
        tasks = [asyncio.create_task(clients(http)) for _ in range(4)]
        try:
            for replicas, image in ((4, 1), (2, 1), (2, 2)):
                await plane.apply(a_deployment(name, TEAM, replicas=replicas, image=f"registry.example/engine:{image}"))
                await services.rolled(name, replicas)
                await services.ready(name, replicas)
        finally:
            stop.set()
            await asyncio.gather(*tasks)
    assert failed == []
    assert sum(answered.values()) > 100
    assert len(answered) >= 4, "all that were there for a while have answered"


async def test_a_cluster_that_is_deleted_waits_for_its_replicas_which_leave_it_without_a_failed_request(services: Services) -> None:
    plane = services.plane
    placed = await services.deploy("qwen", 2)
    assert set(placed.values()) == {"eu", "us"}
    (leaving,) = [name for name, cluster in placed.items() if cluster == "eu"]
    await plane.apply(a_service("whole", selecting({DEPLOYMENT: "qwen"})))
    await services.ready("whole", 2)
    await services.live("whole", *placed)
    with Streams([f"{services.gateway}/{TEAM}/whole"]) as streams:
        await eventually(lambda: began(streams), lambda pods: len(pods) == 2, what="requests to both replicas")
        await plane.delete("InferenceCluster", "eu")
        seen = await plane.until("InferenceCluster", "eu", lambda tree: reason(tree, "Deleting") == "Occupied")
        assert leaving in message(seen, "Deleting")
        assert "--evict" in message(seen, "Deleting")
        await plane.delete("InferenceCluster", "eu", evict=True)
        await plane.gone("InferenceCluster", "eu")
        moved = await services.placed("qwen", 2)
        assert set(moved.values()) == {"us"}
        await services.ready("whole", 2)
        await services.live("whole", *moved)
        earlier = len(streams.begun)
        await eventually(lambda: began(streams, earlier), lambda pods: len(pods) == 2, what="requests to both replicas")
    assert streams.cut == []
    assert plane.our_objects("eu", TEAM) == []
    await apply_clusters(plane)


@pytest.mark.random
@pytest.mark.timeout(OUTAGE_SECONDS + 600)
@pytest.mark.parametrize("killed", [False, True], ids=["", "and the worker is killed meanwhile"])
async def test_a_lost_control_cluster_costs_no_request_and_all_is_right_after(services: Services, killed: bool) -> None:
    plane = services.plane
    first = {name: await services.deploy(name, replicas) for name, replicas in FIRST.items()}
    before = {replica for placed in first.values() for replica in placed}
    await plane.apply(a_service("lost", *(selecting({DEPLOYMENT: name}) for name in FIRST)))
    await services.ready("lost", len(before))
    await services.live("lost", *before)
    objects = services.on_control_cluster()
    with Streams([f"{services.gateway}/{TEAM}/lost"]) as streams:
        await eventually(lambda: began(streams), lambda pods: len(pods) == len(before), what="requests to each replica")
        pods = services.pods()
        async with services.without_control_cluster(OUTAGE_SECONDS) as over:
            await plane.scale("grown", TEAM, 2)
            await plane.scale("shrunk", TEAM, 1)
            await plane.apply(a_deployment("rolled", TEAM, replicas=2, image="registry.example/engine:2"))
            await says_that_it_waits(services, before)
            if killed:
                await asyncio.sleep(generator().uniform(0, OUTAGE_SECONDS / 2))
                plane.worker.kill()
                plane.worker.start()
                await says_that_it_waits(services, before)
            await over
            assert services.pods() >= pods, "a pod to which the gateway sends requests was deleted"
        ended = asyncio.get_running_loop().time()
        after = {replica for name, replicas in CHANGED.items() for replica in await changed(services, name, replicas)}
        await services.ready("lost", len(after))
        await services.live("lost", *after)
        took = asyncio.get_running_loop().time() - ended
    LOG.info("%.0f s without the control cluster; all was right %.0f s after; %d answers", OUTAGE_SECONDS, took, len(streams.pods))
    assert streams.cut == []
    assert Counter(streams.begun) == Counter(streams.pods)
    (gone,), (new,) = before - after, after - before
    expected = {**objects, **{kind: objects[kind] - backend(gone)[kind] | backend(new)[kind] for kind in backend(new)}}

    async def found() -> dict[str, set[str]]:
        return services.on_control_cluster()

    await eventually(found, lambda seen: seen == expected, what="what is on the control cluster")
    await services.delete("ModelService", "lost")
    await services.delete("ModelDeployment", *CHANGED)


async def changed(services: Services, name: str, replicas: int) -> dict[str, str]:
    await services.rolled(name, replicas)
    return await services.placed(name, replicas)


async def began(streams: Streams, earlier: int = 0) -> set[str]:
    """The pods that have begun an answer since so many were begun."""
    return set(streams.begun[earlier:])


def backend(endpoint: str) -> dict[str, set[str]]:
    service = names.endpoint_service_name(TEAM, endpoint)
    return {"Service": {service}, "EndpointSlice": {names.endpoint_slice_name(service, "IPv4")}}


async def says_that_it_waits(services: Services, routed: set[str]) -> None:
    """See that gateway and service say what is lost, that the service has its endpoints, and what each change waits for."""
    plane = services.plane
    await plane.until("InferenceGateway", "default", lambda seen: reason(seen, "Ready") == "ClusterUnreachable")
    seen = await plane.until("ModelService", "lost", lambda tree: reason(tree, "Ready") == "WaitingForGateway", TEAM)
    assert "the control cluster does not answer" in message(seen, "Ready")
    assert {each["name"] for each in seen["status"]["endpoints"]} == routed
    # Its pods serve on their cluster.
    await services.placed("grown", 2)

    async def waiting(kind: str, text: str) -> list[str]:
        return [name for name in sorted(routed) if text in message(await plane.describe("ModelReplica", name, TEAM), kind)]

    for kind, text in (("Deleting", "the routes of services still have it"), ("Serving", "when no route of a service has its endpoint")):
        await eventually(
            partial(waiting, kind, text), lambda replicas: len(replicas) == 1, what=f"one replica of which {kind} says: {text}"
        )


async def test_what_goes_away_leaves_nothing_on_the_control_cluster(services: Services) -> None:
    await services.delete("ModelService", "whole", "one-cluster", "several", "external", "canary", "busy", "lost")
    await services.delete("ModelDeployment", "qwen", "llama", "busy", *CHANGED)
    await services.delete("ModelEndpoint", "provider")
    await services.plane.delete("InferenceGateway", "default")
    await services.plane.gone("InferenceGateway", "default")
    assert services.on_control_cluster() == {"HTTPRoute": set(), "Service": set(), "EndpointSlice": set()}
