"""An unreliable connection to a cluster.

No object is lost or created twice, and a condition names the awaited state.
"""

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest

from activities.secrets.store import SecretStore
from api_types.messages.entities import RetryNow
from tests.workflows.environment.faulty_proxy import (
    TRANSIENT,
    Always,
    Fault,
    FaultyProxy,
    RandomFaults,
    faulty_proxy,
)
from tests.workflows.environment.harness import (
    ControlPlane,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.one_cluster import (
    CLUSTER,
    a_tenant,
    clean_up,
    held,
    here,
    images,
    nothing_is_left,
    put_kubeconfig,
    ready_count,
    says_unreachable,
    the_replica,
    waits_at_step,
    went_on,
    workload,
)
from tests.workflows.environment.together import together

pytestmark = pytest.mark.testbed


@pytest.fixture
def namespace() -> str:
    return a_tenant()


@pytest.fixture(scope="module")
async def proxy(
    plane: ControlPlane, store: SecretStore, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[FaultyProxy]:
    """Put a proxy before the cluster by rotating its kubeconfig, and remove the proxy
    at the end.
    """
    cluster = plane.running.clusters[CLUSTER]
    async with faulty_proxy(cluster, tmp_path_factory.mktemp("proxy")) as started:
        await put_kubeconfig(store, started.kubeconfig())

        async def served() -> int:
            return started.served

        try:
            # The observer's next requests, and its watches, go through the proxy.
            await eventually(
                served, lambda count: count > 20, what="requests through the proxy"
            )
            yield started
        finally:
            await put_kubeconfig(store, cluster.kubeconfig.read_bytes())


async def test_a_deployment_is_created_updated_and_deleted_while_one_request_in_twenty_fails(
    plane: ControlPlane, namespace: str, proxy: FaultyProxy
) -> None:
    async with proxy.failing(RandomFaults(share=0.05)) as injected:
        await plane.apply(here("busy", namespace, replicas=2))
        await plane.until(
            "ModelDeployment", "busy", lambda seen: ready_count(seen) == 2, namespace
        )
        await plane.apply(
            here("busy", namespace, replicas=3, image="registry.example/engine:2")
        )

        async def running() -> list[str]:
            return await images(plane, namespace)

        await eventually(
            running, lambda found: found == ["registry.example/engine:2"] * 3
        )
        seen = await plane.ready("ModelDeployment", "busy", namespace)
        assert (
            len({placement["replica"] for placement in seen["status"]["placements"]})
            == len(await held(plane, namespace))
            == 3
        )
        await plane.delete("ModelDeployment", "busy", namespace)
        await plane.gone("ModelDeployment", "busy", namespace)
    assert set(injected) == set(TRANSIENT), (
        f"too few requests to try every fault: {injected}"
    )
    await nothing_is_left(plane, namespace)


@pytest.mark.long
async def test_a_lost_connection_only_delays_a_rollout_and_a_teardown(
    plane: ControlPlane, namespace: str, proxy: FaultyProxy
) -> None:
    await plane.apply(here("rolling", namespace))
    await plane.apply(here("leaving", namespace))
    await plane.ready("ModelDeployment", "rolling", namespace)
    await plane.ready("ModelDeployment", "leaving", namespace)
    rolling, leaving = (
        await the_replica(plane, "rolling", namespace),
        await the_replica(plane, "leaving", namespace),
    )
    async with proxy.unreachable():
        await plane.apply(here("rolling", namespace, image="registry.example/engine:2"))
        await plane.delete("ModelDeployment", "leaving", namespace)
        await says_unreachable(plane, namespace, rolling, leaving)
        # A serving endpoint stays published during so short an outage.
        assert (
            condition(
                await plane.describe("ModelReplica", rolling, namespace), "Serving"
            )
            == "True"
        )
        plane.worker.kill()
        await asyncio.to_thread(plane.worker.start)
    await went_on(plane, namespace, "registry.example/engine:2")
    await clean_up(plane, "rolling", namespace)


async def a_refused_apply(
    plane: ControlPlane, proxy: FaultyProxy, fault: Fault, why: str, words: str
) -> None:
    namespace = a_tenant()
    async with proxy.failing(Always(fault, "PATCH", namespace, "deployments")):
        await plane.apply(here("refused", namespace))
        await plane.until(
            "ModelDeployment",
            "refused",
            lambda seen: seen.get("status", {}).get("placements"),
            namespace,
        )
        name = await the_replica(plane, "refused", namespace)
        seen = await plane.until(
            "ModelReplica",
            name,
            lambda seen: reason(seen, "ModelAccepted") == why,
            namespace,
        )
        assert words in message(seen, "ModelAccepted")
        assert "apps/v1/Deployment" in message(seen, "ModelAccepted")
    await plane.handle("ModelReplica", name, namespace).signal(
        "retry_now", RetryNow(by="test").wire()
    )
    await plane.ready("ModelDeployment", "refused", namespace)
    await clean_up(plane, "refused", namespace)


async def a_refused_deletion(
    plane: ControlPlane, proxy: FaultyProxy, fault: Fault
) -> None:
    namespace = a_tenant()
    await plane.apply(here("refused", namespace))
    await plane.ready("ModelDeployment", "refused", namespace)
    name = await the_replica(plane, "refused", namespace)
    async with proxy.failing(Always(fault, "DELETE", namespace, "deployments")):
        await plane.delete("ModelDeployment", "refused", namespace)
        seen = await plane.until(
            "ModelReplica", name, lambda seen: waits_at_step(seen, 7), namespace
        )
        assert "step 7 of 12: delete the engines" in message(seen, "Deleting")
        assert len(await held(plane, namespace)) == 1
        assert workload(plane, namespace)
    await plane.handle("ModelReplica", name, namespace).signal(
        "retry_now", RetryNow(by="test").wire()
    )
    await plane.gone("ModelDeployment", "refused", namespace)
    await nothing_is_left(plane, namespace)


REFUSED = {
    "an invalid apply": partial(
        a_refused_apply,
        fault=Fault.INVALID,
        why="InvalidSpec",
        words="injected Invalid",
    ),
    "a deletion in conflict": partial(a_refused_deletion, fault=Fault.CONFLICT),
}


@pytest.fixture(scope="module")
async def refusals(
    plane: ControlPlane, proxy: FaultyProxy
) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """Run all scenarios in parallel, each in its own namespace."""
    async with together(
        plane,
        {name: partial(scenario, plane, proxy) for name, scenario in REFUSED.items()},
    ) as begun:
        yield begun


@pytest.mark.parametrize("name", REFUSED)
async def test_a_refused_request_is_reported_and_retried_and_loses_nothing(
    refusals: dict[str, asyncio.Task[None]], name: str
) -> None:
    await refusals[name]
