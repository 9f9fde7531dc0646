"""A replica whose workflow was terminated, on a real Temporal server."""

from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus

from activities.clusters import closed_replicas
from api_types.names import FLEET_SCHEDULER_ID, workflow_id
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.simulated_clusters import a_class, a_cluster, activities_scheduled, simulated_plane
from workflows.model_deployment.replicas import LAST_REPORT_TIMEOUT

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml-team"
# Far less than the hour after which each replica is looked for.
NOTICED_SECONDS = 60


def test_a_termination_is_noticed_within_a_minute() -> None:
    shown_by_visibility = timedelta(seconds=5)
    looked_for = timedelta(seconds=closed_replicas.CHECK_SECONDS + closed_replicas.LISTING_SECONDS)
    assert shown_by_visibility + looked_for + LAST_REPORT_TIMEOUT < timedelta(minutes=1)


async def test_it_is_started_again_though_nothing_is_sent_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_replicas, "CHECK_SECONDS", 1.0)
    monkeypatch.setattr(closed_replicas, "LISTING_SECONDS", 0.5)
    async with simulated_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        (placed,) = seen["status"]["placements"]
        replica = plane.client.get_workflow_handle(workflow_id("ModelReplica", NAMESPACE, placed["replica"]))
        first = (await replica.describe()).run_id
        await replica.terminate("an accident")

        async def run() -> str:
            description = await replica.describe()
            return description.run_id if description.status == WorkflowExecutionStatus.RUNNING else ""

        await eventually(run, lambda found: found not in ("", first), within=NOTICED_SECONDS, what="a new run of the replica")
        await plane.until("ModelReplica", placed["replica"], lambda found: condition(found, "Ready") == "True", NAMESPACE, within=60)


async def test_it_is_started_again_and_becomes_ready_with_the_new_template() -> None:
    async with simulated_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        (placed,) = seen["status"]["placements"]
        await plane.client.get_workflow_handle(workflow_id("ModelReplica", NAMESPACE, placed["replica"])).terminate("an accident")
        await plane.apply(a_deployment("qwen", NAMESPACE, gpus=2))
        seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE, within=60)
        assert "ReplicaLost" in [event["reason"] for event in seen["status"]["events"]]
        history = await plane.handle("ModelReplica", placed["replica"], NAMESPACE).fetch_history()
        applies = [event.activity_task_scheduled_event_attributes for event in history.events]
        (request,) = [str(each.input) for each in applies if each.activity_type.name == "apply_replica"]
        assert '\\"search\\":true' in request


async def test_one_that_was_lost_with_all_who_knew_it_is_deleted_by_the_next_deployment_of_its_name() -> None:
    async with simulated_plane() as plane:
        await plane.apply(a_class())
        await plane.apply(a_cluster("eu"))
        await plane.ready("InferenceCluster", "eu")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
        (placed,) = seen["status"]["placements"]
        replica = workflow_id("ModelReplica", NAMESPACE, placed["replica"])
        cluster, deployment = workflow_id("InferenceCluster", "", "eu"), workflow_id("ModelDeployment", NAMESPACE, "qwen")
        for lost in (deployment, cluster, replica, FLEET_SCHEDULER_ID):
            await plane.client.get_workflow_handle(lost).terminate("an accident")
        await plane.apply(a_deployment("qwen", NAMESPACE))
        await plane.delete("ModelDeployment", "qwen", NAMESPACE)
        await plane.gone("ModelDeployment", "qwen", NAMESPACE, within=60)
        assert "teardown_replica_step" in await activities_scheduled(plane, "ModelReplica", placed["replica"], NAMESPACE)
