"""The conclusions of a cache from the result of a step."""

from datetime import datetime

import pytest

from api_types.messages.caches import CacheApplied, EarlierClaim
from tests.workflows.model_cache.builders import (
    DESIRED,
    LATER,
    NOW,
    a_copy,
    a_site,
    a_staging,
    failed,
    observed,
    ready,
)
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import (
    NextStep,
    first_to_stage,
    may_tell_revision,
    next_step,
)
from workflows.model_cache.results import (
    left_behind,
    record_applied,
    record_deleted,
    record_failure,
    record_success,
    update_selection,
)
from workflows.model_cache.state import CacheCopy
from workflows.model_cache.status import phase_of

PULLED = DESIRED._replace(
    by_pods="image",
    exact=True,
    image="registry.example/m@sha256:ab",
    credential="registry",
)
APPLIED = CacheApplied(
    claim="claim-1", artifact_key="key-1", volume_digest="d", job_uid="j2"
)


def test_the_backoff_of_a_cluster_grows_until_a_step_succeeds() -> None:
    staging = a_staging(a_copy())
    waits = []
    for _ in range(3):
        record_failure(staging, Failure("ClusterUnreachable", "no answer"), NOW)
        waits.append((datetime.fromisoformat(staging.retry_at) - NOW).total_seconds())
    assert (waits, staging.errors, staging.error.message) == ([2, 4, 8], 3, "no answer")
    record_success(staging)
    assert (staging.error, staging.errors, staging.retry_at) == (NO_FAILURE, 0, "")


def test_a_step_that_only_a_new_spec_can_fix_is_repeated_after_minutes() -> None:
    staging = a_staging(a_copy())
    record_failure(staging, Failure("InvalidInput", "why"), NOW)
    assert (datetime.fromisoformat(staging.retry_at) - NOW).total_seconds() == 60


def test_another_job_is_another_attempt() -> None:
    copy = failed(attempts=1)
    record_applied(a_staging(copy), copy, 2, APPLIED, NOW, was_clean=True)
    assert (copy.applied_generation, copy.job_uid, copy.attempts, copy.started_at) == (
        2,
        "j2",
        2,
        "2026-01-01T00:00:00Z",
    )
    assert (copy.failed, copy.failure, copy.exit_code) == (False, "", 0)


def test_the_same_job_is_the_same_attempt() -> None:
    copy = a_copy(job_uid="j2", attempts=1)
    record_applied(a_staging(copy), copy, 2, APPLIED, NOW, was_clean=True)
    assert (copy.attempts, copy.started_at) == (1, "")


@pytest.mark.parametrize("was_clean", [True, False])
def test_without_a_credential_no_job_is_made_and_an_earlier_one_stays(
    *, was_clean: bool
) -> None:
    copy = CacheCopy(artifact_key="key-1", claim="claim-1", cleaned_up=False)
    missing = APPLIED.model_copy(
        update={
            "job_uid": "",
            "credential_missing": "no Secret ml/hub",
            "warnings": ["a", "b"],
        }
    )
    record_applied(a_staging(copy), copy, 1, missing, NOW, was_clean=was_clean)
    assert (copy.missing_credential, copy.cleaned_up, copy.attempts, copy.warning) == (
        "no Secret ml/hub",
        was_clean,
        0,
        "a; b",
    )


def test_a_job_observed_before_its_apply_was_answered_counts() -> None:
    copy = a_copy(job_uid="", attempts=0)
    record_applied(
        a_staging(copy, observed=observed(job="Complete", uid="j2")),
        copy,
        1,
        APPLIED,
        NOW,
        was_clean=True,
    )
    assert copy.ready_at == "2026-01-01T00:00:00Z"


def test_a_removed_artifact_is_forgotten_and_a_cleaned_up_one_is_kept() -> None:
    current, old = ready(cleaned_up=False), ready(artifact_key="key-0", claim="claim-0")
    staging = a_staging(current, old)
    record_deleted(staging, NextStep("clean_up", current))
    assert (current.cleaned_up, staging.copies) == (True, [current, old])
    record_deleted(staging, NextStep("remove", old))
    assert staging.copies == [current]


def test_a_forced_deletion_lists_volumes_and_remaining_objects() -> None:
    stagings = {"us-1": a_staging(ready()), "eu-1": a_staging(a_copy(cleaned_up=False))}
    left = left_behind(stagings, "ml", "deletion was forced")
    assert [(item.location, item.kind, item.name) for item in left] == [
        ("eu-1", "Job", "claim-1-hyd"),
        ("eu-1", "Secret", "claim-1-auth"),
        ("eu-1", "PersistentVolumeClaim", "claim-1"),
        ("us-1", "PersistentVolumeClaim", "claim-1"),
    ]
    assert {(item.namespace, item.reason) for item in left} == {
        ("ml", "deletion was forced")
    }


def test_an_artifact_of_an_earlier_cache_is_listed_with_all_that_it_may_have() -> None:
    """No cluster has to know this cache for that."""
    found = CacheCopy(
        artifact_key="", claim="claim-0", cleaned_up=True, owner_uid="earlier"
    )
    left = left_behind({"eu-1": a_staging(found, registered=False)}, "ml", "why")
    assert [(item.kind, item.name) for item in left] == [
        ("Job", "claim-0-hyd"),
        ("Secret", "claim-0-auth"),
        ("PersistentVolumeClaim", "claim-0"),
    ]


def test_an_image_is_ready_at_once_without_a_step_if_it_cannot_be_staged() -> None:
    staging = a_staging(site=a_site(storage_class_name=""))
    update_selection(staging, PULLED, NOW)
    (copy,) = staging.copies
    assert (copy.image, copy.pull_secret, copy.ready_at) == (
        PULLED.image,
        "registry",
        "2026-01-01T00:00:00Z",
    )
    assert next_step(staging, PULLED, frozenset(), NOW) is None
    assert record_observation(staging, observed(phase=""), NOW) == []
    assert copy.ready_at
    assert not may_tell_revision(copy)
    update_selection(staging, PULLED._replace(credential="other"), LATER)
    assert (staging.copies, copy.pull_secret, copy.ready_at) == (
        [copy],
        "other",
        "2026-01-01T00:00:00Z",
    )
    assert left_behind({"eu-1": staging}, "ml", "why") == []


def test_an_image_without_a_digest_is_waited_for_on_all_clusters() -> None:
    staging, unknown = a_staging(), PULLED._replace(exact=False, pinned=False)
    assert first_to_stage({"eu-1": staging}, unknown, NOW) == ""
    update_selection(staging, unknown, NOW)
    assert staging.copies == []


def test_a_volume_is_removed_once_the_image_is_mounted_instead() -> None:
    volume = ready()
    staging = a_staging(volume)
    update_selection(
        staging, PULLED._replace(artifact_key="key-2", claim="claim-2"), NOW
    )
    assert next_step(staging, PULLED, frozenset({"claim-1"}), NOW) is None
    assert next_step(staging, PULLED, frozenset(), NOW) == NextStep(
        "remove", volume, teardown_steps=(1, 2, 3)
    )
    update_selection(staging, DESIRED, NOW)
    assert [copy.image for copy in staging.copies] == ["", PULLED.image]


def test_a_per_pod_volume_is_ready_once_its_revision_is_known() -> None:
    staging, own = a_staging(), DESIRED._replace(by_pods="nodeLocal", exact=True)
    update_selection(staging, own._replace(exact=False, pinned=False), NOW)
    assert staging.copies == []
    update_selection(staging, own, NOW)
    (copy,) = staging.copies
    assert (copy.node_local, copy.image, bool(copy.ready_at)) == (True, "", True)
    assert next_step(staging, own, frozenset(), NOW) is None
    assert (
        phase_of(staging).message
        == "nothing to stage: each pod fills its own volume before its engine starts"
    )


def test_the_access_mode_of_a_volume_is_kept_for_its_users() -> None:
    copy = a_copy()
    record_applied(
        a_staging(copy),
        copy,
        1,
        APPLIED.model_copy(update={"access_mode": "ReadWriteOnce"}),
        NOW,
        was_clean=True,
    )
    assert copy.access_mode == "ReadWriteOnce"


def test_an_apply_finds_artifacts_of_earlier_runs_besides_its_own() -> None:
    current, older = a_copy(), ready(artifact_key="key-2", claim="claim-2")
    staging = a_staging(current, older, CacheCopy(claim="gone", owner_uid="u0"))
    found = {"claim-0": "u0", "claim-2": "u1"}
    earlier = [EarlierClaim(claim=claim, uid=uid) for claim, uid in found.items()]
    applied = CacheApplied(
        claim="claim-1", artifact_key="key-1", volume_digest="d", earlier=earlier
    )
    record_applied(staging, current, 1, applied, NOW, was_clean=True)
    assert staging.copies == [
        current,
        older,
        CacheCopy(claim="claim-0", owner_uid="u0"),
    ]
    assert staging.published is older
