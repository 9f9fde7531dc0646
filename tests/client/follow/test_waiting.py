"""A wait that takes too long says for what, and what can be typed next."""

import asyncio
from typing import Any, cast

import pytest

from api_types import labels
from api_types.resources.kinds import BY_KIND
from client.errors import NoAnswer, TimedOut
from client.follow import waiting
from client.follow.requests import Requested
from client.follow.waiting import Goal, until_gone, until_ready
from client.output.progress import Progress
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane
from client.temporal.execution import Execution
from workflows.inference_cluster.state import ClusterState
from workflows.inference_cluster.status import occupied_message

OSLO = Target.of(BY_KIND["InferenceCluster"], None, "oslo")
QWEN = Target.of(BY_KIND["ModelDeployment"], "ml", "qwen")


class Held:
    """A control plane whose objects stay."""

    async def waiting(self, target: Target) -> list[str]:
        return [f"a finalizer on {target.name}"]


def test_a_deletion_that_takes_too_long_names_the_object_in_the_next_step() -> None:
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(until_gone(cast("ControlPlane", Held()), [QWEN], 0.0, progress))
    assert failure.value.details == ("ModelDeployment ml/qwen: a finalizer on qwen",)
    assert failure.value.next_step == (
        "wait longer with `modelplane delete md/qwen -n ml --wait`, or skip the step that is waited for: "
        "`modelplane delete md/qwen -n ml --force --reason TEXT`"
    )


class InUse:
    """A control plane whose cluster waits for a replica, as the workflow of the cluster says it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.state = ClusterState(occupied=["ml/qwen-1"], spec=spec)

    async def waiting(self, target: Target) -> list[str]:
        return [occupied_message(target.name, self.state)] if target == OSLO else ["being deleted"]


def next_step_of(spec: dict[str, Any], targets: list[Target]) -> str:
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(until_gone(cast("ControlPlane", InUse(spec)), targets, 0.0, progress))
    return failure.value.next_step


@pytest.mark.parametrize("targets", [[OSLO], [QWEN, OSLO]], ids=["alone", "after another object"])
def test_the_deletion_of_a_cluster_in_use_offers_first_to_move_its_replicas(targets: list[Target]) -> None:
    assert next_step_of({}, targets) == (
        "move the replicas elsewhere with `modelplane delete ic/oslo --evict --wait`, wait longer with `modelplane delete ic/oslo --wait`, "
        "or skip the step that is waited for: `modelplane delete ic/oslo --force --reason TEXT`"
    )


def test_the_deletion_of_a_drained_cluster_does_not_offer_to_move_its_replicas_again() -> None:
    drained = {"taints": [{"key": labels.MAINTENANCE, "effect": "NoExecute"}]}
    assert next_step_of(drained, [OSLO]).startswith("wait longer with `modelplane delete ic/oslo --wait`, or skip ")


class Late:
    """A control plane whose object is Ready, at first with the spec before: a worker applies the request at the third look."""

    def __init__(self) -> None:
        self.looks = 0

    async def execution(self, _target: Target) -> Execution:
        return Execution()

    async def describe(self, target: Target) -> dict[str, Any]:
        self.looks += 1
        if self.looks == 1:
            raise NoAnswer(f"no worker answers for {target.title}", next_step="none")
        applied = self.looks > 2
        generation = 2 if applied else 1
        return {
            "metadata": {"generation": generation},
            "status": {
                "observedGeneration": min(generation, self.looks - 2),
                "conditions": [{"type": "Ready", "status": "True", "reason": "Available"}],
            },
            "appliedRequestIds": ["r1"] if applied else [],
        }


def test_a_wait_begins_with_the_request_that_no_worker_has_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_POLL_SECONDS", 0.001)
    plane = Late()
    with Progress() as progress:
        (tree,) = asyncio.run(until_ready(cast("ControlPlane", plane), [Goal.of(Requested(QWEN, "r1"))], 60, progress))
    assert (plane.looks, tree["status"]["observedGeneration"]) == (4, 2)


def test_a_wait_for_a_request_that_no_worker_sees_says_so() -> None:
    plane = Late()
    plane.looks = -10_000
    with pytest.raises(TimedOut) as failure, Progress() as progress:
        asyncio.run(until_ready(cast("ControlPlane", plane), [Goal.of(Requested(QWEN, "r1"))], 0.0, progress))
    assert failure.value.details == ("ModelDeployment ml/qwen: accepted by Temporal, not yet seen by a worker",)
