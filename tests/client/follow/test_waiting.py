"""A wait that takes too long says for what, and what can be typed next."""

import asyncio
from typing import Any, cast

import pytest

from api_types import labels
from api_types.resources.kinds import BY_KIND
from client.errors import TimedOut
from client.follow.waiting import until_gone
from client.output.progress import Progress
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane
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
