"""The encryption key rotates by the documented steps in a busy fleet.

Deployments scale and roll meanwhile, and workers are replaced one by one.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from temporalio.client import Client
from temporalio.service import RPCError

from api_types import names
from api_types.clock import utc_now
from api_types.messages.entities import RetryNow
from api_types.messages.scheduling import SetPolicy
from testbed.running import Running
from tests.wire.test_encryption import Fleet, refusals
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_cache,
    a_deployment,
    condition,
    eventually,
)
from tests.workflows.environment.protocol_fleet import protocol_server
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    serving_clusters,
)

pytestmark = pytest.mark.testbed("shared")

# Some changes lead to a new run.
EVENTS = 60
POKES = 10
NAMESPACE = "ml"
CANARY = "canary-in-a-spec-5f2c"


@asynccontextmanager
async def served(
    fleet: Fleet, *workers: tuple[str, ...]
) -> AsyncIterator[ControlPlane]:
    """Run one worker per set of keys; the first key of a set is active.

    Clusters and the client have the keys of the first worker.
    """
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(fleet.served(*keys, required=True))
            for keys in workers
        ]
        await stack.enter_async_context(
            serving_clusters(clients[0], SimulatedClusters())
        )
        yield a_plane(clients[0])


def a_plane(client: Client) -> ControlPlane:
    address = client.service_client.config.target_host
    running = Running(
        home=Path(),
        temporal_address=address,
        temporal_ui="",
        clusters={},
        control=None,
        manifests=Path(),
    )
    return ControlPlane(client, running, None, lambda _: None)


def qwen(name: str, replicas: int, image: int) -> Json:
    document = a_deployment(
        name, NAMESPACE, replicas=replicas, image=f"registry.example/engine:{image}"
    )
    (member,) = document["spec"]["template"]["spec"]["engines"][0]["members"]
    member["template"]["spec"]["containers"][0]["env"] = [
        {"name": "MODE", "value": CANARY}
    ]
    return document


async def ready(plane: ControlPlane, document: Json) -> None:
    """Wait until a deployment has its applied state."""

    def holds(seen: Json) -> bool:
        counts, spec = seen["status"].get("rollout") or {}, document["spec"]
        same = (
            images(seen["spec"]) == images(spec)
            and seen["spec"]["replicas"] == spec["replicas"]
        )
        return (
            same
            and condition(seen, "Ready") == "True"
            and counts["updatedReady"] == counts["total"] == spec["replicas"]
        )

    await plane.until("ModelDeployment", document["metadata"]["name"], holds, NAMESPACE)


def images(spec: Json) -> list[str]:
    return [
        container["image"]
        for engine in spec["template"]["spec"]["engines"]
        for member in engine["members"]
        for container in member["template"]["spec"]["containers"]
    ]


async def running(plane: ControlPlane, since: str = "") -> list[str]:
    """Return the ids of running workflows, or of those whose run began before a time.

    It uses the query of docs/how-to/encryption.md.
    """
    query = 'ExecutionStatus="Running"' + (
        f' AND StartTime < "{since}"' if since else ""
    )
    return sorted([run.id async for run in plane.client.list_workflows(query)])


async def poke(plane: ControlPlane) -> None:
    """Send messages to every object."""
    for workflow_id in await running(plane):
        handle = plane.client.get_workflow_handle(workflow_id)
        # A replica may have ended meanwhile.
        with suppress(RPCError):
            for _ in range(POKES):
                if workflow_id == names.FLEET_SCHEDULER_ID:
                    await handle.signal(
                        "set_policy", SetPolicy(policy={"profile": "dense"}).wire()
                    )
                else:
                    await handle.signal("retry_now", RetryNow().wire())


async def assert_whole(plane: ControlPlane) -> None:
    for workflow_id in await running(plane):
        seen = await eventually(
            lambda: plane.client.get_workflow_handle(workflow_id).query("describe"),  # noqa: B023 - awaited here
            bool,
        )
        assert refusals(seen) == "", workflow_id
    assert await plane.scheduler("audit") == []
    assert await plane.scheduler("waiting") == []


async def raw_bytes(plain: Client) -> bytes:
    """Return everything that the server stores about any run."""
    kept = b""
    async for run in plain.list_workflows():
        handle = plain.get_workflow_handle(run.id, run_id=run.run_id)
        kept += b"".join(
            [event.SerializeToString() async for event in handle.fetch_history_events()]
        )
        kept += (await handle.describe()).raw_description.SerializeToString()
    return kept


@pytest.mark.soak
async def test_a_key_is_replaced_while_a_fleet_is_scaled_and_rolled(
    tmp_path: Path,
) -> None:
    # The fleet carries out the last apply of a step while workers are replaced.
    wanted = [
        qwen("qwen", replicas, image) for image, replicas in enumerate((1, 2, 1, 2, 1))
    ]
    async with protocol_server(EVENTS) as plain:
        fleet = Fleet(plain, tmp_path)
        async with served(fleet, ("one",), ("one",)) as plane:
            for document in (
                a_class(),
                a_cluster("eu"),
                a_cache("weights", NAMESPACE, "acme/qwen"),
                wanted[0],
            ):
                await plane.apply(document)
            await ready(plane, wanted[0])
            await plane.ready("ModelCache", "weights", NAMESPACE)
            await plane.apply(wanted[1])
        # The new key is added. One worker does not have it yet.
        async with served(fleet, ("one", "two"), ("one",)) as plane:
            await ready(plane, wanted[1])
        # The new key becomes active, at one worker later than at the others.
        async with served(fleet, ("two", "one"), ("one", "two")) as plane:
            await plane.apply(wanted[2])
            await ready(plane, wanted[2])
            await plane.apply(wanted[3])
        async with served(fleet, ("two", "one"), ("two", "one")) as plane:
            since = utc_now().isoformat()

            async def older() -> list[str]:
                await poke(plane)
                return await running(plane, since)

            assert (
                await eventually(
                    older, lambda found: not found, what="every run is new"
                )
                == []
            )
            await ready(plane, wanted[3])
            await plane.apply(wanted[4])
        # The old key is removed.
        async with served(fleet, ("two",), ("two",)) as plane:
            await ready(plane, wanted[4])
            await plane.apply(second := qwen("second", 1, 1))
            await ready(plane, second)
            await plane.ready("InferenceCluster", "eu")
            await plane.ready("ModelCache", "weights", NAMESPACE)
            await assert_whole(plane)
        assert CANARY.encode() not in await raw_bytes(plain)
