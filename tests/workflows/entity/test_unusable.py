"""Messages that can be read, and of which nothing can be made: on a real server the object goes on, and says what it ignored."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api_types.clock import now_ms
from tests.workflows.environment.harness import ControlPlane, a_deployment, eventually
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, simulated_plane

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml"
LATER = 2**53


@pytest.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with simulated_plane() as plane:
        yield plane


async def ignored(plane: ControlPlane, target: tuple[str, str, str], signal: str, payload: Any) -> str:
    """Send a signal and wait until the object has said why it is ignored."""
    await plane.handle(*target).signal(signal, payload)

    async def malformed() -> list[str]:
        seen = await plane.describe(*target)
        events = seen.get("status", {}).get("events", ())
        return [event["message"] for event in events if event["reason"] == "MalformedMessage"]

    found: list[str] = await eventually(malformed, bool, what=f"the event of {target}")
    return found[-1]


async def test_no_message_of_which_nothing_can_be_made_stops_its_receiver(plane: ControlPlane) -> None:
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    cluster = await plane.ready("InferenceCluster", "eu")
    await plane.apply(a_deployment("chat", NAMESPACE))
    (placement,) = (await plane.ready("ModelDeployment", "chat", NAMESPACE))["status"]["placements"]
    replica = placement["replica"]
    await plane.ready("ModelReplica", replica, NAMESPACE)
    cluster_target, deployment_target = ("InferenceCluster", "eu", ""), ("ModelDeployment", "chat", NAMESPACE)
    replica_target = ("ModelReplica", replica, NAMESPACE)

    text = await ignored(plane, cluster_target, "class_changed", {"name": "h100-8x", "uid": "u", "generation": LATER, "spec": {}})
    assert text.startswith("a ClassChanged message was ignored: spec.devices: ")
    evicted = {"uid": "unknown", "name": "chat-1", "cluster": "eu", "reason": "x", "entry": {"uid": "unknown"}}
    text = await ignored(plane, deployment_target, "evict", {"epoch": now_ms(), "eviction": evicted})
    assert text.startswith("a Evict message was ignored: eviction: unknown: this is not a LedgerEntry")
    text = await ignored(plane, replica_target, "set_template", {"generation": LATER, "spec": {"serving": []}})
    assert "spec." in text

    # Times that no calendar has are a year, and a queue that Temporal refuses is none.
    uid = cluster["metadata"]["uid"]
    facts = {"routing": "service", "drainSeconds": 10**30}
    connection = {"cluster": "eu", "namespace": "modelplane-system", "name": "eu", "taskQueue": "q" * 2000}
    report = {"name": "eu", "uid": uid, "sequence": 1, "connected": True, "facts": facts, "connection": connection}
    text = await ignored(plane, replica_target, "cluster_changed", report)

    for target in (cluster_target, deployment_target, replica_target):
        description = await plane.handle(*target).describe()
        assert description.raw_description.pending_workflow_task.attempt <= 1
    await plane.scale("chat", NAMESPACE, 2)
    await plane.until("ModelDeployment", "chat", lambda seen: seen["status"]["replicas"] == {"total": 2, "ready": 2}, NAMESPACE)
