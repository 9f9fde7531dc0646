"""`retry_now` ends every backoff: the next pass runs each waiting attempt.

These tests need no server.
"""

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from api_types.messages.entities import RetryNow
from tests.workflows.environment.serverless import (
    NOW,
    Serverless,
    UnexpectedActivityError,
    id_of,
)
from tests.workflows.inference_cluster.builders import a_cluster
from tests.workflows.model_cache.builders import DESIRED, a_staging, failed
from tests.workflows.model_replica.builders import (
    APPLIED,
    DEPLOYMENT,
    SECRET_COPY,
    a_replica,
)
from workflows.entity.conditions import TRUE, with_condition
from workflows.entity.entity import Entity
from workflows.inference_cluster.workflow import InferenceClusterWorkflow
from workflows.model_cache.plan import next_step
from workflows.model_cache.spec import artifact_of, reference_of
from workflows.model_cache.state import (
    CacheCopy,
    CacheState,
    ClusterStaging,
    PinnedRevision,
)
from workflows.model_cache.workflow import ModelCacheWorkflow
from workflows.model_replica.decisions.plan import decide_apply
from workflows.model_replica.decisions.teardown_plan import decide_step
from workflows.model_replica.state import ModelReplicaState
from workflows.model_replica.workflow import ModelReplicaWorkflow

SOON = (NOW + timedelta(minutes=1)).isoformat()
READY = with_condition(
    [], "Ready", TRUE, "Available", "", now="2026-01-01T00:00:00Z", generation=1
)
CACHE_SPEC = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model", "sizeGiB": 20},
}


@pytest.fixture(autouse=True)
def serverless(monkeypatch: pytest.MonkeyPatch) -> Serverless:
    return Serverless(monkeypatch, id_of("ModelReplica"))


def attempts(step: Callable[[], Coroutine[Any, Any, object]]) -> bool:
    """Return whether a step executes an activity."""
    try:
        asyncio.run(step())
    except UnexpectedActivityError:
        return True
    return False


def a_waiting_replica(**changes: Any) -> ModelReplicaWorkflow:
    return ModelReplicaWorkflow(a_replica(**changes))


def a_waiting_cluster() -> InferenceClusterWorkflow:
    cluster = InferenceClusterWorkflow(a_cluster(connected_generation=1))
    cluster.connection.retry_at = datetime.fromisoformat(SOON)
    return cluster


def a_waiting_cache(staging: ClusterStaging, **fields: Any) -> ModelCacheWorkflow:
    return ModelCacheWorkflow(
        CacheState(generation=1, spec=CACHE_SPEC, stagings={"eu-1": staging}, **fields)
    )


def stages(cache: ModelCacheWorkflow) -> bool:
    return next_step(cache.state.stagings["eu-1"], DESIRED, (), NOW) is not None


def applies(replica: ModelReplicaWorkflow) -> bool:
    return decide_apply(replica.state, NOW).reason is not None


def tears_down(replica: ModelReplicaWorkflow) -> bool:
    return decide_step(replica.state, NOW).action == "attempt"


def prunes(replica: ModelReplicaWorkflow) -> bool:
    return attempts(replica.pruning.step)


def connects(cluster: InferenceClusterWorkflow) -> bool:
    return attempts(cluster.connection.connect)


def resolves(cache: ModelCacheWorkflow) -> bool:
    return attempts(cache.revision.pin)


class Case(NamedTuple):
    """An entity that waits for its next attempt, and whether it would run that attempt now."""

    story: str
    kind: str
    waiting: Callable[[], Entity[Any]]
    attempts_now: Callable[[Any], bool]


def tearing_down() -> ModelReplicaWorkflow:
    replica = a_waiting_replica(
        deletion_timestamp="2026-01-01T00:00:00Z", retry_at=SOON
    )
    replica.state.teardown.number = 7
    return replica


def with_unresolved_revision() -> ModelCacheWorkflow:
    cache = a_waiting_cache(a_staging())
    cache.state.pin = PinnedRevision(
        reference=reference_of(artifact_of("ml", "qwen", cache.state)),
        problem="the hub does not answer",
    )
    return cache


CASES = [
    Case(
        "an apply that failed",
        "ModelReplica",
        lambda: a_waiting_replica(generation=2, retry_at=SOON),
        applies,
    ),
    Case(
        "copies of Secrets that are compared every hour",
        "ModelReplica",
        lambda: a_waiting_replica(
            applied=APPLIED.model_copy(update={"inventory": [DEPLOYMENT, SECRET_COPY]}),
            copies_due="",
        ),
        applies,
    ),
    Case("a step of a teardown that failed", "ModelReplica", tearing_down, tears_down),
    Case(
        "objects of an older generation that are not deleted yet",
        "ModelReplica",
        lambda: a_waiting_replica(conditions=READY, prune=True, prune_at=SOON),
        prunes,
    ),
    Case(
        "a cluster that could not be connected",
        "InferenceCluster",
        a_waiting_cluster,
        connects,
    ),
    Case(
        "a step of a cache that failed",
        "ModelCache",
        lambda: a_waiting_cache(
            a_staging(CacheCopy(artifact_key="key-1", claim="claim-1"), retry_at=SOON)
        ),
        stages,
    ),
    Case(
        "a download that failed",
        "ModelCache",
        lambda: a_waiting_cache(a_staging(failed(retry_at=SOON))),
        stages,
    ),
    Case(
        "a revision that could not be resolved",
        "ModelCache",
        with_unresolved_revision,
        resolves,
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_retry_ends_the_wait_of(serverless: Serverless, case: Case) -> None:
    serverless.workflow_id = id_of(case.kind)
    entity = case.waiting()
    assert not case.attempts_now(entity)
    entity.context.queued = False
    entity.retry_now(RetryNow(by="ann").wire())
    assert entity.context.queued
    assert case.attempts_now(entity)


def test_a_repeated_request_is_no_second_retry() -> None:
    state: ModelReplicaState = a_replica(prune=True, prune_at=SOON, prune_attempts=6)
    replica = ModelReplicaWorkflow(state)
    replica.retry_now(RetryNow(request_id="r1", by="ann").wire())
    state.prune_attempts = 3
    replica.retry_now(RetryNow(request_id="r1", by="ann").wire())
    assert (state.prune_attempts, state.requests) == (3, ["r1"])


def test_after_a_retry_the_next_wait_for_pruning_is_short_again() -> None:
    state: ModelReplicaState = a_replica(prune=True, prune_at=SOON, prune_attempts=6)
    ModelReplicaWorkflow(state).retry_now(RetryNow(by="ann").wire())
    assert (state.prune_at, state.prune_attempts) == ("", 0)
