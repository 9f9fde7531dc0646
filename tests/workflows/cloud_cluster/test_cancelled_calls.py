"""A running cloud call may still create an object after a deletion is ordered.

Nothing is deleted before that call has ended.
"""

import asyncio
import threading
from functools import partial

import pytest

from activities.clouds import patience
from activities.clouds.calls import GuardedHandler
from activities.clouds.lifecycle.handler import ObjectWork
from activities.heartbeat import heartbeating
from tests.activities.clouds.builders import an_eks_pool
from tests.environment.scripted_cloud import ScriptedHandler
from tests.workflows.cloud_cluster.control_plane import CloudPlane

ADDRESS = "net/eip"
_WITHIN = 30.0


@pytest.mark.slow
async def test_an_object_created_after_the_deletion_order_is_deleted_too(
    eks: CloudPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    running, goes_on, cancelled = threading.Event(), threading.Event(), asyncio.Event()
    create, until_quiet = ScriptedHandler.create, GuardedHandler.until_quiet

    def slow(handler: ScriptedHandler, wanted: ObjectWork) -> None:
        if wanted.object.key == ADDRESS:
            running.set()
            goes_on.wait(_WITHIN)
        create(handler, wanted)

    async def noted(handler: GuardedHandler) -> None:
        if running.is_set() and not goes_on.is_set() and handler._running:
            cancelled.set()
        await until_quiet(handler)

    monkeypatch.setattr(ScriptedHandler, "create", slow)
    monkeypatch.setattr(GuardedHandler, "until_quiet", noted)
    # A cancellation reaches an activity through its heartbeat.
    monkeypatch.setattr(patience, "heartbeating", partial(heartbeating, 0.2))
    await eks.apply(an_eks_pool())
    assert await asyncio.to_thread(running.wait, _WITHIN)
    await eks.delete()
    async with asyncio.timeout(_WITHIN):
        await cancelled.wait()
    seen = await eks.progress()
    assert (seen["phase"], ADDRESS in eks.cloud.things) == ("Deleting", False)
    history = await eks.handle.fetch_history()
    ordered = [
        event.activity_task_scheduled_event_attributes.activity_id
        for event in history.events
    ]
    assert f"ensure {ADDRESS} 0" in ordered
    assert [each for each in ordered if each.startswith("delete ")] == [], (
        "its end is not known yet"
    )
    goes_on.set()
    await eks.gone()
    assert (eks.cloud.things, eks.cloud.written("create").count(ADDRESS)) == ({}, 1)
