"""A cluster that is deleted waits for its replicas, and says what moves them. No server is needed."""

import asyncio

import pytest

from api_types.messages.entities import Delete
from api_types.messages.scheduling import Occupied
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster
from workflows.entity.conditions import condition_of
from workflows.inference_cluster.workflow import InferenceClusterWorkflow


def deleting_message(cluster: InferenceClusterWorkflow) -> str:
    """The message of the condition after another pass."""
    assert not asyncio.run(cluster.tear_down())
    found = condition_of(cluster.state.conditions, "Deleting")
    assert found is not None
    return found.message or ""


def test_a_deletion_names_the_replicas_and_the_command_that_moves_them_until_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {"watch_cluster": None, "signal": True}
    cluster = InferenceClusterWorkflow(a_cluster())
    cluster.delete(Delete(by="ann").wire())
    assert deleting_message(cluster) == "waits for the scheduler to report which replicas are on the cluster"
    cluster.occupied(Occupied(cluster="eu", sequence=cluster.state.sequence, replicas=["ml/qwen-eu-0"]).wire())
    assert "ml/qwen-eu-0 is gone; `modelplane delete inferencecluster/eu --evict`" in deleting_message(cluster)
    cluster.delete(Delete(by="ann", evict=True).wire())
    assert deleting_message(cluster) == "waits for the scheduler to report which replicas are on the cluster"
    cluster.occupied(Occupied(cluster="eu", sequence=cluster.state.sequence, replicas=["ml/qwen-eu-0"]).wire())
    assert "--evict" not in deleting_message(cluster)
    assert "the scheduler evicts" in deleting_message(cluster)
