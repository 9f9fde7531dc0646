"""The delay between a change of replicas and the route of their service, in virtual
time.

Virtual time does not depend on load. The tests also check the reports that a service
gets while two watches see its route.
"""

import asyncio
from collections.abc import Callable

from api_types import labels
from tests.simulation import manifests
from tests.simulation.lives.steady_fleet import SteadyFleet, in_virtual_time
from tests.workflows.environment.harness import Json, a_deployment
from tests.workflows.environment.simulated_control import a_service, an_endpoint, selecting

FOLLOW_SECONDS_MAX = 5.0
"""A watch waits one second for further changes; the remaining time is a few messages.

A resync, the next other cause, would take minutes.
"""
_LOOK_SECONDS = 0.05
_APART_SECONDS = 2.0
"""The pauses between the services of one test, so that some start before the watch ends
and some after.
"""


async def reached(holds: Callable[[], bool], within: float) -> float:
    """Wait until a condition holds; return the time."""
    async with asyncio.timeout(within):
        while not holds():  # noqa: ASYNC110 - virtual time costs nothing
            await asyncio.sleep(_LOOK_SECONDS)
    return asyncio.get_running_loop().time()


@in_virtual_time
async def test_a_route_follows_replicas_within_seconds_and_is_without_them_before_their_pods_go(
    plane: SteadyFleet, namespace: str
) -> None:
    parts = plane.world.parts
    parts.prepare_control()
    await plane.apply(manifests.a_gateway())
    await plane.ready("InferenceGateway", "default")

    def routed() -> set[str]:
        return {name for route in parts.routes() for name in route.endpoints}

    def serving() -> set[str]:
        pods = [pod for pod in parts.pods() if pod.ready and not pod.deleting]
        return {replicas[pod.owner] for pod in pods if pod.owner in replicas}

    replicas: dict[str, str] = {}

    async def scaled(count: int) -> set[str]:
        await plane.scale("qwen", namespace, count)

        def holds(tree: Json) -> bool:
            return len(tree["status"].get("placements", ())) == count

        seen = await plane.until("ModelDeployment", "qwen", holds, namespace)
        names = {each["replica"] for each in seen["status"]["placements"]}
        for name in names:
            tree = await plane.until("ModelReplica", name, bool, namespace)
            replicas[tree["metadata"]["uid"]] = name
        return names

    await plane.apply(a_deployment("qwen", namespace, replicas=2))
    whole = selecting({labels.DEPLOYMENT: "qwen"})
    await plane.apply(a_service("whole", whole, namespace=namespace))
    kept = await scaled(2)
    await reached(lambda: routed() == kept, 600.0)

    grown = await scaled(4)
    served = await reached(lambda: serving() == grown, 600.0)
    assert await reached(lambda: routed() == grown, 600.0) - served < FOLLOW_SECONDS_MAX

    began = asyncio.get_running_loop().time()
    await plane.scale("qwen", namespace, 2)
    without = await reached(lambda: len(routed()) == 2, 600.0)
    assert without - began < FOLLOW_SECONDS_MAX
    assert len(serving()) == 4, "no pod is deleted before the route is without it"
    await reached(lambda: serving() == routed(), 1200.0)


@in_virtual_time
async def test_services_become_ready_while_the_watch_of_a_deleted_gateway_still_runs(
    plane: SteadyFleet, namespace: str
) -> None:
    """The earlier watch ends at a later heartbeat. Until then both watches report each route.

    Its last report of a route may say that the gateway has not accepted the route yet.
    """
    plane.world.parts.prepare_control()
    await plane.apply(manifests.a_gateway())
    await plane.ready("InferenceGateway", "default")
    await plane.delete("InferenceGateway", "default")
    await plane.gone("InferenceGateway", "default")
    await plane.apply(manifests.a_gateway())
    await plane.ready("InferenceGateway", "default")
    names = [f"qwen-{index}" for index in range(12)]
    for name in names:
        await plane.apply(an_endpoint(name, namespace=namespace, app=name))
        service = a_service(name, selecting({"app": name}), namespace=namespace)
        service["spec"]["retries"] = {"attempts": 2}
        await plane.apply(service)
        await asyncio.sleep(_APART_SECONDS)
    for name in names:
        await plane.ready("ModelService", name, namespace)
