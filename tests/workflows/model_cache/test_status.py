"""The status of a cache: tables over pure functions."""

import pytest

from tests.workflows.model_cache.builders import (
    DESIRED,
    a_copy,
    a_site,
    a_staging,
    failed,
    observed,
    ready,
)
from workflows.entity.failures import Failure
from workflows.model_cache.state import CacheState, ClusterStaging, PinnedRevision
from workflows.model_cache.status import (
    ClusterPhase,
    artifact_verdict,
    cluster_phases,
    matched_verdict,
    no_clusters,
    phase_of,
    ready_verdict,
    removal_progress,
    revision_verdict,
    status_fields,
    unresolved,
)

PHASES = [
    (
        "nothing yet",
        a_staging(),
        "Pending",
        "the revision is being resolved: see RevisionPinned",
    ),
    (
        "another cluster is first",
        a_staging(awaits="us-1"),
        "Pending",
        "waits for us-1: all clusters stage the revision of its volume",
    ),
    (
        "staged before another was first",
        a_staging(ready(), awaits="us-1"),
        "Ready",
        "",
    ),
    ("no claim seen", a_staging(a_copy()), "Pending", "waits for its volume claim"),
    (
        "claim not bound, no Job",
        a_staging(a_copy(job_uid=""), observed=observed(phase="Pending")),
        "Pending",
        "which is Pending",
    ),
    (
        "claim bound, Job running",
        a_staging(a_copy(), observed=observed(job="Running")),
        "Hydrating",
        "",
    ),
    (
        "claim waits for its first consumer",
        a_staging(a_copy(), observed=observed(phase="Pending", job="Running")),
        "Hydrating",
        "first consumer of its volume: volume claim claim-1 of storage class rwx is not bound",
    ),
    (
        "a pod that waits for the claim",
        a_staging(
            a_copy(),
            observed=observed(
                phase="Pending", job="Running", blocker="unbound PersistentVolumeClaims"
            ),
        ),
        "Hydrating",
        "unbound PersistentVolumeClaims; volume claim claim-1 of storage class rwx is not bound",
    ),
    (
        "its pod cannot run",
        a_staging(a_copy(), observed=observed(job="Running", blocker="no room")),
        "Hydrating",
        "no room",
    ),
    (
        "no token",
        a_staging(
            a_copy(job_uid="", missing_credential="no Secret"), observed=observed()
        ),
        "Hydrating",
        "no Secret",
    ),
    (
        "failed",
        a_staging(failed()),
        "Failed",
        "exit code 1: why (next attempt at 2026-01-01T00:01:00Z)",
    ),
    (
        "failed for good",
        a_staging(failed(43)),
        "Failed",
        "exit code 43: why (no further attempt until the spec or the credential changes)",
    ),
    ("staged", a_staging(ready()), "Ready", ""),
    (
        "staged, and the storage class is gone",
        a_staging(ready(), site=a_site(storage_class_name="")),
        "Ready",
        "no storage class",
    ),
    (
        "the cluster does not answer",
        a_staging(a_copy(), error=Failure("ClusterUnreachable", "silence")),
        "Pending",
        "ClusterUnreachable: silence",
    ),
    (
        "an image without its digest",
        a_staging(by_pods=True),
        "Pending",
        "waits for the revision that all pods get",
    ),
    (
        "an image, without a storage class",
        a_staging(
            ready(image="r/m@sha256:a"),
            by_pods=True,
            site=a_site(storage_class_name=""),
        ),
        "Ready",
        "nothing to stage: nodes pull r/m@sha256:a",
    ),
    (
        "a volume that cannot grow",
        a_staging(ready(warning="ExpansionUnsupported: no")),
        "Ready",
        "ExpansionUnsupported",
    ),
]


@pytest.mark.parametrize(
    ("story", "staging", "phase", "message"), PHASES, ids=[row[0] for row in PHASES]
)
def test_the_phase_of_a_cluster_and_its_message(
    story: str, staging: ClusterStaging, phase: str, message: str
) -> None:
    found, text = phase_of(staging)
    assert found == phase, story
    assert message in text if message else text == ""


def test_a_cluster_shows_why_the_revision_is_not_resolved() -> None:
    assert (
        phase_of(a_staging(), "hub: 503").message
        == "the revision is being resolved: hub: 503"
    )
    assert (
        phase_of(a_staging(by_pods=True), "hub: 503").message
        == "waits for the revision that all pods get: hub: 503"
    )
    (phase,) = cluster_phases(
        [a_staging()], {}, unresolved(PinnedRevision(reference="r", problem="hub: 503"))
    )
    assert phase.message == "the revision is being resolved: hub: 503"
    assert len(phase_of(a_staging(), "x" * 5000).message) <= 1024
    assert unresolved(None) == ""
    assert (
        unresolved(PinnedRevision(reference="r", revision="c1", problem="hub: 503"))
        == ""
    )


def test_a_long_failure_is_truncated_to_one_kib() -> None:
    _, text = phase_of(a_staging(failed(1, failure="x" * 5000)))
    assert len(text.encode()) <= 1024
    assert text.endswith("(next attempt at 2026-01-01T00:01:00Z)")


LITERAL = (
    "one cluster stages the reference of the spec, "
    "and all others stage the revision that it finds"
)


def a_phase(
    name: str, phase: str, message: str = "", *, selected: bool = True
) -> ClusterPhase:
    return ClusterPhase(name, phase, message, selected)


VERDICTS = [
    (
        "no clusters, and no token is needed",
        [],
        "no Secret",
        ("False", "NoClusters"),
    ),
    (
        "no cluster that counts",
        [a_phase("eu", "Ready", selected=False)],
        "",
        ("False", "NoClusters"),
    ),
    (
        "all staged",
        [a_phase("eu", "Ready"), a_phase("us", "Ready")],
        "",
        ("True", "Staged"),
    ),
    (
        "all staged, though the token is missing",
        [a_phase("eu", "Ready")],
        "no Secret",
        ("True", "Staged"),
    ),
    (
        "a token is missing",
        [a_phase("eu", "Ready"), a_phase("us", "Hydrating")],
        "no Secret",
        ("False", "AuthSecretMissing"),
    ),
    (
        "one failed",
        [a_phase("eu", "Ready"), a_phase("us", "Failed", "why")],
        "",
        ("False", "Failed"),
    ),
    (
        "some staged",
        [a_phase("eu", "Ready"), a_phase("us", "Hydrating")],
        "",
        ("False", "Partial"),
    ),
    (
        "none staged",
        [a_phase("eu", "Pending"), a_phase("us", "Hydrating")],
        "",
        ("False", "Hydrating"),
    ),
]


@pytest.mark.parametrize(
    ("story", "found", "missing", "verdict"), VERDICTS, ids=[row[0] for row in VERDICTS]
)
def test_the_condition_of_the_artifact(
    story: str, found: list[ClusterPhase], missing: str, verdict: tuple[str, str]
) -> None:
    assert artifact_verdict(found, missing)[:2] == verdict, story


def test_the_summary_counts_the_selected_clusters() -> None:
    gone = a_staging(ready(), site=a_site("uk-1", labels={}))
    stagings = [
        a_staging(ready()),
        a_staging(a_copy(), site=a_site("us-1"), observed=observed(job="Running")),
        gone,
    ]
    found = cluster_phases(stagings, DESIRED.match_labels)
    state = CacheState(
        stagings={each.site.name: each for each in stagings},
        pin=PinnedRevision(reference="r", revision="c1"),
    )
    status = status_fields(state, found, ["uk-1"])
    assert status["summary"] == {"ready": "1/2"}
    assert artifact_verdict(found, "")[1:] == (
        "Partial",
        "1 of 2 clusters are staged; us-1: Hydrating",
    )
    assert [
        (row["name"], row["phase"], row.get("retained", False))
        for row in status["clusters"]
    ] == [
        ("eu-1", "Ready", False),
        ("us-1", "Hydrating", False),
        ("uk-1", "Ready", True),
    ]
    assert status["resolvedRevision"] == "c1"


NOT_CONNECTED = "is not connected"
GOLD: dict[str, object] = {
    "clusterSelector": {"matchLabels": {"tier": "gold", "region": "eu"}}
}


@pytest.mark.parametrize(
    ("state", "why"),
    [
        (
            CacheState(spec=GOLD),
            "no InferenceCluster has the labels of clusterSelector: region=eu, tier=gold",
        ),
        (CacheState(spec={}), "there is no InferenceCluster"),
        (
            CacheState(
                spec=GOLD,
                unready={
                    "us": "reports no storage class for caches",
                    "eu": NOT_CONNECTED,
                },
            ),
            (
                "nothing can be staged on the clusters that clusterSelector matches: "
                "InferenceCluster eu is not connected; "
                "InferenceCluster us reports no storage class for caches"
            ),
        ),
    ],
    ids=["no cluster matches", "no cluster at all", "those that match cannot"],
)
def test_a_cache_without_clusters_shows_whether_its_selector_or_the_clusters_are_the_cause(
    state: CacheState, why: str
) -> None:
    assert no_clusters(state) == why
    assert matched_verdict([], why) == ("False", "NoClusters", why)
    assert artifact_verdict([], "", why) == ("False", "NoClusters", why)
    assert (
        ready_verdict(artifact_verdict([], "", why), was_ready=False).message
        == f"NoClusters: {why}"
    )
    assert matched_verdict([a_phase("eu", "Pending")], why) == (
        "True",
        "Matched",
        "1 clusters",
    )


def test_of_many_clusters_that_cannot_stage_some_are_named() -> None:
    why = no_clusters(
        CacheState(
            spec=GOLD, unready={f"eu-{number}": NOT_CONNECTED for number in range(7)}
        )
    )
    assert why.endswith("InferenceCluster eu-4 is not connected; 2 more")


@pytest.mark.parametrize(
    ("pin", "verdict"),
    [
        pytest.param(
            PinnedRevision(reference="r", revision="c1"),
            ("True", "Resolved", "c1"),
            id="pinned",
        ),
        pytest.param(
            PinnedRevision(
                reference="r",
                problem="silence",
                errors=2,
                retry_at="2026-01-01T00:01:00Z",
            ),
            (
                "False",
                "Unresolved",
                (
                    "silence; nothing is staged before attempt 3 of 7; resolved again at "
                    "2026-01-01T00:01:00Z"
                ),
            ),
            id="not known yet",
        ),
        pytest.param(
            PinnedRevision(reference="r", problem="no", errors=1, final=True),
            ("False", "Unresolved", f"no; {LITERAL}"),
            id="refused",
        ),
        pytest.param(
            PinnedRevision(reference="r", problem="silence", errors=7),
            ("False", "Unresolved", f"silence; {LITERAL}"),
            id="not known",
        ),
        pytest.param(
            PinnedRevision(reference="r", revision="c1", problem="silence"),
            ("False", "Unresolved", "silence; revision c1 is kept"),
            id="not renewed",
        ),
    ],
)
def test_the_condition_of_the_revision(
    pin: PinnedRevision, verdict: tuple[str, str, str]
) -> None:
    assert revision_verdict(pin) == verdict


def test_the_removal_names_its_clusters_and_obstacles() -> None:
    stagings = [
        a_staging(),
        a_staging(site=a_site("uk-1", connection=None)),
        a_staging(
            site=a_site("us-1", connection=None),
            error=Failure("ClusterUnreachable", "silence"),
        ),
    ]
    assert removal_progress(stagings) == (
        "removing Job, credential and volume from eu-1; uk-1 (not connected); us-1 "
        "(ClusterUnreachable: silence)"
    )
