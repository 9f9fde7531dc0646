"""Messages come twice, late, or in a storm: none is lost, none is applied twice."""

import asyncio
import uuid

import pytest
from temporalio.client import WorkflowUpdateFailedError

from api_types.messages.entities import Replace, Scale, SetSpec
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment

pytestmark = pytest.mark.testbed


@pytest.fixture
def name() -> str:
    return f"m-{uuid.uuid4().hex[:8]}"


async def settled(plane: ControlPlane, name: str) -> Json:
    """The deployment, once nothing has changed it for a second."""
    seen = await plane.until("ModelDeployment", name, lambda seen: seen.get("status", {}).get("observedGeneration") == 1, "messages")
    while True:
        await asyncio.sleep(1)
        later = await plane.describe("ModelDeployment", name, "messages")
        if later["metadata"]["resourceVersion"] == seen["metadata"]["resourceVersion"]:
            return later
        seen = later


async def clean_up(plane: ControlPlane, name: str) -> None:
    await plane.delete("ModelDeployment", name, "messages")
    await plane.gone("ModelDeployment", name, "messages")


async def test_a_repeated_request_id_is_one_request(plane: ControlPlane, name: str) -> None:
    await plane.apply(a_deployment(name, "messages", replicas=0))
    handle = plane.handle("ModelDeployment", name, "messages")
    order = Scale(request_id="the-same", by="test", replicas=1).wire()
    for _ in range(3):
        await handle.signal("scale", order)
    await handle.signal("scale", Scale(request_id="another", by="test", replicas=0).wire())
    await handle.signal("scale", order)
    seen = await plane.until("ModelDeployment", name, lambda seen: "another" in seen["appliedRequestIds"], "messages")
    assert (seen["spec"]["replicas"], seen["metadata"]["generation"]) == (0, 3)
    await clean_up(plane, name)


async def test_a_spec_that_changes_nothing_changes_no_generation(plane: ControlPlane, name: str) -> None:
    document = a_deployment(name, "messages", replicas=0)
    for _ in range(3):
        request = await plane.apply(document)
    seen = await plane.until("ModelDeployment", name, lambda seen: request in seen.get("appliedRequestIds", ()), "messages")
    assert seen["metadata"]["generation"] == 1
    await clean_up(plane, name)


async def test_the_last_of_two_hundred_scale_signals_wins_and_all_are_taken(plane: ControlPlane, name: str) -> None:
    await plane.apply(a_deployment(name, "messages", replicas=0))
    handle = plane.handle("ModelDeployment", name, "messages")
    for burst in range(10):
        orders = [Scale(request_id=f"{burst}/{number}", by=f"writer {number}", replicas=0) for number in range(20)]
        await asyncio.gather(*(handle.signal("scale", order.wire()) for order in orders))
    await handle.signal("scale", Scale(request_id="last", by="the last writer", replicas=0).wire())
    seen = await plane.until("ModelDeployment", name, lambda seen: "last" in seen["appliedRequestIds"], "messages")
    assert seen["status"]["lastScale"]["by"] == "the last writer"
    assert seen["spec"]["replicas"] == 0
    await clean_up(plane, name)


async def test_replace_answers_with_the_object_and_refuses_a_stale_or_bad_one(plane: ControlPlane, name: str) -> None:
    document = a_deployment(name, "messages", replicas=0)
    await plane.apply(document)
    seen = await settled(plane, name)
    handle = plane.handle("ModelDeployment", name, "messages")
    document["metadata"]["labels"] = {"team": "a"}
    version = seen["metadata"]["resourceVersion"]
    change = Replace(request_id="r1", by="test", resource_version=version, manifest=document).wire()
    answer = await handle.execute_update("replace", change)
    assert answer["metadata"]["labels"] == {"team": "a"}
    # The change itself raised the resourceVersion: a sender that did not get the answer repeats its request, and gets it now.
    assert await handle.execute_update("replace", change) == answer
    with pytest.raises(WorkflowUpdateFailedError) as stale:
        await handle.execute_update("replace", Replace(by="test", resource_version=version, manifest=document).wire())
    assert getattr(stale.value.cause, "type", "") == "Conflict"
    document["spec"]["replicas"] = 5000
    with pytest.raises(WorkflowUpdateFailedError) as bad:
        await handle.execute_update("replace", Replace(by="test", manifest=document).wire())
    assert getattr(bad.value.cause, "type", "") == "InvalidInput"
    assert "spec.replicas: must be between 0 and 1000, got 5000" in str(bad.value.cause)
    await clean_up(plane, name)


async def test_a_new_spec_is_refused_while_the_object_is_being_deleted(plane: ControlPlane, name: str) -> None:
    await plane.apply(a_deployment(name, "messages", replicas=1))
    await plane.ready("ModelDeployment", name, "messages")
    handle = plane.handle("ModelDeployment", name, "messages")
    await plane.delete("ModelDeployment", name, "messages")
    await handle.signal("set_spec", SetSpec(request_id="late", by="test", manifest=a_deployment(name, "messages", replicas=2)).wire())
    await plane.gone("ModelDeployment", name, "messages")
    # A closed workflow answers as it was.
    seen = await handle.query("describe")
    assert (seen["spec"]["replicas"], seen["metadata"]["generation"]) == (1, 1)
    assert "late" in seen["appliedRequestIds"]
    assert "BeingDeleted" in [event["reason"] for event in seen["status"]["events"]]
