"""What a cache carries keeps its names in JSON: a run that was started by an earlier release continues with this one."""

from typing import Any

import pydantic_core

from tests.workflows.model_cache.builders import a_copy, a_site, a_staging, failed, observed
from workflows.entity.failures import Failure
from workflows.model_cache.state import CacheState, PinnedRevision, User

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
    users={"u1": User(workflow_id="ModelReplica/ml/a", cluster="eu-1", claims=["claim-0"], assigned_claim="claim-1")},
    reported={"ModelReplica/ml/a": "digest"},
    announcements=2,
)


def keys(tree: Any) -> set[str]:
    """All names of fields in a JSON document."""
    if isinstance(tree, dict):
        return set(tree).union(*(keys(value) for value in tree.values()))
    return set().union(*(keys(value) for value in tree)) if isinstance(tree, list) else set()


def test_the_state_of_a_cache_is_read_as_it_was_written() -> None:
    assert CacheState.model_validate(pydantic_core.from_json(pydantic_core.to_json(STATE))) == STATE


def test_the_state_of_a_cache_keeps_its_names() -> None:
    tree = pydantic_core.from_json(pydantic_core.to_json(STATE))
    assert {"places", "told", "announced", "unmatchedSince", "given"} <= keys(tree)
    assert {"applied", "digest", "job", "seen", "spent", "missing", "tidy"} <= keys(tree)
    assert tree["places"]["eu-1"]["error"] == ["ClusterUnreachable", "no answer"]
    assert tree["places"]["eu-1"]["site"]["name"] == a_site().name
