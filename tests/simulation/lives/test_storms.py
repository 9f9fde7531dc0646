"""Storms: hundreds of requests to one object while its workflow continues as new again and again.

A run ends after a few dozen events here. Requests arrive in bursts, and at the moment of each new
run. The object reads all of them, each once and in their order, and the last writer wins.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from api_types import names
from api_types.messages.entities import Scale, SetSpec
from tests.simulation.lives.steady_fleet import SteadyFleet, in_virtual_time
from tests.simulation.lives.whole_fleet import CACHE, ENDPOINT, MODEL, SERVICE, WholeFleet
from tests.simulation.runs import CONTINUED
from tests.simulation.script import Address
from tests.simulation.world import Step, World
from tests.workflows.environment.harness import Json

EVENTS_MAX = 40
REQUESTS, FEWER = 300, 150
RUNS_MIN = 5
PAUSES = (0.0, 0.0, 0.0, 0.0, 0.01, 0.05, 0.5, 3.0)
LIFE = "example.com/life"


class Storm(NamedTuple):
    """The receiver of a storm, and the request of each number as a signal and its message."""

    address: Address
    request: Callable[[Json, int], tuple[str, Json]]


def written(document: Json, number: int) -> tuple[str, Json]:
    """Return a request that writes the document with another label."""
    marked = copy.deepcopy(document)
    marked["metadata"].setdefault("labels", {})[LIFE] = str(number)
    message = SetSpec(request_id=f"storm-{number}", by=f"writer-{number % 3}", manifest=marked)
    return "set_spec", message.wire()


def scaled_or_written(document: Json, number: int) -> tuple[str, Json]:
    """Return a scale for even numbers, and a document for odd numbers."""
    if number % 2:
        return written(document, number)
    scale = Scale(request_id=f"storm-{number}", by="keda", replicas=1 + number // 2 % 3)
    return "scale", scale.wire()


def storms(namespace: str) -> dict[str, Storm]:
    """Return a storm to an object of each kind."""
    return {
        "ModelDeployment": Storm(("ModelDeployment", namespace, MODEL), scaled_or_written),
        "InferenceCluster": Storm(("InferenceCluster", "", "prod-eu"), written),
        "InferenceClass": Storm(("InferenceClass", "", "h100"), written),
        "InferenceGateway": Storm(("InferenceGateway", "", "default"), written),
        "ModelCache": Storm(("ModelCache", namespace, CACHE), written),
        "ModelService": Storm(("ModelService", namespace, SERVICE), written),
        "ModelEndpoint": Storm(("ModelEndpoint", namespace, ENDPOINT), written),
    }


class Sender:
    """Sends the requests of a storm. `sent`: their ids in the order in which they arrived."""

    def __init__(self, world: World, workflow_id: str) -> None:
        self.world, self.workflow_id = world, workflow_id
        self.draw = world.source("storm")
        self.waiting: list[tuple[str, Json]] = []
        self.sent: list[tuple[str, Json]] = []
        world.observers.append(self)

    def __call__(self, world: World, step: Step) -> None:
        """Send a request at the moment at which a new run has begun, before its first task."""
        del world
        if step.subject == self.workflow_id and "continue_as_new" in step.detail and self.waiting:
            self.send()

    def send(self) -> None:
        """Send the next request."""
        if self.waiting:
            signal, message = self.waiting.pop(0)
            self.sent.append((signal, message))
            run = self.world.server.open_run(self.workflow_id)
            self.world.server.signal(run, signal, [message])

    async def storm(self, requests: list[tuple[str, Json]]) -> None:
        """Send requests in bursts until all are sent."""
        self.waiting = requests
        while self.waiting:
            self.send()
            await asyncio.sleep(self.draw.choice(PAUSES))

    def runs(self) -> int:
        """Return how many runs the receiver has continued."""
        execution = self.world.server.executions[self.workflow_id]
        return sum(run.status == CONTINUED for run in execution.runs)


def state_of(world: World, workflow_id: str) -> Any:
    """Return the state of a workflow."""
    return world.server.find(workflow_id).workflow.state


async def storm(plane: SteadyFleet, namespace: str, kind: str, count: int) -> None:
    """Send a storm to an object, and compare the requests that it has read with it."""
    fleet = WholeFleet(plane, namespace)
    plane.world.server.events_max = EVENTS_MAX
    await fleet.begin()
    address, request = storms(namespace)[kind]
    workflow_id = names.workflow_id(*address)
    sender = Sender(plane.world, workflow_id)
    before = sender.runs()
    await sender.storm([request(fleet.wanted[address], number) for number in range(count)])
    await plane.shown()
    assert sender.runs() - before >= RUNS_MIN
    ids = [message["requestId"] for _, message in sender.sent]
    state = state_of(plane.world, workflow_id)
    assert [each for each in state.requests if each in set(ids)] == ids
    (*_, written_last) = (each for signal, each in sender.sent if signal == "set_spec")
    assert state.labels[LIFE] == written_last["manifest"]["metadata"]["labels"][LIFE]
    fleet.want(written_last["manifest"])
    scales = [message for signal, message in sender.sent if signal == "scale"]
    if scales:
        assert state.wanted == scales[-1]["replicas"]
    await fleet.ready()
    await fleet.at_rest()
    await fleet.delete_everything()


async def scheduler_storm(plane: SteadyFleet, namespace: str, count: int) -> None:
    """Let policies and requests of all deployments arrive at a scheduler, which gets new runs."""
    fleet = WholeFleet(plane, namespace)
    plane.world.server.events_max = EVENTS_MAX
    await fleet.begin()
    sender = Sender(plane.world, names.FLEET_SCHEDULER_ID)
    before = sender.runs()
    policies: list[Json] = [
        {"by": "alice", "policy": {"quotas": [{"namespace": "other", "maxNodes": number}]}}
        for number in range(count)
    ]
    scaling = plane.world.spawn(scale_again_and_again(fleet, count), "scales")
    await sender.storm([("set_policy", policy) for policy in policies])
    await scaling
    await plane.shown()
    assert sender.runs() - before >= RUNS_MIN
    found: Json = await plane.scheduler("policy")
    assert found["policy"]["quotas"] == policies[-1]["policy"]["quotas"]
    await fleet.ready()
    await fleet.at_rest()
    await fleet.delete_everything()


async def scale_again_and_again(fleet: WholeFleet, count: int) -> None:
    """Scale the model, each time to another count than before."""
    for number in range(count // 10):
        await fleet.plane.scale(MODEL, fleet.namespace, 1 + number % 3)
        await asyncio.sleep(fleet.world.draw.choice(PAUSES))


@pytest.mark.long
@in_virtual_time
async def test_a_deployment_loses_no_request_of_a_storm(plane: SteadyFleet, namespace: str) -> None:
    await storm(plane, namespace, "ModelDeployment", FEWER)


@pytest.mark.long
@in_virtual_time
async def test_a_scheduler_loses_no_request_of_a_storm(plane: SteadyFleet, namespace: str) -> None:
    await scheduler_storm(plane, namespace, FEWER)


@pytest.mark.soak
@pytest.mark.parametrize("kind", storms(""))
@in_virtual_time
async def test_no_object_loses_a_request_of_a_storm(
    plane: SteadyFleet, namespace: str, kind: str
) -> None:
    await storm(plane, namespace, kind, REQUESTS)
