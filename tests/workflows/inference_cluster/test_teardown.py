"""A cluster that is deleted waits for its replicas, and says what moves them. No server is needed."""

import asyncio

import pytest

from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import Delete
from api_types.messages.observations import Observed, ObservedCluster
from api_types.messages.scheduling import Occupied
from api_types.messages.versions import ObservationOrder
from tests.workflows.environment.serverless import Serverless
from tests.workflows.inference_cluster.builders import a_cluster, a_spec
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
    temporal.results = {"watch_cluster": None, "signal_many": SignalBatchResult()}
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


@pytest.mark.parametrize(("source", "forced"), [("GKE", ""), ("Existing", "step")])
def test_a_step_that_is_given_up_is_the_wait_for_replicas_where_others_follow(
    monkeypatch: pytest.MonkeyPatch, source: str, forced: str
) -> None:
    """A cluster that is created at a cloud is emptied next, whoever installed its stack."""
    temporal = Serverless(monkeypatch, "inferencecluster/eu")
    temporal.results = {"watch_cluster": None, "broadcast": None}
    spec = a_spec()
    spec["cluster"]["source"] = source
    cluster = InferenceClusterWorkflow(a_cluster(spec=spec, occupied=["ml/qwen-eu-0"], forced="step"))
    assert asyncio.run(cluster._is_empty())
    assert (cluster.state.forced, [each.name for each in cluster.state.left_behind]) == (forced, ["ml/qwen-eu-0"])


def test_a_retry_is_carried_until_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    Serverless(monkeypatch, "inferencecluster/eu")
    for source, wanted in (("GKE", True), ("Existing", False)):
        cluster = InferenceClusterWorkflow(a_cluster(spec={**a_spec(), "cluster": {"source": source}}))
        cluster.on_retry_requested()
        assert cluster.state.cloud.retry == wanted


def test_an_answer_to_an_earlier_cluster_of_that_name_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    Serverless(monkeypatch, "inferencecluster/eu")
    cluster = InferenceClusterWorkflow(a_cluster(uid="u", sequence=3))
    for uid, sequence in (("of-the-earlier", 3), ("u", 2)):
        cluster.occupied(Occupied(cluster="eu", uid=uid, sequence=sequence).wire())
        assert cluster.state.occupied is None
    cluster.occupied(Occupied(cluster="eu", uid="u", sequence=3).wire())
    assert cluster.state.occupied == []


def test_an_old_observation_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    Serverless(monkeypatch, "inferencecluster/eu")
    cluster = InferenceClusterWorkflow(a_cluster(uid="u"))

    def observe(run: int, *, reachable: bool) -> None:
        order = ObservationOrder(cluster_uid="u", run=run, sequence=1)
        cluster.observed(Observed(owner_uid="u", order=order, digest="", cluster=ObservedCluster(reachable=reachable)).wire())

    observe(2, reachable=True)
    observe(1, reachable=False)
    assert (cluster.state.observed, cluster.state.unreachable_since) == (ObservedCluster(), "")
