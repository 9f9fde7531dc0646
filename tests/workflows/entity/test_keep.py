"""A user can cancel a deletion that waits for the users of an object."""

from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import Json, condition, eventually, reason
from tests.workflows.environment.simulated_clusters import a_class, a_cluster

CLASS = "h100-8x"


async def a_class_in_use(plane: VirtualPlane) -> None:
    """Apply a class and a cluster whose pool uses it."""
    await plane.apply(a_class())
    await plane.apply(a_cluster("eu"))
    await plane.ready("InferenceCluster", "eu")


async def keep(plane: VirtualPlane) -> None:
    await plane.handle("InferenceClass", CLASS).signal(
        "keep", {"by": "ann", "requestId": "keep-1"}
    )


def is_kept(seen: Json) -> bool:
    """Return whether the object's deletion was cancelled and an event reports that."""
    messages = [event["message"] for event in seen["status"]["events"]]
    return "deletionTimestamp" not in seen["metadata"] and (
        "ann cancelled the deletion" in messages
    )


@on_a_virtual_loop
async def test_a_class_in_use_is_kept_and_can_be_deleted_later() -> None:
    async with virtual_plane() as plane:
        await a_class_in_use(plane)
        await plane.delete("InferenceClass", CLASS)
        await plane.until(
            "InferenceClass", CLASS, lambda seen: reason(seen, "Deleting") == "InUse"
        )
        await keep(plane)
        kept = await plane.until("InferenceClass", CLASS, is_kept)
        assert condition(kept, "Deleting") == ""
        await plane.delete("InferenceCluster", "eu")
        await plane.gone("InferenceCluster", "eu")
        await plane.ready("InferenceClass", CLASS)
        await plane.delete("InferenceClass", CLASS)
        await plane.gone("InferenceClass", CLASS)


@on_a_virtual_loop
async def test_a_class_that_is_not_being_deleted_stays_as_it_is() -> None:
    async with virtual_plane() as plane:
        await a_class_in_use(plane)
        before = await plane.describe("InferenceClass", CLASS)
        await keep(plane)

        async def applied() -> bool:
            seen = await plane.describe("InferenceClass", CLASS)
            return "keep-1" in seen["appliedRequestIds"]

        await eventually(applied, bool, what="the request")
        after = await plane.describe("InferenceClass", CLASS)
        assert after["status"]["events"] == before["status"]["events"]


@on_a_virtual_loop
async def test_a_started_teardown_continues() -> None:
    async with virtual_plane() as plane:
        await a_class_in_use(plane)
        await plane.delete("InferenceCluster", "eu")
        await plane.handle("InferenceCluster", "eu").signal("keep", {"by": "ann"})
        await plane.gone("InferenceCluster", "eu")
