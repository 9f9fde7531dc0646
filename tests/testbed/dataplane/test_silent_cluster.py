"""A cluster loses its API server for longer than `cluster.unreachableAfter`.

Its gateway and engines keep serving, so no request and no stream may fail, neither
during the outage nor when the API server returns.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest
from kubernetes.client import ApiClient

from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.environment.stopped_parts import stopped
from tests.testbed.dataplane.services import (
    DEPLOYMENT,
    TEAM,
    Services,
    a_fleet_with_services,
)
from tests.testbed.dataplane.streams import Streams, all_answer
from tests.workflows.environment.harness import condition, message
from tests.workflows.environment.simulated_control import a_service, selecting

pytestmark = [pytest.mark.testbed, pytest.mark.long, pytest.mark.timeout(900)]

PROBE_SECONDS = 1.0
# Endpoints are withdrawn a minute after the silence was noticed, at the earliest.
UNREACHABLE_AFTER_SECONDS, OUTAGE_SECONDS = 10, 100.0
AFTER_SECONDS = 20.0
PARTS = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok", "lws")


@pytest.fixture(scope="module")
async def services(
    wired: Testbed,
    tmp_path_factory: pytest.TempPathFactory,
    kube: Callable[[ClusterRunning], ApiClient],
) -> AsyncIterator[Services]:
    async with a_fleet_with_services(
        wired,
        tmp_path_factory.mktemp("silent"),
        kube,
        PROBE_SECONDS,
        MODELPLANE_CLUSTER__UNREACHABLE_AFTER=str(UNREACHABLE_AFTER_SECONDS),
    ) as services:
        await services.complete()
        yield services


async def test_a_silent_api_server_costs_no_request_to_the_engines_of_its_cluster(
    services: Services,
) -> None:
    plane = services.plane
    placed = await services.deploy("steady", 2)
    assert set(placed.values()) == {"eu", "us"}
    await plane.apply(a_service("steady", selecting({DEPLOYMENT: "steady"})))
    await services.ready("steady", 2)
    await services.live("steady", *placed)
    with Streams([f"{services.gateway}/{TEAM}/steady"]) as streams:
        parts = [f"eu.{part}" for part in PARTS]
        async with stopped(
            services.owner, plane.running.home, parts, OUTAGE_SECONDS
        ) as over:
            silent = await plane.until(
                "InferenceCluster",
                "eu",
                lambda seen: condition(seen, "Ready") == "Unknown",
            )
            assert "stay in their routes" in message(silent, "ClusterReady")
            await over
        await plane.ready("InferenceCluster", "eu")
        # A gateway that follows its API server again must not forget its routes.
        await asyncio.sleep(AFTER_SECONDS)
        await all_answer(streams, len(placed))
    assert streams.cut == []
    assert Counter(streams.begun) == Counter(streams.pods)
    await services.delete("ModelService", "steady")
    await services.delete("ModelDeployment", "steady")
