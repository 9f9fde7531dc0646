"""No secret value is in any history or log, and the worker serves its metrics."""

import base64
import json
import uuid
from pathlib import Path

import pytest
import yaml

from activities.secrets.store import SecretStore, StoredSecret
from api_types import labels
from tests.workflows.environment.harness import ControlPlane, eventually, said
from tests.workflows.environment.topologies import (
    CLUSTER,
    H100,
    a_model,
    an_engine,
    leave_nothing,
    the_replica,
)

pytestmark = pytest.mark.testbed

EVENTS_OF_A_ROTATION = 20


def secret_values(plane: ControlPlane) -> list[str]:
    """Return the client keys of the clusters, which must appear nowhere."""
    found: list[str] = []
    for cluster in plane.running.clusters.values():
        for user in yaml.safe_load(Path(cluster.kubeconfig).read_text())["users"]:
            found += [
                value
                for key, value in user["user"].items()
                if "key" in key or "token" in key
            ]
    assert found
    return found


async def test_no_secret_value_is_in_any_history_or_in_the_log(
    plane: ControlPlane,
) -> None:
    secrets = secret_values(plane)
    histories = 0
    async for run in plane.client.list_workflows():
        history = await plane.client.get_workflow_handle(
            run.id, run_id=run.run_id
        ).fetch_history()
        shown = json.dumps(history.to_json_dict()) + "".join(
            said(history.to_json_dict())
        )
        assert not [secret for secret in secrets if secret in shown], run.id
        histories += 1
    assert histories > len(plane.running.clusters)
    assert not [secret for secret in secrets if secret in plane.worker.log()]


async def test_a_token_sent_to_a_cluster_is_in_no_history_and_in_no_log(
    plane: ControlPlane, store: SecretStore, namespace: str
) -> None:
    value = f"token-{uuid.uuid4().hex}"
    await store.put(
        StoredSecret(
            namespace,
            "hub",
            {"token": value.encode()},
            labels={labels.PROPAGATE: "true"},
        )
    )
    env = [
        {
            "name": "HF_TOKEN",
            "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}},
        }
    ]
    await plane.apply(a_model("gated", namespace, an_engine("main", H100, env=env)))
    await plane.ready("ModelDeployment", "gated", namespace)
    (pod,) = plane.pods(CLUSTER, namespace)
    copy = pod["spec"]["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"]
    there = plane.get(CLUSTER, f"/api/v1/namespaces/{namespace}/secrets/{copy}")
    assert base64.b64decode(there["data"]["token"]).decode() == value

    # A new value reaches the copy within seconds, and costs the replica one message and
    # one apply.
    replica = await the_replica(plane, "gated", namespace)
    handle = plane.handle("ModelReplica", replica["metadata"]["name"], namespace)
    before = (await handle.describe()).history_length
    rotated = f"token-{uuid.uuid4().hex}"
    await store.put(
        StoredSecret(
            namespace,
            "hub",
            {"token": rotated.encode()},
            labels={labels.PROPAGATE: "true"},
        )
    )

    async def copied() -> str:
        found = plane.get(CLUSTER, f"/api/v1/namespaces/{namespace}/secrets/{copy}")
        return base64.b64decode(found["data"]["token"]).decode()

    await eventually(copied, lambda found: found == rotated)
    assert (await handle.describe()).history_length - before <= EVENTS_OF_A_ROTATION
    assert [(each["metadata"]["uid"]) for each in plane.pods(CLUSTER, namespace)] == [
        pod["metadata"]["uid"]
    ]
    await leave_nothing(plane, "gated", namespace)
    async for run in plane.client.list_workflows(
        f'WorkflowId STARTS_WITH "model" AND ModelplaneNamespace = "{namespace}"'
    ):
        history = (
            await plane.client.get_workflow_handle(
                run.id, run_id=run.run_id
            ).fetch_history()
        ).to_json_dict()
        shown = json.dumps(history) + "".join(said(history))
        for secret in (value, rotated):
            assert secret not in shown, run.id
            assert base64.b64encode(secret.encode()).decode() not in shown, run.id
    assert not [secret for secret in (value, rotated) if secret in plane.worker.log()]


async def test_the_worker_serves_metrics_of_its_queues_and_of_the_sdk(
    plane: ControlPlane,
) -> None:
    metrics = plane.worker.metrics()
    assert 'modelplane_worker_up{queue="modelplane-clusters"} 1.0' in metrics
    assert "temporal_workflow_task_execution_latency" in metrics


async def test_a_stopped_worker_exits_cleanly_and_the_next_one_continues(
    plane: ControlPlane,
) -> None:
    cluster = min(plane.running.clusters)
    assert plane.worker.stop() == 0
    assert "stopping" in plane.worker.log()
    plane.worker.start()
    await plane.ready("InferenceCluster", cluster)
