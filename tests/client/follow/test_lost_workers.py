"""Requests to workers that die or start slowly are applied, and no command fails for
lack of a worker.

The server and the workers are real. No Kubernetes is needed, because no deployment is
placed.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api_types.messages.entities import SetSpec
from api_types.messages.signals import EntitySignals
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from api_types.validation.manifests import Manifest, dump
from client.commands.change.delete import DeleteOptions, request_deletion
from client.commands.change.rollout import with_pause
from client.commands.change.scale import request_scale
from client.follow import apply as applying
from client.follow.apply import apply_manifests, until_applied_are_ready
from client.follow.edit import change
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path
from fleet_client.requests import Requested, until_applied
from fleet_client.temporal.control_plane import ControlPlane
from tests.api_types.builders import DEVICE, a_class, a_deployment, accepted, merged
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment.harness import (
    WorkerProcess,
    eventually,
    worker_process,
)
from tests.workflows.environment.protocol_fleet import protocol_server

pytestmark = pytest.mark.testbed("shared")

DEPLOYMENTS = 10
KILL_EVERY_SECONDS = 1.0
REPLICAS = 3
OBJECTS = 2
# Enough changes to make a worker replay.
HISTORY = 80
LATE_SECONDS = 1.0


@asynccontextmanager
async def a_control_plane(
    workers: int, folder: Path
) -> AsyncIterator[tuple[ControlPlane, list[WorkerProcess]]]:
    """A control plane with workers that are not started yet."""
    async with protocol_server() as client:
        address = client.service_client.config.target_host
        made = [
            worker_process(address, folder / "secrets", folder / f"worker-{number}.log")
            for number in range(workers)
        ]
        try:
            yield ControlPlane(client, Settings()), made
        finally:
            for worker in made:
                worker.kill()


async def kill_again_and_again(worker: WorkerProcess, done: asyncio.Event) -> int:
    """Kill a worker every second and restart it. Return how often."""
    killed = 0
    while not done.is_set():
        began = time.monotonic()
        worker.kill()
        await asyncio.to_thread(worker.start)
        killed += 1
        await asyncio.sleep(max(0.0, KILL_EVERY_SECONDS - (time.monotonic() - began)))
    return killed


async def live(plane: ControlPlane, name: str) -> tuple[Target, set[str]]:
    """Send four orders to one deployment in turn, with the code of the commands.

    Return the ids of their requests.
    """
    target = Target.of(BY_KIND["ModelDeployment"], "ml", name)
    (applied,) = await apply_manifests(plane, [manifest(a_deployment(), name)])
    scaled = await request_scale(plane, target, REPLICAS)
    paused = await change(plane, target, lambda tree: with_pause(tree, paused=True))
    deletion = await request_deletion(plane, target, DeleteOptions())
    assert deletion
    deleted = await until_applied(plane, target, deletion.request_id)
    return target, {one.request_id for one in (applied, scaled, paused, deleted)}


def manifest(document: dict[str, Any], name: str) -> Manifest:
    checked: Manifest = accepted(
        merged(document, {"metadata": {"name": name}})
    ).manifest
    return checked


async def test_orders_take_effect_while_workers_are_killed_and_while_the_next_one_is_still_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_control_plane(2, tmp_path) as (plane, workers):
        await asyncio.gather(*(asyncio.to_thread(worker.start) for worker in workers))
        await _ordered_while_a_worker_is_killed_every_second(plane, workers[0])
        manifests = [
            manifest(a_class(), f"class-{number}") for number in range(OBJECTS)
        ]
        applied = await apply_manifests(plane, manifests)
        pairs = zip(applied, manifests, strict=True)
        await asyncio.gather(
            *(with_long_history(plane, one, dump(each)) for one, each in pairs)
        )
        for worker in workers:
            worker.kill()

        # No worker runs, so the wait for Ready begins with unseen requests.
        unseen = partial(until_applied, seconds=1.0)
        monkeypatch.setattr(applying, "until_applied", unseen)
        devices = [{**DEVICE, "count": 4}]
        changed = [
            manifest(a_class(*devices), f"class-{number}") for number in range(OBJECTS)
        ]
        again = await apply_manifests(plane, changed)
        assert [one.seen for one in again] == [False] * OBJECTS
        ready = asyncio.create_task(
            until_applied_are_ready(plane, again, TIMEOUT_SECONDS)
        )
        await asyncio.sleep(LATE_SECONDS)
        await asyncio.to_thread(workers[0].start)
        wanted = [dump(each)["spec"]["devices"] for each in changed]
        assert [at_path(tree, ".spec.devices") for tree in await ready] == wanted


async def _ordered_while_a_worker_is_killed_every_second(
    plane: ControlPlane,
    worker: WorkerProcess,
) -> None:
    done = asyncio.Event()
    killing = asyncio.create_task(kill_again_and_again(worker, done))
    try:
        names = [f"order-{number}" for number in range(DEPLOYMENTS)]
        ordered = await asyncio.gather(*(live(plane, name) for name in names))
    finally:
        done.set()
        killed = await killing
    assert killed > 1, "the orders were done before the worker was killed"
    await asyncio.gather(*(assert_all_took_effect(plane, *one) for one in ordered))


async def assert_all_took_effect(
    plane: ControlPlane, target: Target, requests: set[str]
) -> None:
    async def found() -> Tree | None:
        return await plane.last_state(target)

    def holds(tree: Tree | None) -> bool:
        return tree is not None and requests <= set(tree["appliedRequestIds"])

    tree = await eventually(found, holds, what=f"every order for {target.title}")
    assert (at_path(tree, ".spec.replicas"), at_path(tree, ".spec.rollout.paused")) == (
        REPLICAS,
        True,
    )
    assert at_path(tree, ".metadata.deletionTimestamp")


async def with_long_history(
    plane: ControlPlane, one: Requested, document: dict[str, Any]
) -> None:
    """Change an object often enough to make a worker replay."""
    for number in range(HISTORY):
        changed = merged(document, {"metadata": {"labels": {"number": str(number)}}})
        await plane.signal(
            one.target,
            EntitySignals.SET_SPEC,
            SetSpec(request_id=f"{number}", by="test", manifest=changed),
        )
    assert (
        await until_applied(plane, one.target, f"{HISTORY - 1}", TIMEOUT_SECONDS)
    ).seen
