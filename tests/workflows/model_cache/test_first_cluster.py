"""A cache with an unresolved reference.

One cluster stages it first, and the other clusters stage the commit found in its
volume.
"""

from datetime import timedelta

import pytest

from tests.workflows.model_cache.builders import (
    DESIRED,
    NOW,
    a_copy,
    a_site,
    a_staging,
    failed,
    observed,
    ready,
)
from workflows.entity.context import EntityContext
from workflows.entity.failures import Failure
from workflows.model_cache.observation import record_observation
from workflows.model_cache.plan import (
    FIRST_CLUSTER_TURN,
    first_to_stage,
    next_check,
    next_step,
)
from workflows.model_cache.results import begin_turn, update_selection
from workflows.model_cache.revision import RevisionResolver
from workflows.model_cache.spec import (
    artifact_of,
    desired_staging,
    key_of,
    reference_of,
)
from workflows.model_cache.state import (
    CacheCopy,
    CacheState,
    ClusterStaging,
    PinnedRevision,
)

COMMIT = "1" * 40
DIGEST = f"sha256:{'2' * 64}"
WRITTEN = DESIRED._replace(pinned=False, revision="main")
READY_AT = "2026-01-01T00:00:00Z"


def fleet(**stagings: ClusterStaging) -> dict[str, ClusterStaging]:
    """Return clusters of the gold tier by name."""
    for name, staging in stagings.items():
        staging.site = staging.site.model_copy(update={"name": name})
    return stagings


def literal(**fields: object) -> CacheCopy:
    return a_copy(**{"literal": True, **fields})


CASES = [
    ("the first by name", fleet(b=a_staging(), a=a_staging()), "a"),
    (
        "a cluster that can stage",
        fleet(a=a_staging(site=a_site(storage_class_name="")), b=a_staging()),
        "b",
    ),
    (
        "a cluster that the selector matches",
        fleet(a=a_staging(site=a_site(labels={})), b=a_staging()),
        "b",
    ),
    ("the cluster that has started", fleet(a=a_staging(), b=a_staging(literal())), "b"),
    (
        "another one when its download failed",
        fleet(a=a_staging(failed(literal=True)), b=a_staging()),
        "b",
    ),
    (
        "a retryable cluster before a permanently failed one",
        fleet(a=a_staging(failed(42, literal=True)), b=a_staging(failed(1))),
        "b",
    ),
    ("none to wait for", fleet(a=a_staging(site=a_site(storage_class_name=""))), ""),
    (
        "the complete one, whose pod is observed in a moment",
        fleet(a=a_staging(), b=a_staging(ready(literal=True))),
        "b",
    ),
    (
        "none, if a volume of an earlier release has no commit",
        fleet(a=a_staging(), b=a_staging(ready())),
        "",
    ),
]


@pytest.mark.parametrize(
    ("stagings", "expected"),
    [case[1:] for case in CASES],
    ids=[case[0] for case in CASES],
)
def test_the_choice_of_the_first_cluster(
    stagings: dict[str, ClusterStaging], expected: str
) -> None:
    assert first_to_stage(stagings, WRITTEN, NOW) == expected
    assert first_to_stage(stagings, DESIRED, NOW) == "", (
        "a pinned revision is staged everywhere at once"
    )
    assert first_to_stage(stagings, WRITTEN._replace(deleting=True), NOW) == ""


def test_a_volume_without_a_commit_delays_no_cluster() -> None:
    clusters = fleet(a=a_staging(), b=a_staging(ready(literal=True)))
    assert first_to_stage(clusters, WRITTEN, NOW + timedelta(seconds=30)) == ""


def test_another_cluster_stages_nothing_and_needs_no_timer() -> None:
    for staging in (a_staging(), a_staging(failed(literal=True))):
        before = list(staging.copies)
        update_selection(staging, WRITTEN, NOW, "us-1")
        assert (staging.awaits, staging.copies) == ("us-1", before)
        assert (
            next_step(staging, WRITTEN, frozenset(), NOW + timedelta(hours=1)) is None
        )
        assert next_check(staging, frozenset(), NOW) is None
    update_selection(staging, WRITTEN, NOW, "eu-1")
    assert staging.awaits == ""
    assert next_step(staging, WRITTEN, frozenset(), NOW + timedelta(hours=1))


def test_the_first_cluster_stages_the_reference_as_it_is_written() -> None:
    staging = a_staging()
    update_selection(staging, WRITTEN, NOW, "eu-1")
    assert [(copy.literal, copy.revision) for copy in staging.copies] == [
        (True, "main")
    ]
    update_selection(other := a_staging(), DESIRED, NOW)
    assert [(copy.literal, copy.revision) for copy in other.copies] == [(False, "c1")]


def test_the_commit_of_a_complete_job_is_recorded_even_if_its_pod_is_observed_later() -> (
    None
):
    staging = a_staging(literal(cleaned_up=False))
    (copy,) = staging.copies
    record_observation(staging, observed(job="Complete"), NOW)
    assert (copy.ready_at, copy.commit) == (READY_AT, "")
    assert next_step(staging, WRITTEN, frozenset(), NOW) is None, (
        "the Job stays until its pod has said it"
    )
    assert next_check(staging, frozenset(), NOW) == NOW + timedelta(seconds=30)
    record_observation(staging, observed(job="Complete", commit=COMMIT), NOW)
    assert copy.commit == COMMIT
    step = next_step(staging, WRITTEN, frozenset(), NOW)
    assert step
    assert step.kind == "clean_up"


def test_the_volume_of_the_first_cluster_counts_for_the_pinned_revision() -> None:
    staging = a_staging(ready(literal=True, commit=COMMIT, pinned_key="key-of-commit"))
    update_selection(
        staging,
        DESIRED._replace(
            artifact_key="key-of-commit", claim="claim-2", revision=COMMIT
        ),
        NOW,
    )
    assert [copy.claim for copy in staging.copies] == ["claim-1"]


def test_a_lost_volume_of_the_first_cluster_is_filled_with_the_pinned_revision() -> (
    None
):
    staging = a_staging(ready(literal=True, commit=COMMIT, pinned_key="key-of-commit"))
    assert record_observation(staging, observed(phase=""), NOW)
    update_selection(
        staging,
        DESIRED._replace(
            artifact_key="key-of-commit", claim="claim-2", revision=COMMIT
        ),
        NOW,
    )
    assert [(copy.claim, copy.literal) for copy in staging.copies] == [
        ("claim-2", False),
        ("claim-1", True),
    ]


def firsts(stagings: dict[str, ClusterStaging], hours: int) -> list[str]:
    """Return the first cluster of each hour."""
    found = []
    for passed in range(hours):
        now = NOW + passed * FIRST_CLUSTER_TURN
        found.append(first_to_stage(stagings, WRITTEN, now))
        begin_turn(stagings, found[-1], now)
    return found


def test_the_turn_passes_to_the_next_cluster_when_a_download_never_ends() -> None:
    stuck = a_staging(literal(), error=Failure("ClusterUnreachable", "silence"))
    assert firsts(fleet(a=stuck, b=a_staging(), c=a_staging()), 6) == [
        "a",
        "b",
        "c",
        "a",
        "b",
        "c",
    ]


def test_the_turn_of_the_first_cluster_is_not_restarted_by_each_pass() -> None:
    clusters = fleet(a=a_staging(), b=a_staging())
    for minutes in (0, 1, 59):
        now = NOW + timedelta(minutes=minutes)
        assert first_to_stage(clusters, WRITTEN, now) == "a"
        begin_turn(clusters, "a", now)
    assert first_to_stage(clusters, WRITTEN, NOW + timedelta(minutes=60)) == "b"


def test_a_cluster_whose_download_failed_in_its_turn_may_have_another_turn() -> None:
    clusters = fleet(a=a_staging(), b=a_staging())
    begin_turn(clusters, first_to_stage(clusters, WRITTEN, NOW), NOW)
    clusters["a"].copies = [failed(literal=True)]
    assert first_to_stage(clusters, WRITTEN, NOW + timedelta(minutes=1)) == "b"
    begin_turn(clusters, "b", NOW + timedelta(minutes=1))
    assert (clusters["a"].turn_began, clusters["b"].turn_began) == (
        "",
        "2026-01-01T00:01:00Z",
    )


def test_turns_are_forgotten_when_the_revision_is_known() -> None:
    clusters = fleet(a=a_staging(), b=a_staging())
    assert firsts(clusters, 2) == ["a", "b"]
    later = NOW + 5 * FIRST_CLUSTER_TURN
    begin_turn(clusters, first_to_stage(clusters, DESIRED, later), later)
    assert [each.turn_began for each in clusters.values()] == ["", ""]


def test_a_former_first_cluster_continues_and_may_report_the_revision_too() -> None:
    staging = a_staging(literal())
    update_selection(staging, WRITTEN, NOW, "us-1")
    assert next_step(staging, WRITTEN, frozenset(), NOW) is None
    record_observation(staging, observed(job="Complete", commit=COMMIT), NOW)
    assert (staging.copies[0].ready_at, staging.copies[0].commit) == (READY_AT, COMMIT)


SOURCES: dict[str, tuple[dict[str, object], str]] = {
    "HuggingFace": (
        {
            "source": "HuggingFace",
            "huggingFace": {"repo": "acme/m", "revision": "main", "sizeGiB": 1},
        },
        COMMIT,
    ),
    "OCI": (
        {"source": "OCI", "oci": {"image": "registry.example/m:1", "sizeGiB": 1}},
        DIGEST,
    ),
    "S3": (
        {
            "source": "S3",
            "s3": {"bucket": "models", "region": "eu-central-1", "sizeGiB": 1},
        },
        DIGEST,
    ),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("said", [COMMIT, DIGEST])
def test_an_invalid_revision_is_pinned_for_no_cluster(source: str, said: str) -> None:
    """A cluster reports its volume's revision.

    All others must stage that revision, and could not even parse it.
    """
    spec, possible = SOURCES[source]
    state = CacheState(uid="u", spec=spec)
    written = key_of("ml", "m", state)
    state.stagings = fleet(
        a=a_staging(ready(literal=True, artifact_key=written, commit=said)),
        b=a_staging(),
    )
    state.pin = PinnedRevision(
        reference=reference_of(artifact_of("ml", "m", state)),
        problem="refused",
        final=True,
    )
    context = EntityContext(
        "ModelCache",
        state,
        lambda: None,
        "ModelCache/ml/m",
        lambda: NOW + timedelta(minutes=5),
    )
    RevisionResolver(context).learn()
    assert state.pin.revision == (said if said == possible else "")
    desired = desired_staging("ml", "m", state)
    assert desired
    assert first_to_stage(state.stagings, desired, context.moment()) == "", (
        "no other cluster waits for it"
    )
