"""No secret value is in any history or log, and the worker tells how it is."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workflows.harness import ControlPlane

pytestmark = pytest.mark.testbed


def secret_values(plane: ControlPlane) -> list[str]:
    """What must never be seen: the client keys of the clusters."""
    found: list[str] = []
    for cluster in plane.running.clusters.values():
        for user in yaml.safe_load(Path(cluster.kubeconfig).read_text())["users"]:
            found += [value for key, value in user["user"].items() if "key" in key or "token" in key]
    assert found
    return found


def said(tree: Any) -> Iterator[str]:
    """What every payload of a history says: they stand in it as base64."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == "data" and isinstance(value, str):
                yield base64.b64decode(value).decode(errors="replace")
            else:
                yield from said(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from said(item)


async def test_no_secret_value_is_in_any_history_or_in_the_log(plane: ControlPlane) -> None:
    secrets = secret_values(plane)
    histories = 0
    async for run in plane.client.list_workflows():
        history = await plane.client.get_workflow_handle(run.id, run_id=run.run_id).fetch_history()
        shown = json.dumps(history.to_json_dict()) + "".join(said(history.to_json_dict()))
        assert not [secret for secret in secrets if secret in shown], run.id
        histories += 1
    assert histories > len(plane.running.clusters)
    assert not [secret for secret in secrets if secret in plane.worker.log()]


async def test_the_worker_serves_metrics_of_its_queues_and_of_the_sdk(plane: ControlPlane) -> None:
    metrics = plane.worker.metrics()
    assert 'modelplane_worker_up{queue="modelplane-clusters"} 1.0' in metrics
    assert "temporal_workflow_task_execution_latency" in metrics


async def test_a_worker_that_is_told_to_stop_ends_cleanly_and_the_next_one_goes_on(plane: ControlPlane) -> None:
    cluster = min(plane.running.clusters)
    assert plane.worker.stop() == 0
    assert "stopping" in plane.worker.log()
    plane.worker.start()
    await plane.ready("InferenceCluster", cluster)
