"""How many events of history the workflows of a deployment may use (spec/workflows.md section 6)."""

import asyncio
import uuid

import pytest

from api_types import names
from tests.workflows.environment.harness import ControlPlane, a_deployment

pytestmark = pytest.mark.testbed


async def events(plane: ControlPlane, workflow_id: str) -> int:
    return (await plane.client.get_workflow_handle(workflow_id).describe()).history_length


ATTEMPTS = 5


async def test_a_replica_and_its_deployment_stay_within_their_budgets_of_events(plane: ControlPlane) -> None:
    """Reports that a busy machine delivers one by one cost a workflow task each, so one of a few attempts must stay within them."""
    spent = []
    for _ in range(ATTEMPTS):
        spent.append(await events_used(plane))
        if within_budget(*spent[-1]):
            return
    pytest.fail(f"events for (replica to Ready, scale by 3, teardown): {spent}")


def within_budget(to_ready: int, scale: int, teardown: int) -> bool:
    # A signal that arrives alone costs its own workflow task of three events: replicas that get Ready one by one are not the deployment's.
    return to_ready <= 25 and scale <= 15 + 3 * 4 * 3 and teardown <= 60


async def events_used(plane: ControlPlane) -> tuple[int, int, int]:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    await plane.apply(a_deployment("budget", namespace, replicas=1))
    seen = await plane.ready("ModelDeployment", "budget", namespace)
    await asyncio.sleep(3)
    replica = names.workflow_id("ModelReplica", namespace, seen["status"]["placements"][0]["replica"])
    deployment = names.workflow_id("ModelDeployment", namespace, "budget")
    to_ready = await events(plane, replica)
    before_scale = await events(plane, deployment)
    await plane.scale("budget", namespace, 4)
    await plane.until("ModelDeployment", "budget", lambda now: now["status"]["replicas"]["ready"] == 4, namespace)
    scale = await events(plane, deployment) - before_scale
    await plane.delete("ModelDeployment", "budget", namespace)
    await plane.gone("ModelDeployment", "budget", namespace)
    return to_ready, scale, await events(plane, replica) - to_ready
