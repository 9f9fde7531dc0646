"""Events of a cache count the selected clusters. These tests need no server."""

import pytest

from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_cache.builders import a_copy, a_site, a_staging, ready
from workflows.model_cache.state import CacheState, ClusterStaging
from workflows.model_cache.workflow import ModelCacheWorkflow

SPEC = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model"},
    "clusterSelector": {"matchLabels": {"tier": "gold"}},
}
UNSELECTED = a_staging(
    ready(),
    site=a_site("us-1", labels={"tier": "iron"}),
    unselected_since="2026-01-01T00:00:00Z",
)


@pytest.fixture(autouse=True)
def serverless(monkeypatch: pytest.MonkeyPatch) -> Serverless:
    return Serverless(monkeypatch, "modelcache/ml/qwen")


def a_cache(**stagings: ClusterStaging) -> ModelCacheWorkflow:
    return ModelCacheWorkflow(CacheState(generation=1, spec=SPEC, stagings=stagings))


def updated(cache: ModelCacheWorkflow) -> list[tuple[str, str]]:
    """Return the events after another pass."""
    cache.update_conditions("example/model")
    return [(event.reason, event.message) for event in cache.state.events]


def test_an_unselected_cluster_counts_neither_as_staging_nor_as_staged() -> None:
    cache = a_cache(eu=a_staging(a_copy()), us=UNSELECTED)
    begun = ("Staging", "Staging example/model to 1 clusters: eu-1")
    assert updated(cache) == [begun]
    cache.state.stagings["eu"].copies = [ready()]
    assert updated(cache) == [
        begun,
        ("Staged", "example/model is staged on all 1 clusters"),
    ]


def test_staging_is_announced_when_there_is_a_cluster_to_stage_on() -> None:
    cache = a_cache(us=UNSELECTED)
    assert [reason for reason, _ in updated(cache)] == ["NoClusters"]
    cache.state.stagings["eu"] = a_staging(a_copy())
    assert [reason for reason, _ in updated(cache)] == ["NoClusters", "Staging"]
    assert [reason for reason, _ in updated(cache)] == ["NoClusters", "Staging"]
