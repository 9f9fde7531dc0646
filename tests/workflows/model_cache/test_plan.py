"""The next step of a cache on a cluster: tables over pure functions."""

from datetime import datetime, timedelta
from typing import Any, NamedTuple

import pytest

from tests.workflows.model_cache.builders import (
    DESIRED,
    LATER,
    NOW,
    a_copy,
    a_site,
    a_staging,
    failed,
    ready,
)
from workflows.model_cache.plan import must_remove, next_check, next_step
from workflows.model_cache.results import reset_backoff, update_selection
from workflows.model_cache.spec import DesiredStaging
from workflows.model_cache.state import CacheCopy, ClusterStaging

EARLIER = CacheCopy(claim="claim-0", owner_uid="u0")


class Case(NamedTuple):
    """A staging and the expected next step: its kind, claim and content."""

    story: str
    staging: ClusterStaging
    step: tuple[str, str, Any] | None
    used: frozenset[str] = frozenset()
    desired: DesiredStaging = DESIRED
    now: datetime = NOW


OLD = ready(artifact_key="key-0", claim="claim-0")
CASES = [
    Case(
        "an empty cluster is given the volume and a Job",
        a_staging(CacheCopy(artifact_key="key-1", claim="claim-1")),
        ("stage", "claim-1", True),
    ),
    Case(
        "without its credential only the volume is kept",
        a_staging(a_copy(job_uid="", missing_credential="no Secret")),
        None,
    ),
    Case("a download that is under way is left alone", a_staging(a_copy()), None),
    Case(
        "once staged, Job and credential are deleted",
        a_staging(ready(cleaned_up=False)),
        ("clean_up", "claim-1", (1, 2)),
    ),
    Case("a staged artifact stays, though its Job is gone", a_staging(ready()), None),
    Case(
        "a failed attempt keeps its Job, for the log, but not its token",
        a_staging(failed(cleaned_up=False)),
        ("clean_up", "claim-1", (2,)),
    ),
    Case("a failed download waits for its backoff", a_staging(failed()), None),
    Case(
        "and is then repeated",
        a_staging(failed()),
        ("stage", "claim-1", True),
        now=LATER,
    ),
    *(
        Case(
            f"exit code {code} is final",
            a_staging(failed(code)),
            None,
            now=LATER,
        )
        for code in (41, 42, 43)
    ),
    Case(
        "as many attempts as allowed are enough",
        a_staging(failed(attempts=3), site=a_site(attempts_max=3)),
        None,
        now=LATER,
    ),
    Case(
        "one attempt fewer is not",
        a_staging(failed(attempts=2), site=a_site(attempts_max=3)),
        ("stage", "claim-1", True),
        now=LATER,
    ),
    Case(
        "a new generation is applied without another download",
        a_staging(ready(applied_generation=0)),
        ("stage", "claim-1", False),
    ),
    Case(
        "a new generation does not disturb a download",
        a_staging(a_copy(applied_generation=0)),
        ("stage", "claim-1", True),
    ),
    Case(
        "an old volume in use stays besides the new one",
        a_staging(ready(), OLD),
        None,
        used=frozenset({"claim-0"}),
    ),
    Case(
        "an old volume is removed when the new one is complete and no pod mounts it",
        a_staging(ready(), OLD),
        ("remove", "claim-0", (1, 2, 3)),
    ),
    Case(
        "until then new replicas mount it",
        a_staging(a_copy(), OLD),
        None,
    ),
    Case(
        "an artifact of an earlier run is removed when the new one is complete",
        a_staging(ready(), EARLIER),
        ("remove", "claim-0", (1, 2, 3)),
    ),
    Case(
        "until then pods may mount the artifact of an earlier run",
        a_staging(a_copy(), EARLIER),
        None,
    ),
    Case(
        "an artifact that was never complete is removed at once",
        a_staging(a_copy(), a_copy(artifact_key="key-0", claim="claim-0")),
        ("remove", "claim-0", (1, 2, 3)),
    ),
    Case(
        "a storage class that disappears costs nothing",
        a_staging(ready(applied_generation=0), site=a_site(storage_class_name="")),
        None,
    ),
    Case(
        "a cluster without a connection is waited for",
        a_staging(ready(cleaned_up=False), site=a_site(connection=None)),
        None,
    ),
    Case(
        "a step that failed waits for its backoff",
        a_staging(ready(cleaned_up=False), retry_at="2026-01-01T00:00:10+00:00"),
        None,
    ),
    Case(
        "an unselected cluster keeps a mounted volume",
        a_staging(ready(), unselected_since="2025-12-31T00:00:00Z"),
        None,
        used=frozenset({"claim-1"}),
    ),
    Case(
        "and an unmounted volume until the grace period ends",
        a_staging(ready(), unselected_since="2025-12-31T23:59:00Z"),
        None,
    ),
    Case(
        "and then it is removed",
        a_staging(ready(), unselected_since="2025-12-31T23:50:00Z"),
        ("remove", "claim-1", (1, 2, 3)),
    ),
    Case(
        "nothing is applied to a cluster that is no longer selected",
        a_staging(
            a_copy(applied_generation=0), unselected_since="2025-12-31T23:59:00Z"
        ),
        None,
    ),
    Case(
        "all is removed from a cluster that is being deleted",
        a_staging(ready(), site=a_site(deleting=True)),
        ("remove", "claim-1", (1, 2, 3)),
    ),
    Case(
        "but not while a pod mounts the volume there",
        a_staging(ready(), site=a_site(deleting=True)),
        None,
        used=frozenset({"claim-1"}),
    ),
    Case(
        "a deleted cache is removed, the oldest volume first",
        a_staging(ready(), OLD),
        ("remove", "claim-0", (1, 2, 3)),
        desired=DESIRED._replace(deleting=True),
    ),
    Case(
        "but no volume that is mounted",
        a_staging(ready()),
        None,
        used=frozenset({"claim-1"}),
        desired=DESIRED._replace(deleting=True),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_the_next_step_on_a_cluster(case: Case) -> None:
    step = next_step(case.staging, case.desired, case.used, case.now)
    assert (
        step
        and (
            step.kind,
            step.copy.claim,
            step.hydrate if step.kind == "stage" else step.teardown_steps,
        )
    ) == case.step


def test_nothing_is_staged_on_a_cluster_without_a_storage_class() -> None:
    staging = a_staging(site=a_site(storage_class_name=""))
    update_selection(staging, DESIRED, NOW)
    assert (staging.copies, staging.can_stage) == ([], False)


def test_a_storage_class_in_the_spec_needs_none_of_the_cluster() -> None:
    staging = a_staging(site=a_site(storage_class_name=""))
    named = DESIRED._replace(volume_class="fast-ssd")
    update_selection(staging, named, NOW)
    assert (staging.storage_class, [copy.claim for copy in staging.copies]) == (
        "fast-ssd",
        ["claim-1"],
    )
    step = next_step(staging, named, (), NOW)
    assert step
    assert step.kind == "stage"
    update_selection(staging, DESIRED, NOW)
    assert staging.storage_class == ""


def test_a_new_artifact_is_staged_besides_the_old_one_and_a_revert_finds_the_old_one() -> (
    None
):
    staging = a_staging(ready())
    update_selection(
        staging, DESIRED._replace(artifact_key="key-2", claim="claim-2"), NOW
    )
    assert [copy.claim for copy in staging.copies] == ["claim-2", "claim-1"]
    assert staging.published is staging.copies[1]
    update_selection(staging, DESIRED, NOW)
    assert [copy.claim for copy in staging.copies] == ["claim-1", "claim-2"]


def test_the_grace_period_lasts_while_the_selector_does_not_match() -> None:
    staging = a_staging(ready(), site=a_site(labels={}))
    update_selection(staging, DESIRED, NOW)
    assert next_check(staging, frozenset(), NOW) == NOW + timedelta(seconds=600)
    assert next_check(staging, frozenset({"claim-1"}), NOW) is None
    assert must_remove(staging, DESIRED, frozenset(), NOW + timedelta(seconds=600))
    # A cluster without a connection reports when it has one. Nothing is due until then.
    assert next_check(staging, frozenset(), NOW + timedelta(seconds=600)) is None
    staging.site = a_site()
    update_selection(staging, DESIRED, LATER)
    assert (staging.unselected_since, next_check(staging, frozenset(), NOW)) == (
        "",
        None,
    )


def test_a_failed_download_is_checked_when_its_backoff_ends() -> None:
    assert next_check(a_staging(failed()), frozenset(), NOW) == NOW + timedelta(
        minutes=1
    )
    assert next_check(a_staging(failed(42)), frozenset(), NOW) is None


def test_a_reset_repeats_even_a_permanently_failed_download() -> None:
    copy = failed(42, attempts=9)
    reset_backoff(copy)
    assert next_step(a_staging(copy), DESIRED, frozenset(), NOW) is not None
