"""A replica whose workflow was terminated."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.clusters import closed_replicas
from api_types.names import workflow_id
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.simulated_clusters import a_class, a_cluster
from workflows.model_deployment.replicas import LAST_REPORT_TIMEOUT

NAMESPACE = "ml-team"
# Far less than the hour after which each replica is checked.
NOTICED_SECONDS = 60


def test_a_termination_is_noticed_within_a_minute() -> None:
    shown_by_visibility = timedelta(seconds=5)
    looked_for = timedelta(
        seconds=closed_replicas.CHECK_SECONDS + closed_replicas.LISTING_SECONDS
    )
    assert shown_by_visibility + looked_for + LAST_REPORT_TIMEOUT < timedelta(minutes=1)


@on_a_virtual_loop
async def test_a_terminated_replica_is_started_again_though_nothing_is_sent_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(closed_replicas, "CHECK_SECONDS", 1.0)
    monkeypatch.setattr(closed_replicas, "LISTING_SECONDS", 0.5)
    async with virtual_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        (placed,) = seen["status"]["placements"]
        replica = plane.client.get_workflow_handle(
            workflow_id("ModelReplica", NAMESPACE, placed["replica"])
        )
        first = (await replica.describe()).run_id
        await replica.terminate("an accident")

        async def run() -> str:
            description = await replica.describe()
            return (
                description.run_id
                if description.status == WorkflowExecutionStatus.RUNNING
                else ""
            )

        await eventually(
            run,
            lambda found: found not in ("", first),
            within=NOTICED_SECONDS,
            what="a new run of the replica",
        )
        await plane.until(
            "ModelReplica",
            placed["replica"],
            lambda found: condition(found, "Ready") == "True",
            NAMESPACE,
            within=60,
        )
