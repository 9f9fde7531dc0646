"""The conclusions of a cache from observed volumes and Jobs."""

from datetime import datetime, timedelta

import pytest

from api_types.messages.observations import ObservedCache
from tests.workflows.environment.serverless import Serverless
from tests.workflows.model_cache.builders import (
    DESIRED,
    LATER,
    NOW,
    a_copy,
    a_site,
    a_staging,
    observed,
    ready,
)
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import next_step
from workflows.model_cache.state import CacheState
from workflows.model_cache.workflow import ModelCacheWorkflow


def test_a_bound_volume_and_a_complete_job_make_an_artifact_ready() -> None:
    staging = a_staging(a_copy())
    assert record_observation(staging, observed(job="Complete"), NOW) == []
    assert staging.copies[0].ready_at == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    "what",
    [
        observed(phase="Pending", job="Complete"),
        observed(job="Complete", uid="another"),
        observed(job="Running"),
    ],
)
def test_an_incomplete_artifact_is_not_ready(what: ObservedCache) -> None:
    staging = a_staging(a_copy())
    record_observation(staging, what, NOW)
    assert staging.copies[0].ready_at == ""


@pytest.mark.parametrize("phase", ["", "Lost", "Pending", "Terminating"])
def test_an_artifact_with_a_lost_volume_is_not_ready(
    phase: str,
) -> None:
    staging = a_staging(ready())
    (loss,) = record_observation(staging, observed(phase=phase), NOW)
    assert "is filled again" in loss
    assert (staging.copies[0].ready_at, staging.copies[0].job_uid) == ("", "")


def test_an_observation_older_than_the_last_apply_proves_no_loss() -> None:
    staging = a_staging(ready())
    assert record_observation(staging, observed(phase=""), NOW, fresh=False) == []
    assert staging.copies[0].ready_at


def test_a_failure_is_kept_with_its_reason_and_the_backoff_grows() -> None:
    waits = []
    for attempt in range(1, 8):
        staging = a_staging(a_copy(attempts=attempt))
        record_observation(
            staging,
            observed(job="Failed", exit_code=1, message="the hub answered 503"),
            NOW,
        )
        waits.append(
            (datetime.fromisoformat(staging.copies[0].retry_at) - NOW).total_seconds()
            / 60
        )
        assert staging.copies[0].failed
    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_an_exit_code_reported_after_the_failure_still_counts() -> None:
    staging = a_staging(a_copy())
    record_observation(staging, observed(job="Failed"), NOW)
    record_observation(
        staging,
        observed(job="Failed", exit_code=42, message="gone"),
        NOW + timedelta(seconds=1),
    )
    assert (staging.copies[0].exit_code, staging.copies[0].failure) == (42, "gone")
    assert next_step(staging, DESIRED, frozenset(), LATER) is None


def test_a_job_that_a_user_deleted_is_created_again() -> None:
    staging = a_staging(a_copy())
    record_observation(staging, observed(job="Running"), NOW)
    record_observation(staging, observed(), NOW)
    step = next_step(staging, DESIRED, frozenset(), NOW)
    assert step
    assert (step.kind, step.hydrate) == ("stage", True)


def test_a_job_without_an_observation_does_not_count_as_deleted() -> None:
    staging = a_staging(a_copy())
    record_observation(staging, observed(), NOW)
    assert staging.copies[0].job_uid == "j1"


def test_a_modified_volume_claim_is_applied_again_without_another_download() -> None:
    staging = a_staging(ready())
    record_observation(staging, observed(digest="touched"), NOW)
    step = next_step(staging, DESIRED, frozenset(), NOW)
    assert step
    assert (step.kind, step.hydrate) == ("stage", False)


def test_a_cache_queries_a_registered_cluster_that_a_resync_finds_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Visibility may not list the cache yet when a cluster reports its end."""
    Serverless(monkeypatch, "modelcache/ml/weights")
    stagings = {
        "eu": a_staging(a_copy(), registered=True),
        "gone": a_staging(registered=True, site=a_site(present=False)),
        "us": a_staging(),
    }
    cache = ModelCacheWorkflow(CacheState(stagings=stagings))
    assert cache.receivers() == ["inferencecluster/eu"]
    cache.on_receivers_lost(["inferencecluster/eu"])
    assert [name for name, each in stagings.items() if each.doubted] == ["eu"]


def test_an_unobserved_job_is_applied_in_each_resync_and_an_observed_one_in_the_sixth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Job of a cache that was reset may have ended and be gone."""
    Serverless(monkeypatch, "modelcache/ml/weights")
    unobserved, observed = a_copy(job_observed=False), a_copy(job_observed=True)
    state = CacheState(
        stagings={"eu": a_staging(unobserved), "us": a_staging(observed)}
    )
    cache = ModelCacheWorkflow(state)
    applied = []
    for _ in range(6):
        unobserved.applied_generation = observed.applied_generation = 1
        cache.on_resync()
        applied.append((unobserved.applied_generation, observed.applied_generation))
    assert applied == [(0, 1)] * 5 + [(0, 0)]
