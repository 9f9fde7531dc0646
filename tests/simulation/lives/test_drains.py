"""A cluster is drained or cordoned, and taken back into use at each step of the move.

Operators change their minds, and two of them disagree. In every order no pool is overcommitted,
each eviction has a cause, the model serves all the time, and at the end all of its replicas run.
"""

import asyncio
import copy
from collections.abc import Callable
from typing import Any

import pytest

from api_types.taints import with_cordon, with_taint, without_taint
from tests.simulation.lives.steady_fleet import SteadyFleet, in_virtual_time
from tests.simulation.lives.whole_fleet import ENDPOINT, MODEL, POOLS, WholeFleet, a_model
from tests.simulation.world import Step, World

Change = Callable[[dict[str, Any]], dict[str, Any]]
FLIPS: dict[str, tuple[Change, ...]] = {
    "drained": (with_taint, without_taint),
    "cordoned and drained": (with_cordon, with_taint, without_taint),
    "drained twice": (with_taint, without_taint, with_taint, without_taint),
}
"""The successive changes of a cluster."""
STEPS_MAX = 200
WITHIN_SECONDS = 120.0
_LOOK_SECONDS = 0.02
_WHOLE_LOOK_SECONDS = 1.0
_MOVERS = ("modeldeployment/", "modelreplica/", "fleetscheduler/")


class Move:
    """Counts the tasks of the workflows that move replicas, and checks the route after
    each task.
    """

    def __init__(self, fleet: WholeFleet) -> None:
        self.fleet, self.world = fleet, fleet.world
        self.tasks = 0
        self._clusters = set[str]()
        self.world.observers.append(self)

    def __call__(self, world: World, step: Step) -> None:
        if step.kind == "task" and step.subject.startswith(_MOVERS):
            self.tasks += 1
            routed = {name for route in world.parts.routes() for name in route.endpoints}
            assert routed - {ENDPOINT}, f"no replica serves after {step}"

    async def steps(self, number: int) -> bool:
        """Wait for some tasks; return whether there were so many."""
        wanted = self.tasks + number
        ends = self.world.clock.seconds() + WITHIN_SECONDS
        look_at = self.world.clock.seconds()
        while self.tasks < wanted:
            now = self.world.clock.seconds()
            if now >= look_at:
                if now > ends or self.is_over():
                    return False
                look_at = now + _WHOLE_LOOK_SECONDS
            await asyncio.sleep(_LOOK_SECONDS)
        return self.tasks >= wanted

    def clusters(self) -> set[str]:
        """Return the clusters on which the model has replicas."""
        seen = self.fleet.seen("ModelDeployment", self.fleet.namespace, MODEL)
        if seen:
            self._clusters = {each["cluster"] for each in seen["status"].get("placements", ())}
        return self._clusters

    def is_over(self) -> bool:
        """Return whether all replicas are Ready, none of them on a cluster that is drained."""
        drained = {
            name
            for (kind, _, name), document in self.fleet.wanted.items()
            if kind == "InferenceCluster" and document["spec"].get("taints")
        }
        return not (self.clusters() & drained) and not list(self.fleet.unready())


async def flip_flop(plane: SteadyFleet, namespace: str, flips: str, stride: int) -> None:
    """Change a cluster after one step of the move, then after two, and so on until the
    move ends.
    """
    fleet = WholeFleet(plane, namespace)
    model = a_model(namespace, sum(POOLS.values()))
    model["spec"]["drain"] = {"maxUnavailable": 1}
    fleet.want(model)
    await fleet.begin()
    move = Move(fleet)
    for number in range(0, STEPS_MAX, stride):
        cluster = min(move.clusters())
        goes_on = True
        for change in FLIPS[flips]:
            document = copy.deepcopy(fleet.wanted["InferenceCluster", "", cluster])
            document["spec"] = change(document["spec"])
            await fleet.apply(document)
            if change is not without_taint:
                goes_on = await move.steps(number)
            else:
                await move.steps(1)
        await fleet.ready()
        if not goes_on:
            break
    else:
        raise AssertionError(f"a move has more than {STEPS_MAX} steps")
    plane.world.observers.remove(move)
    await fleet.at_rest()
    await fleet.delete_everything()


@pytest.mark.soak
@pytest.mark.parametrize("flips", FLIPS)
@in_virtual_time
async def test_a_cluster_that_is_drained_and_taken_back_at_every_step_loses_no_replica(
    plane: SteadyFleet, namespace: str, flips: str
) -> None:
    await flip_flop(plane, namespace, flips, 1)


@pytest.mark.long
@in_virtual_time
async def test_a_cluster_that_is_drained_and_taken_back_at_some_steps_loses_no_replica(
    plane: SteadyFleet, namespace: str
) -> None:
    await flip_flop(plane, namespace, "drained twice", 15)
