"""The details of a deployment in the Temporal UI."""

import pytest

from tests.workflows.environment.serverless import Serverless
from workflows.model_deployment.state import TrackedReplica
from workflows.model_deployment.workflow import ModelDeploymentWorkflow


def test_a_message_with_a_bar_stays_in_its_cell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modeldeployment/ml/qwen")
    deployment = ModelDeploymentWorkflow(None)
    replica = TrackedReplica(
        uid="a",
        name="qwen-a",
        cluster="eu",
        index=0,
        generation=1,
        message="waits for a|b",
    )
    deployment.state.replicas = {"a": replica}
    assert deployment.details()[2].count("|") == deployment.details()[0].count("|")
