"""A receiver that accepts no signals.

Its senders continue, report it, and it receives the signals later.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any, cast

import pytest
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.testing import ActivityEnvironment

import worker
from activities.messaging import delivering, entity_client
from activities.messaging.lookups import list_entities
from activities.messaging.messages import Survey
from api_types import names, queues
from api_types.messages.delivery import (
    Delivery,
    HoldSignals,
    Redelivered,
    SignalRequest,
)
from api_types.messages.entities import ClassChanged
from api_types.messages.signals import InferenceClusterSignals
from api_types.payloads.limits import LIST_BYTES_MAX, split_by_size, wire_size
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from tests.simulation.lives.virtual_plane import (
    VirtualPlane,
    on_a_virtual_loop,
    virtual_plane,
)
from tests.workflows.environment.harness import eventually, message, reason
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from workflows.entity.calls.delivery import DELIVERIES_KEPT, with_delivery
from workflows.redelivery import HELD_MAX, RedeliveryState

FULL = names.workflow_id("InferenceCluster", "", "us")
REDELIVERY = names.redelivery_id(FULL)
MINUTE, HOUR = 60.0, 3600.0


async def devices(plane: VirtualPlane, cluster: str) -> list[int]:
    seen = await plane.describe("InferenceCluster", cluster)
    return [pool["devices"][0]["count"] for pool in seen["status"].get("gpuPools", ())]


def changed_class(count: int) -> dict[str, Any]:
    changed = a_class()
    changed["spec"]["devices"][0]["count"] = count
    return changed


async def ready_clusters(plane: VirtualPlane) -> None:
    await plane.apply(a_class())
    for name in ("eu", "us"):
        await plane.apply(a_cluster(name))
        await plane.ready("InferenceCluster", name)


async def refusing(plane: VirtualPlane, seconds: float) -> None:
    """Let one of two clusters reject the signals of their class."""
    await ready_clusters(plane)
    plane.fill(FULL, seconds)
    await plane.apply(changed_class(4))


def is_delivered(seen: dict[str, Any]) -> bool:
    return not reason(seen, "SignalsDelivered")


async def status_of_redelivery(plane: VirtualPlane) -> WorkflowExecutionStatus | None:
    return (await plane.client.get_workflow_handle(REDELIVERY).describe()).status


@on_a_virtual_loop
async def test_a_class_reaches_other_clusters_names_the_refusing_one_and_reaches_it_later() -> (
    None
):
    async with virtual_plane() as plane:
        await refusing(plane, 3 * MINUTE)
        await eventually(
            lambda: devices(plane, "eu"), lambda seen: seen == [4], what="eu"
        )
        refused = await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: bool(reason(seen, "SignalsDelivered")),
        )
        assert reason(refused, "SignalsDelivered") == "ReceiverRefuses"
        text = message(refused, "SignalsDelivered")
        assert FULL in text
        assert REDELIVERY in text
        assert await devices(plane, "us") == [8]
        held = await plane.client.get_workflow_handle(REDELIVERY).query("describe")
        assert held["status"]["held"] == 1

        await eventually(
            lambda: devices(plane, "us"), lambda seen: seen == [4], what="us"
        )
        await plane.until("InferenceClass", "h100-8x", is_delivered)
        assert await status_of_redelivery(plane) == WorkflowExecutionStatus.COMPLETED


@on_a_virtual_loop
async def test_a_terminated_receiver_gets_nothing_and_ends_the_redelivery() -> None:
    async with virtual_plane() as plane:
        await refusing(plane, 24 * HOUR)
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: bool(reason(seen, "SignalsDelivered")),
        )
        await plane.client.get_workflow_handle(FULL).terminate("repaired")
        await plane.until("InferenceClass", "h100-8x", is_delivered)
        assert await status_of_redelivery(plane) == WorkflowExecutionStatus.COMPLETED


@on_a_virtual_loop
async def test_a_refusal_with_a_terminated_redelivery_is_forgotten_at_the_next_check() -> (
    None
):
    async with virtual_plane() as plane:
        await refusing(plane, 24 * HOUR)
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: bool(reason(seen, "SignalsDelivered")),
        )
        await asyncio.sleep(1.2 * HOUR)
        assert not is_delivered(await plane.describe("InferenceClass", "h100-8x")), (
            "its Redelivery runs"
        )
        reports = plane.signals(names.FLEET_SCHEDULER_ID, "report_class")
        await plane.client.get_workflow_handle(REDELIVERY).terminate("lost on purpose")
        await asyncio.sleep(1.2 * HOUR)
        assert is_delivered(await plane.describe("InferenceClass", "h100-8x"))
        assert plane.signals(names.FLEET_SCHEDULER_ID, "report_class") == reports, (
            "the scheduler runs"
        )
        lost = await plane.world.client.get_workflow_handle(REDELIVERY).describe()
        assert lost.status == WorkflowExecutionStatus.TERMINATED


@on_a_virtual_loop
async def test_a_user_can_trigger_the_next_attempt() -> None:
    async with virtual_plane() as plane:
        await refusing(plane, HOUR)
        # The pauses have grown by now.
        await asyncio.sleep(HOUR / 2)
        plane.fill(FULL, 0)
        begun = plane.world.clock.seconds()
        await plane.client.get_workflow_handle(REDELIVERY).signal(
            "retry_now", {"requestId": "x", "by": "ann"}
        )
        await plane.until("InferenceClass", "h100-8x", is_delivered)
        await eventually(
            lambda: devices(plane, "us"), lambda seen: seen == [4], what="us"
        )
        assert plane.world.clock.seconds() - begun < MINUTE


@on_a_virtual_loop
async def test_the_pauses_between_attempts_grow_and_runs_stay_short() -> None:
    async with virtual_plane() as plane:
        plane.world.server.events_max = 150
        await refusing(plane, 24 * HOUR)
        await asyncio.sleep(6 * HOUR)
        redelivery = plane.client.get_workflow_handle(REDELIVERY)
        status = (await redelivery.query("describe"))["status"]
        assert 25 <= status["attempts"] <= 40, status
        assert len(plane.world.server.executions[REDELIVERY].runs) > 1
        plane.fill(FULL, 0)
        await redelivery.signal("retry_now", {"requestId": "x"})
        await plane.until("InferenceClass", "h100-8x", is_delivered)
        assert await devices(plane, "us") == [4]


@on_a_virtual_loop
async def test_a_redelivery_holds_only_signals_to_its_receiver() -> None:
    async with virtual_plane() as plane:
        await refusing(plane, HOUR)
        await plane.until(
            "InferenceClass",
            "h100-8x",
            lambda seen: bool(reason(seen, "SignalsDelivered")),
        )
        redelivery = plane.client.get_workflow_handle(REDELIVERY)
        other = request(1).model_copy(update={"workflow_id": "inferencecluster/eu"})
        await redelivery.signal("hold", held(other).wire())
        assert (await redelivery.query("describe"))["status"]["held"] == 1


@on_a_virtual_loop
async def test_after_a_long_refusal_all_signals_follow_the_first_accepted_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def one_by_one(client: Any, requests: Sequence[SignalRequest]) -> Redelivered:
        return await delivering.redeliver(client, requests[:1])

    monkeypatch.setattr(entity_client, "redeliver", one_by_one)
    async with virtual_plane() as plane:
        await refusing(plane, HOUR)
        for count in (5, 6):
            await plane.apply(changed_class(count))
            await asyncio.sleep(MINUTE)
        await asyncio.sleep(HOUR / 2)
        plane.fill(FULL, 0)
        begun = plane.world.clock.seconds()
        await plane.client.get_workflow_handle(REDELIVERY).signal(
            "retry_now", {"requestId": "x"}
        )
        await plane.until("InferenceClass", "h100-8x", is_delivered)
        assert await devices(plane, "us") == [6]
        assert plane.world.clock.seconds() - begun < MINUTE


@on_a_virtual_loop
async def test_a_redelivery_without_signals_ends() -> None:
    async with virtual_plane() as plane:
        handle = await plane.client.start_workflow(
            "Redelivery", None, id=REDELIVERY, task_queue=queues.WORKFLOWS
        )
        await asyncio.sleep(HOUR + MINUTE)
        assert (await handle.describe()).status == WorkflowExecutionStatus.COMPLETED


class BroadcastEnded(Exception):
    """The worker of a broadcast is lost."""


@on_a_virtual_loop
async def test_a_broadcast_continues_after_the_pages_of_an_earlier_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivering, "PAGE", 2)
    wanted = InferenceClusterSignals.CLASS_CHANGED.broadcast(
        ClassChanged(name="other", uid="u", sequence=1), InferenceClusterSignals
    )
    async with virtual_plane() as plane:
        clusters = [f"cluster-{number}" for number in range(5)]
        for name in clusters:
            await plane.apply(a_cluster(name))
        await eventually(
            lambda: listed(plane),
            lambda seen: seen == len(clusters),
            what="all clusters in visibility",
        )

        def received() -> Counter[int]:
            found = [
                plane.signals(
                    names.workflow_id("InferenceCluster", "", name), "class_changed"
                )
                for name in clusters
            ]
            return Counter(
                len([message for message in each if message["name"] == "other"])
                for each in found
            )

        sent: list[Any] = []

        def lost(*details: Any) -> None:
            sent.append(details)
            raise BroadcastEnded

        attempt = ActivityEnvironment()
        with pytest.raises(BroadcastEnded):
            await attempt.run(partial(delivering.broadcast, plane.client, wanted, lost))
        assert received() == {1: 2, 0: 3}
        again = ActivityEnvironment()
        again.info = replace(again.info, heartbeat_details=sent[0], attempt=2)
        assert await again.run(
            partial(delivering.broadcast, plane.client, wanted, lambda _: None)
        ) == len(clusters)
        assert received() == {1: 5}


def test_a_killed_worker_loses_the_progress_of_one_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept: dict[str, Any] = {}

    def keep(_: Client, queue: str, **options: Any) -> None:
        kept[queue] = options.get("max_heartbeat_throttle_interval")

    monkeypatch.setattr(worker, "build_worker", keep)
    settings = Settings(queues=QueueSettings(serve=(queues.WORKFLOWS,)))
    activities = worker.build_activities(settings)
    worker.build_workers(
        cast("Client", None), settings, activities, ThreadPoolExecutor(1)
    )
    assert kept == {queues.WORKFLOWS: timedelta(seconds=1)}


async def listed(plane: VirtualPlane) -> int:
    return len(
        (await list_entities(plane.client, Survey(kinds=["InferenceCluster"]))).found
    )


# The kept signals


def request(number: int, payload: Any = None) -> SignalRequest:
    return SignalRequest(
        workflow_id=FULL,
        signal="class_changed",
        payload=payload if payload is not None else number,
    )


def held(*requests: SignalRequest, sender: str = "inferenceclass/a") -> HoldSignals:
    return HoldSignals(sender=sender, signals=list(requests), problem="full")


def test_an_equal_signal_is_kept_once_and_the_oldest_are_dropped_at_the_limit() -> None:
    state = RedeliveryState()
    for number in range(HELD_MAX + 10):
        state.hold(held(request(number)))
        state.hold(held(request(number)))
    assert [each.payload for each in state.held] == list(range(10, HELD_MAX + 10))
    assert (state.lost, state.unnotified, state.problem) == (
        10,
        ["inferenceclass/a"],
        "full",
    )


def test_held_signals_fit_into_a_payload() -> None:
    state = RedeliveryState()
    for number in range(8):
        state.hold(
            held(
                request(number, {"number": number, "text": "x" * (LIST_BYTES_MAX // 4)})
            )
        )
    assert [each.payload["number"] for each in state.held] == [5, 6, 7]
    assert sum(wire_size(each.wire()) for each in state.held) <= LIST_BYTES_MAX
    assert state.lost == 5


def test_a_late_report_of_an_ended_refusal_changes_nothing() -> None:
    def report(refusal: int, problem: str = "", run: str = "run") -> Delivery:
        return Delivery(receiver=FULL, run=run, refusal=refusal, problem=problem)

    known = with_delivery(with_delivery({}, report(0, "full")), report(0))
    assert with_delivery(known, report(0, "full")) == known
    again = with_delivery(known, report(1, "full"))
    assert again == {FULL: report(1, "full")}
    assert with_delivery(again, report(0)) == again, "the end of the refusal before"
    ended = with_delivery(again, report(1))
    assert with_delivery(ended, report(0, "full")) == ended
    assert with_delivery(ended, report(0, "full", "next")) == {
        FULL: report(0, "full", "next")
    }


def test_only_a_signal_that_is_too_large_for_a_batch_is_lost() -> None:
    state = RedeliveryState()
    state.hold(held(request(1), request(2, "x" * LIST_BYTES_MAX)))
    assert ([each.payload for each in state.held], state.lost) == ([1], 1)
    state.hold(held(request(3)))
    assert ([each.payload for each in state.held], state.lost) == ([1, 3], 1)
    for size in range(LIST_BYTES_MAX - 5000, LIST_BYTES_MAX, 250):
        state = RedeliveryState()
        state.hold(held(request(1, "x" * size)))
        assert len(list(split_by_size(state.held, name=str))) == len(state.held)


def test_refusing_receivers_are_kept_longer_than_former_ones() -> None:
    known = {"first": Delivery(receiver="first", problem="full")}
    for number in range(DELIVERIES_KEPT + 1):
        known = with_delivery(known, Delivery(receiver=str(number)))
    assert len(known) == DELIVERIES_KEPT
    assert "first" in known
