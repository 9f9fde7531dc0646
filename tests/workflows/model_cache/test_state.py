"""The state that a cache carries to its next run."""

import pydantic_core

from tests.workflows.model_cache.builders import (
    a_copy,
    a_staging,
    failed,
    observed,
)
from workflows.entity.failures import Failure
from workflows.model_cache.state import CacheState, CacheUser, PinnedRevision

STATE = CacheState(
    pin=PinnedRevision(reference="r", revision="c1"),
    stagings={
        "eu-1": a_staging(
            failed(missing_credential="no Secret", cleaned_up=False, job_observed=True),
            a_copy(),
            observed=observed(job="Failed"),
            error=Failure("ClusterUnreachable", "no answer"),
            unselected_since="2026-01-01T00:00:00Z",
        )
    },
    users={
        "u1": CacheUser(
            workflow_id="ModelReplica/ml/a",
            cluster="eu-1",
            claims=["claim-0"],
            assigned_claim="claim-1",
        )
    },
    reported={"ModelReplica/ml/a": "digest"},
    announcements=2,
)


def test_the_state_of_a_cache_survives_serialization() -> None:
    assert (
        CacheState.model_validate(pydantic_core.from_json(pydantic_core.to_json(STATE)))
        == STATE
    )
