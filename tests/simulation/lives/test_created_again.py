"""An object is deleted and created again under its name, at each step of its teardown.

The two requests come in both orders and at every moment between them. Signals to the first object
arrive once more, late. The second object is as its document says, and nothing of the first is left.
"""

import asyncio
import contextlib
import copy
import functools
from typing import Any

import pytest
from temporalio.service import RPCError

from api_types import names
from api_types.messages.entities import Delete
from tests.simulation.lives.steady_fleet import SteadyFleet, a_class, in_virtual_time
from tests.simulation.lives.whole_fleet import ENDPOINT, MODEL, SERVICE, WholeFleet
from tests.simulation.runs import Run, value_of
from tests.simulation.script import DELETION_ORDER, Address
from tests.simulation.world import Step, World
from tests.workflows.environment.harness import Json, a_cache

UNUSED_CLASS, UNUSED_CACHE = "a100", "unused"
"""A class and a cache without users, so that their deletion does not wait."""
NAMES = {
    "ModelService": SERVICE,
    "ModelEndpoint": ENDPOINT,
    "ModelDeployment": MODEL,
    "ModelCache": UNUSED_CACHE,
    "InferenceGateway": "default",
    "InferenceCluster": "prod-eu",
    "InferenceClass": UNUSED_CLASS,
}
LIFE = "example.com/life"
BEFORE, TOGETHER = -1, 0
"""The object is created again before its deletion, or immediately after it."""
MOMENTS_MAX = 200
REQUESTS = frozenset({"set_spec", "scale", "delete", "force", "keep", "retry_now"})
"""The signals of users, which are not repeated."""
_LOOK_SECONDS = 0.01
_STEP_SECONDS = 120.0


def test_every_kind_that_users_create_is_created_again() -> None:
    assert set(NAMES) == set(DELETION_ORDER)


def in_life(document: Json, number: int) -> Json:
    """Return the document of an object with a label that counts its lives."""
    marked = copy.deepcopy(document)
    marked["metadata"].setdefault("labels", {})[LIFE] = f"life-{number}"
    return marked


def signals_to(run: Run) -> dict[str, Any]:
    """Return the last signal of each name that other workflows and watches have sent to a run."""
    jobs = [job for task in run.recorded for each, _ in task.activations for job in each.jobs]
    sent = [job.signal_workflow for job in jobs if job.HasField("signal_workflow")]
    return {
        each.signal_name: value_of(each.input[0])
        for each in sent
        if each.signal_name not in REQUESTS
    }


class Teardown:
    """Counts the workflow tasks of a teardown."""

    def __init__(self, world: World, workflow_id: str) -> None:
        self.world, self.workflow_id = world, workflow_id
        # The replicas of a deployment are torn down with it.
        self.prefixes = (workflow_id, workflow_id.replace("modeldeployment/", "modelreplica/"))
        self.tasks = 0
        world.observers.append(self)

    def __call__(self, world: World, step: Step) -> None:
        del world
        self.tasks += step.kind == "task" and step.subject.startswith(self.prefixes)

    async def task(self, number: int) -> bool:
        """Wait until a task is over; return whether the workflow runs then."""
        run = self.world.server.find(self.workflow_id)
        ends = self.world.clock.seconds() + _STEP_SECONDS
        while self.tasks < number and run.is_open and self.world.clock.seconds() < ends:
            await asyncio.sleep(_LOOK_SECONDS)
            run = self.world.server.find(self.workflow_id)
        self.world.observers.remove(self)
        return run.is_open


class Lives:
    """The lives of one object in a fleet."""

    def __init__(self, fleet: WholeFleet, address: Address) -> None:
        self.fleet, self.address, self.world = fleet, address, fleet.world
        self.workflow_id = names.workflow_id(*address)
        self.number = 0

    async def again(self, moment: int) -> bool:
        """Delete the object and create it again; return whether its teardown went on then."""
        kind, namespace, name = self.address
        uid = self.fleet.seen(*self.address)["metadata"]["uid"]
        late = signals_to(self.world.server.find(self.workflow_id))
        late["delete"] = Delete(request_id=f"late-{self.number}", by="late", uid=uid).wire()
        self.number += 1
        document = in_life(self.fleet.wanted[self.address], self.number)
        if moment == BEFORE:
            await self.fleet.plane.apply(document)
        teardown = Teardown(self.world, self.workflow_id)
        evict = {"evict": True} if kind == "InferenceCluster" else {}
        await self.fleet.plane.delete(kind, name, namespace, **evict)
        goes_on = await teardown.task(moment)
        await self.fleet.apply(document)
        await self._repeat(late)
        await self.fleet.until("the next life", functools.partial(self._is_new, uid))
        await self._repeat(late)
        await self.fleet.ready()
        assert self.fleet.seen(*self.address)["metadata"]["uid"] not in ("", uid)
        return goes_on

    async def _repeat(self, late: dict[str, Any]) -> None:
        handle = self.fleet.plane.client.get_workflow_handle(self.workflow_id)
        for signal, message in late.items():
            with contextlib.suppress(RPCError):
                await handle.signal(signal, message)

    def _is_new(self, uid: str) -> bool:
        if self.workflow_id not in self.fleet.running():
            self.world.spawn(self.fleet.apply_again(), "apply")
            return False
        metadata = self.fleet.seen(*self.address).get("metadata", {"uid": uid})
        is_another = bool(metadata["uid"] != uid)
        return is_another and metadata.get("labels", {}).get(LIFE) == f"life-{self.number}"


async def created_again(plane: SteadyFleet, namespace: str, kind: str, step: int) -> None:
    """Create an object again at every so many steps of its teardown."""
    fleet = WholeFleet(plane, namespace)
    fleet.want({**a_class("h100"), "metadata": {"name": UNUSED_CLASS}})
    fleet.want(a_cache(UNUSED_CACHE, namespace, "example/unused"))
    if kind == "InferenceGateway":
        # Its deletion would wait for the services.
        del fleet.wanted["ModelService", namespace, SERVICE]
    await fleet.begin()
    (address,) = (each for each in fleet.wanted if (each[0], each[2]) == (kind, NAMES[kind]))
    lives = Lives(fleet, address)
    await lives.again(BEFORE)
    for moment in range(TOGETHER, MOMENTS_MAX, step):
        if not await lives.again(moment):
            break
    else:
        raise AssertionError(f"the teardown has more than {MOMENTS_MAX} steps")
    await fleet.at_rest()
    await fleet.delete_everything()


@in_virtual_time
async def test_a_service_is_created_again_at_every_step_of_its_teardown(
    plane: SteadyFleet, namespace: str
) -> None:
    await created_again(plane, namespace, "ModelService", 1)


@pytest.mark.long
@in_virtual_time
async def test_a_deployment_is_created_again_at_some_steps_of_its_teardown(
    plane: SteadyFleet, namespace: str
) -> None:
    await created_again(plane, namespace, "ModelDeployment", 15)


@pytest.mark.soak
@pytest.mark.parametrize("kind", NAMES)
@in_virtual_time
async def test_an_object_is_created_again_at_every_step_of_its_teardown(
    plane: SteadyFleet, namespace: str, kind: str
) -> None:
    await created_again(plane, namespace, kind, 1)
