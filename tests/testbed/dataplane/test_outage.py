"""An outage of the control cluster: services report it, no request fails, and
everything recovers.

Real API servers, a real Temporal, the worker as users run it, and Traefik as each
gateway.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable
from functools import partial

import pytest
from kubernetes.client import ApiClient

from api_types import names
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.random_cases import FACTOR, generator
from tests.testbed.dataplane.services import (
    DEPLOYMENT,
    TEAM,
    Services,
    a_fleet_with_services,
)
from tests.testbed.dataplane.streams import Streams
from tests.workflows.environment.harness import (
    a_deployment,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_control import a_service, selecting

LOG = logging.getLogger(__name__)
# A campaign uses the documented time, and probes as rarely as workers of users.
IS_CAMPAIGN = FACTOR > 1
OUTAGE_SECONDS, PROBE_SECONDS = (600.0, 15.0) if IS_CAMPAIGN else (20.0, 1.0)
# The replicas of deployments before an outage of the control cluster, and after it.
FIRST, CHANGED = (
    {"grown": 1, "shrunk": 2, "rolled": 2},
    {"grown": 2, "shrunk": 1, "rolled": 2},
)


pytestmark = [
    pytest.mark.testbed,
    pytest.mark.soak,
    pytest.mark.random,
    pytest.mark.timeout(OUTAGE_SECONDS + 900),
]


@pytest.fixture(scope="module")
async def services(
    wired: Testbed,
    tmp_path_factory: pytest.TempPathFactory,
    kube: Callable[[ClusterRunning], ApiClient],
) -> AsyncIterator[Services]:
    async with a_fleet_with_services(
        wired, tmp_path_factory.mktemp("outage"), kube, PROBE_SECONDS
    ) as services:
        await services.complete()
        yield services


# Each takes two minutes. The case with a killed worker covers the outage without one
# too.
@pytest.mark.parametrize(
    "killed",
    [False, True] if IS_CAMPAIGN else [True],
    ids=lambda killed: "worker killed" if killed else "",
)
async def test_a_lost_control_cluster_costs_no_request_and_all_is_right_after(
    services: Services, killed: bool
) -> None:
    plane = services.plane
    first = {
        name: await services.deploy(name, replicas) for name, replicas in FIRST.items()
    }
    before = {replica for placed in first.values() for replica in placed}
    await plane.apply(
        a_service("lost", *(selecting({DEPLOYMENT: name}) for name in FIRST))
    )
    await services.ready("lost", len(before))
    await services.live("lost", *before)
    objects = services.on_control_cluster()
    with Streams([f"{services.gateway}/{TEAM}/lost"]) as streams:
        await eventually(
            lambda: streams.pods_since(0),
            lambda pods: len(pods) == len(before),
            what="requests to each replica",
        )
        pods = services.pods()
        async with services.without_control_cluster(OUTAGE_SECONDS) as over:
            await plane.scale("grown", TEAM, 2)
            await plane.scale("shrunk", TEAM, 1)
            await plane.apply(
                a_deployment(
                    "rolled", TEAM, replicas=2, image="registry.example/engine:2"
                )
            )
            await says_that_it_waits(services, before)
            if killed:
                await asyncio.sleep(generator().uniform(0, OUTAGE_SECONDS / 2))
                plane.worker.kill()
                plane.worker.start()
                await says_that_it_waits(services, before)
            await over
            assert services.pods() >= pods, (
                "a pod to which the gateway sends requests was deleted"
            )
        ended = asyncio.get_running_loop().time()
        after = {
            replica
            for name, replicas in CHANGED.items()
            for replica in await changed(services, name, replicas)
        }
        await services.ready("lost", len(after))
        await services.live("lost", *after)
        took = asyncio.get_running_loop().time() - ended
    LOG.info(
        "%.0f s without the control cluster; all was right %.0f s after; %d answers",
        OUTAGE_SECONDS,
        took,
        len(streams.pods),
    )
    assert streams.cut == []
    assert Counter(streams.begun) == Counter(streams.pods)
    (gone,), (new,) = before - after, after - before
    expected = {
        **objects,
        **{
            kind: objects[kind] - backend(gone)[kind] | backend(new)[kind]
            for kind in backend(new)
        },
    }

    async def found() -> dict[str, set[str]]:
        return services.on_control_cluster()

    await eventually(
        found, lambda seen: seen == expected, what="what is on the control cluster"
    )
    await services.delete("ModelService", "lost")
    await services.delete("ModelDeployment", *CHANGED)


async def changed(services: Services, name: str, replicas: int) -> dict[str, str]:
    await services.rolled(name, replicas)
    return await services.placed(name, replicas)


def backend(endpoint: str) -> dict[str, set[str]]:
    service = names.endpoint_service_name(TEAM, endpoint)
    return {
        "Service": {service},
        "EndpointSlice": {names.endpoint_slice_name(service, "IPv4")},
    }


async def says_that_it_waits(services: Services, routed: set[str]) -> None:
    """Check that gateway and service report the outage, that the service has its
    endpoints, and that each change waits.
    """
    plane = services.plane
    await plane.until(
        "InferenceGateway",
        "default",
        lambda seen: reason(seen, "Ready") == "ClusterUnreachable",
    )
    seen = await plane.until(
        "ModelService",
        "lost",
        lambda tree: reason(tree, "Ready") == "WaitingForGateway",
        TEAM,
    )
    assert "the control cluster does not answer" in message(seen, "Ready")
    assert {each["name"] for each in seen["status"]["endpoints"]} == routed
    # Its pods serve on their cluster.
    await services.placed("grown", 2)

    async def waiting(kind: str, text: str) -> list[str]:
        return [
            name
            for name in sorted(routed)
            if text in message(await plane.describe("ModelReplica", name, TEAM), kind)
        ]

    for kind, text in (
        ("Deleting", "the routes of services still have it"),
        ("Serving", "when no route of a service has its endpoint"),
    ):
        await eventually(
            partial(waiting, kind, text),
            lambda replicas: len(replicas) == 1,
            what=f"one replica of which {kind} says: {text}",
        )
