"""The users of a cache.

A user that no longer runs is dropped at the next report. These tests need no server.
"""

import asyncio
from datetime import timedelta

import pytest

from activities.messaging.messages import SurveyResult
from api_types.messages.caches import CacheUse
from api_types.messages.delivery import SignalBatchResult
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_cache.builders import a_site
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow

SPEC = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model", "sizeGiB": 20},
}


def test_a_terminated_user_is_dropped_with_its_last_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {
        "signal_many": SignalBatchResult(missing=["modeldeployment/ml/lost"])
    }
    cache = ModelCacheWorkflow(CacheState(generation=1, spec=SPEC))
    for name in ("lost", "runs"):
        cache.users.register(
            CacheUse(workflow_id=f"modeldeployment/ml/{name}", uid=f"uid of {name}")
        )
    asyncio.run(cache.users.report())
    assert list(cache.state.users) == ["uid of runs"]
    assert list(cache.state.reported) == ["modeldeployment/ml/runs"]


def test_a_cluster_without_a_storage_class_knows_a_cache_that_stages_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")
    image = {"source": "OCI", "oci": {"image": "registry.example/m:1", "sizeGiB": 20}}
    known = []
    for volume in ({}, {"image": True}):
        cache = ModelCacheWorkflow(
            CacheState(generation=1, spec={**image, "volume": volume})
        )
        cache.clusters.reported(a_site(storage_class_name=""))
        known.append(list(cache.state.stagings))
    assert known == [[], ["eu-1"]]


def test_a_replica_without_a_report_gets_it_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its workflow was terminated and started again with the same uid, and so without
    the report.
    """
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {"signal_many": SignalBatchResult()}
    cache = ModelCacheWorkflow(CacheState(generation=1, spec=SPEC))
    told = []
    for is_missing in (True, False, True):
        use = CacheUse(
            workflow_id="modelreplica/ml/a",
            uid="uid",
            cluster="eu-1",
            report_missing=is_missing,
        )
        cache.users.register(use)
        asyncio.run(cache.users.report())
        told.append(len(temporal.executed))
    assert told == [1, 1, 2]


def test_a_deletion_that_waits_for_a_day_queries_its_users_about_once_an_hour(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    answers = {"modelreplica/ml/a": {"gone": False}}
    queried = SurveyResult(answers=answers)
    temporal.results = {"signal_many": SignalBatchResult(), "query_each": queried}
    state = CacheState(
        surveys=1, generation=1, spec=SPEC, deletion_timestamp="2026-01-01T00:00:00Z"
    )
    cache = ModelCacheWorkflow(state)
    use = CacheUse(
        workflow_id="modelreplica/ml/a", uid="uid", cluster="eu-1", claims=["claim"]
    )
    cache.users.register(use)
    ends = temporal.now + timedelta(days=1)
    while temporal.now < ends:
        cache.context.requeue_time = None
        assert not asyncio.run(cache.tear_down())
        assert cache.context.requeue_time is not None
        temporal.now = cache.context.requeue_time
    queries = [name for name, _ in temporal.executed if name == "query_each"]
    assert 24 <= len(queries) <= 30
