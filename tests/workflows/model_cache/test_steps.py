"""The clusters that a pass of a cache waits for, and the end of each wait.

These tests need no server.
"""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta

import pytest

from activities.messaging.messages import Survey, SurveyResult
from api_types.messages.caches import (
    CacheApplied,
    CacheObjectsDeleted,
    EarlierClaim,
)
from api_types.messages.delivery import SignalBatchResult
from api_types.messages.entities import SecretsChanged
from api_types.messages.observations import Observed
from api_types.messages.versions import MessageVersion, ObservationOrder
from tests.workflows.environment.serverless import NOW, Serverless
from tests.workflows.model_cache.builders import (
    DESIRED,
    a_copy,
    a_site,
    a_staging,
    failed,
    observed,
    ready,
)
from workflows.entity.conditions import condition_of
from workflows.model_cache import clusters
from workflows.model_cache.plan import NextStep, next_step
from workflows.model_cache.spec import nothing_staged
from workflows.model_cache.state import (
    CacheCopy,
    CacheState,
    CacheUser,
    ClusterStaging,
    PinnedRevision,
)
from workflows.model_cache.workflow import ModelCacheWorkflow

SPEC = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model", "sizeGiB": 20},
    "clusterSelector": {"matchLabels": {"tier": "gold"}},
}
IMAGE = ready(
    image="registry.example/m@sha256:ab",
    applied_generation=0,
    claim_digest="",
    job_uid="",
)
OWN_VOLUMES = ready(node_local=True, applied_generation=0, claim_digest="", job_uid="")
NEVER_APPLIED = CacheCopy(artifact_key="key-1", claim="claim-1")
SILENT = {"retry_at": "2026-01-01T00:02:00Z"}


def a_cache(**stagings: ClusterStaging) -> ModelCacheWorkflow:
    for name, staging in stagings.items():
        staging.site = staging.site.model_copy(update={"name": name})
    return ModelCacheWorkflow(
        CacheState(generation=1, spec=SPEC, stagings=stagings, surveys=1)
    )


@pytest.mark.parametrize(
    ("staging", "left"),
    [
        (a_staging(IMAGE, by_pods=True, site=a_site(connection=None)), []),
        (a_staging(OWN_VOLUMES, by_pods=True, site=a_site(connection=None)), []),
        (a_staging(IMAGE, by_pods=True, **SILENT), []),
        (a_staging(NEVER_APPLIED, **SILENT), []),
        (a_staging(NEVER_APPLIED, registered=True, **SILENT), ["claim-1"]),
        (a_staging(a_copy(), site=a_site(connection=None)), ["claim-1"]),
        (a_staging(IMAGE, a_copy(claim="claim-0"), **SILENT), ["claim-0"]),
    ],
    ids=[
        "an image, never connected",
        "volumes of pods, never connected",
        "an image, while the cluster is silent",
        "a volume whose apply was not begun",
        "a volume whose apply was begun",
        "a volume",
        "an image and a former volume",
    ],
)
def test_a_deletion_waits_for_a_silent_cluster_only_if_objects_may_exist_there(
    monkeypatch: pytest.MonkeyPatch, staging: ClusterStaging, left: list[str]
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")
    cache = a_cache(eu=staging.model_copy(deep=True))
    asyncio.run(cache.staging.start_steps(nothing_staged(cache.state)))
    assert [
        copy.claim for each in cache.state.stagings.values() for copy in each.copies
    ] == left
    assert list(cache.state.stagings) == (["eu"] if left else [])


def test_a_pass_is_due_at_the_end_of_a_turn_even_while_a_step_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    cache = a_cache(eu=a_staging(), us=a_staging())
    written = DESIRED._replace(pinned=False)

    async def a_pass() -> tuple[str, datetime | None]:
        cache.context.requeue_time = None
        cache.staging.running["eu"] = asyncio.create_task(asyncio.sleep(60))
        await cache.staging.start_steps(written)
        await cache.staging.stop()
        return cache.state.stagings["us"].awaits, cache.context.requeue_time

    assert asyncio.run(a_pass()) == ("eu", NOW + timedelta(hours=1))
    temporal.now = NOW + timedelta(minutes=30)
    assert asyncio.run(a_pass()) == ("eu", NOW + timedelta(hours=1))
    temporal.now = NOW + timedelta(hours=1)
    assert asyncio.run(a_pass())[0] == ""
    assert cache.state.stagings["us"].turn_began == "2026-01-01T01:00:00Z"


def test_the_inputs_of_a_job_are_rewritten_on_change_only_while_it_downloads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")
    downloading = {"a": a_staging(a_copy(), ready()), "b": a_staging(a_copy())}
    others = {
        "c": a_staging(ready()),
        "d": a_staging(failed()),
        "e": a_staging(a_copy(job_uid="")),
        "f": a_staging(),
    }
    cache = a_cache(**downloading, **others)
    cache.state.uid, cache.context.queued = "u1", False
    cache.secrets_changed(SecretsChanged(uid="another"))
    assert not cache.context.queued
    cache.secrets_changed(SecretsChanged(uid="u1"))
    assert cache.context.queued
    applied = {
        name: [copy.applied_generation for copy in staging.copies]
        for name, staging in cache.state.stagings.items()
    }
    assert applied == {"a": [0, 1], "b": [0], "c": [1], "d": [1], "e": [1], "f": []}
    step = next_step(cache.state.stagings["b"], DESIRED, frozenset(), NOW)
    assert step
    assert (step.kind, step.hydrate) == ("stage", True)


def test_a_cluster_that_cannot_stage_is_shown_as_soon_as_it_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")
    cache = a_cache()
    cache.context.queued = False
    for site, why in (
        (a_site(connection=None), "is not connected"),
        (a_site(storage_class_name=""), "reports no storage class for caches"),
    ):
        cache.clusters.reported(site)
        assert (cache.state.unready, cache.context.queued) == ({"eu-1": why}, True)
        cache.update_conditions("example/model")
        matched = condition_of(cache.state.conditions, "ClustersMatched")
        assert matched
        assert matched.message.endswith(f"InferenceCluster eu-1 {why}")
        cache.context.queued = False
        cache.clusters.reported(site)
        assert not cache.context.queued, "nothing new"
    cache.clusters.reported(a_site())
    assert (cache.state.unready, list(cache.state.stagings)) == ({}, ["eu-1"])


def test_a_survey_drops_clusters_that_no_longer_report(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")

    async def pages(wanted: Survey, _: str) -> AsyncIterator[SurveyResult]:
        # Each cluster tells whether an earlier cache of this name has volumes there.
        assert (wanted.query, wanted.argument) == ("cache_site", "ml/qwen")
        yield SurveyResult(
            answers={"inferencecluster/eu-1": a_site(storage_class_name="").wire()}
        )

    monkeypatch.setattr(clusters, "query_pages", pages)
    cache = a_cache()
    cache.state.unready = {"gone": "is not connected"}
    asyncio.run(cache.clusters.survey())
    assert cache.state.unready == {"eu-1": "reports no storage class for caches"}


def test_the_status_shows_why_the_revision_of_a_cluster_is_not_resolved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "modelcache/ml/qwen")
    cache = a_cache(eu=a_staging())
    cache.state.pin = PinnedRevision(
        reference="r", problem="hub.example: 503", errors=1
    )
    (row,) = cache.status()["clusters"]
    assert row["message"] == "the revision is being resolved: hub.example: 503"
    assert "hub.example: 503" in cache.details()[2]


@pytest.mark.parametrize(
    ("user", "waits"),
    [
        (
            CacheUser(
                workflow_id="modelreplica/ml/chat-eu-0",
                cluster="eu",
                assigned_claim="claim-1",
            ),
            True,
        ),
        (
            CacheUser(
                workflow_id="modelreplica/ml/chat-eu-0",
                cluster="eu",
                claims=["claim-1"],
            ),
            True,
        ),
        (CacheUser(workflow_id="modelreplica/ml/chat-eu-0", cluster="eu"), False),
        (CacheUser(workflow_id="modeldeployment/ml/chat"), False),
    ],
    ids=["told to mount", "mounts", "waits for the cache", "a deployment"],
)
def test_a_deletion_waits_for_a_replica_that_applies_pods_with_its_claim(
    monkeypatch: pytest.MonkeyPatch, user: CacheUser, waits: bool
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {"signal_many": SignalBatchResult()}
    cache = a_cache()
    cache.state.users, cache.state.deletion_timestamp = (
        {"u1": user},
        "2026-01-01T00:00:00Z",
    )
    assert asyncio.run(cache.tear_down()) is not waits
    deleting = condition_of(cache.state.conditions, "Deleting")
    assert ("ModelReplica chat-eu-0" in (deleting.message if deleting else "")) == waits


def test_observations_of_a_cluster_count_after_a_late_one_of_its_predecessor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch of the earlier cluster runs on for seconds, and sees the new volume too."""
    Serverless(monkeypatch, "modelcache/ml/llama")
    staging = a_staging(a_copy(), site_version=MessageVersion(uid="now", sequence=1))
    cache = a_cache(**{"eu-1": staging})
    for cluster_uid, sequence, job in (
        ("now", 1, "Running"),
        ("before", 9, "Running"),
        ("now", 2, "Complete"),
        ("before", 10, "Running"),
    ):
        order = ObservationOrder(cluster_uid=cluster_uid, run=1, sequence=sequence)
        late = Observed(owner_uid="", order=order, digest="", cache=observed(job=job))
        cache.observed(late.wire())
    assert (staging.observed, bool(staging.copies[0].ready_at)) == (
        observed(job="Complete"),
        True,
    )


@pytest.mark.parametrize(
    ("copy", "uid"),
    [
        (ready(claim="claim-0"), "u1"),
        (CacheCopy(claim="claim-0", owner_uid="u0"), "u0"),
    ],
)
def test_objects_are_deleted_with_the_uid_of_their_owning_run(
    monkeypatch: pytest.MonkeyPatch, copy: CacheCopy, uid: str
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {"delete_cache_objects": CacheObjectsDeleted()}
    cache = a_cache(eu=a_staging(ready(), copy.model_copy(), registered=True))
    cache.state.uid = "u1"

    async def a_pass() -> None:
        await cache.staging.start_steps(DESIRED)
        await asyncio.gather(*cache.staging.running.values())

    asyncio.run(a_pass())
    ((name, order),) = temporal.executed
    assert (name, order.claim, order.uid) == ("delete_cache_objects", "claim-0", uid)
    assert [each.claim for each in cache.state.stagings["eu"].copies] == ["claim-1"]


def test_a_cache_that_is_deleted_before_its_first_pass_releases_clusters_of_an_earlier_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {"signal_many": SignalBatchResult(), "broadcast": None}

    async def pages(*_: object) -> AsyncIterator[SurveyResult]:
        site = a_site(holders={"ml/qwen": "earlier"})
        yield SurveyResult(answers={"inferencecluster/eu-1": site.wire()})

    monkeypatch.setattr(clusters, "query_pages", pages)
    cache = a_cache()
    cache.state.surveys = 0
    cache.state.uid, cache.state.deletion_timestamp = "u1", "2026-01-01T00:00:00Z"
    monkeypatch.setattr(cache.context, "publish", lambda: None)
    assert asyncio.run(cache.tear_down())
    (left,) = cache.state.left_behind
    assert (left.location, left.name) == ("eu-1", "modelplane.ai/modelcache=qwen")
    batches = [batch for name, batch in temporal.executed if name == "signal_many"]
    (staged,) = [one for batch in batches for one in batch.signals]
    assert (staged.workflow_id, staged.payload["staged"]) == (
        "inferencecluster/eu-1",
        False,
    )


def test_the_removal_of_the_last_artifact_finds_those_of_an_earlier_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The cluster may not have answered since the earlier cache was terminated."""
    temporal = Serverless(monkeypatch, "modelcache/ml/weights")
    found = EarlierClaim(claim="claim-8", uid="earlier")
    older, last = ready(claim="claim-0"), ready()
    cache = a_cache(us=a_staging(last, older))
    staging = cache.state.stagings["us"]
    for copy in (older, last):
        step = NextStep("remove", copy, teardown_steps=(1, 2, 3))
        temporal.results = {
            "delete_cache_objects": CacheObjectsDeleted(
                earlier=[found] if copy is last else []
            )
        }
        asyncio.run(cache.staging._do(staging, step))
    assert [order.search for _, order in temporal.executed] == [False, True]
    assert [(each.claim, each.owner_uid) for each in staging.copies] == [
        ("claim-8", "earlier")
    ]


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_call_without_the_credential_changes_nothing_about_an_earlier_download(
    monkeypatch: pytest.MonkeyPatch, *, was_clean: bool
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/qwen")
    temporal.results = {
        "apply_cache": CacheApplied(
            claim="claim-1",
            artifact_key="key-1",
            volume_digest="d",
            credential_missing="no Secret ml/hub",
        )
    }
    copy = NEVER_APPLIED.model_copy(update={"cleaned_up": was_clean})
    cache = a_cache(eu=a_staging(copy, registered=True))
    cache.state.uid = "u1"

    async def a_pass() -> None:
        await cache.staging.start_steps(DESIRED)
        await asyncio.gather(*cache.staging.running.values())

    asyncio.run(a_pass())
    ((name, order),) = temporal.executed
    assert (name, order.hydrate) == ("apply_cache", True)
    (after,) = cache.state.stagings["eu"].copies
    assert after.missing_credential == "no Secret ml/hub"
    assert after.cleaned_up is was_clean


def test_a_cache_lists_what_it_left_on_a_deleted_cluster_until_it_is_there_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The deletion of a cluster was forced, so the cache could not remove its volumes."""
    temporal = Serverless(monkeypatch, "modelcache/ml/weights")
    temporal.results = {
        "apply_cache": CacheApplied(
            claim="claim-1", artifact_key="key-1", volume_digest="d"
        )
    }
    staging = a_staging(a_copy(cleaned_up=True), site=a_site(present=False))
    cache = a_cache(eu=staging, us=a_staging(site=a_site(name="us")))

    def left() -> list[tuple[str, str]]:
        return [(item.kind, item.name) for item in cache.state.left_behind]

    asyncio.run(cache.staging._forget("eu"))
    assert left() == [("PersistentVolumeClaim", "claim-1")]
    assert list(cache.state.stagings) == ["us"]
    cache.clusters._list_earlier("eu", "why")
    copy = a_copy()
    for cluster, listed in (("us", 2), ("eu", 1)):
        there = a_staging(copy, registered=True, site=a_site(name=cluster))
        step = NextStep("stage", copy)
        asyncio.run(cache.staging._stage(there, step))
        assert len(left()) == listed
    assert left() == [("label", "modelplane.ai/modelcache=weights")]


@pytest.mark.parametrize("known", [[a_copy(cleaned_up=True)], []])
def test_a_cache_that_was_reset_lists_all_that_may_be_on_a_deleted_cluster(
    monkeypatch: pytest.MonkeyPatch, known: list[CacheCopy]
) -> None:
    """The tasks that were reset may have made other volumes, and Jobs and Secrets."""
    Serverless(monkeypatch, "modelcache/ml/weights")
    cache = a_cache(eu=a_staging(*known, site=a_site(present=False)))
    cache.state.reset = True
    asyncio.run(cache.staging._forget("eu"))
    assert [(item.kind, item.name) for item in cache.state.left_behind] == [
        *(("PersistentVolumeClaim", copy.claim) for copy in known),
        ("label", "modelplane.ai/modelcache=weights"),
    ]


def test_a_forced_cache_lists_its_volumes_and_lets_its_clusters_go(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "modelcache/ml/weights")
    temporal.results = {"signal_many": SignalBatchResult()}
    cache = a_cache(
        eu=a_staging(a_copy(), registered=True),
        gone=a_staging(registered=True, site=a_site(present=False)),
        us=a_staging(),
    )
    asyncio.run(cache.staging.leave_behind("deletion was forced"))
    assert cache.state.stagings == {}
    assert {item.name for item in cache.state.left_behind} >= {"claim-1"}
    sent = [request for _, order in temporal.executed for request in order.signals]
    assert [(each.workflow_id, each.payload["staged"]) for each in sent] == [
        ("inferencecluster/eu", False)
    ]
