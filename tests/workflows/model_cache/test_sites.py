"""How a cache follows a cluster through late and duplicate reports, and through a
successor with the same name.
"""

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import pytest

from activities.messaging.messages import SurveyResult
from api_types.messages.caches import CacheSite
from api_types.messages.delivery import SignalRequest
from api_types.messages.versions import MessageVersion
from tests.workflows.model_cache.builders import DESIRED, NOW, a_copy, a_site
from tests.workflows.model_cache.test_steps import SPEC
from workflows.entity.context import EntityContext
from workflows.model_cache import clusters
from workflows.model_cache.plan import can_forget
from workflows.model_cache.sites import new_staging, record_site, record_unready
from workflows.model_cache.state import CacheState, ClusterStaging


def after(*reports: CacheSite) -> ClusterStaging:
    """Return the state of a cluster after these reports, in order.

    An artifact was applied after the first one.
    """
    staging = new_staging(reports[0])
    staging.copies, staging.registered = [a_copy()], True
    for report in reports[1:]:
        record_site(staging, report)
    return staging


def test_a_late_report_is_ignored() -> None:
    assert after(
        a_site(sequence=8), a_site(sequence=7, storage_class_name="late")
    ).site == a_site(sequence=8)


def test_a_recreated_cluster_is_followed_and_its_artifacts_are_checked() -> None:
    staging = after(a_site(uid="a", sequence=8), a_site(uid="b", sequence=0))
    assert (
        staging.site.uid,
        staging.registered,
        staging.copies[0].applied_generation,
    ) == ("b", False, 0)


@pytest.mark.parametrize(
    ("successor", "keeps_it"),
    [
        ({"deleting": True}, True),
        ({"deleting": True, "present": False}, False),
        ({}, False),
    ],
)
def test_a_cluster_that_was_reset_in_its_deletion_is_reached_as_before(
    successor: dict[str, Any], keeps_it: bool
) -> None:
    """It never connects again, and waits until the volumes on it are deleted."""
    staging = after(a_site(uid="a"), a_site(uid="b", connection=None, **successor))
    connection = staging.site.connection
    assert connection == (a_site().connection if keeps_it else None)


def test_a_late_report_of_the_previous_cluster_is_ignored() -> None:
    staging = after(a_site(uid="a", sequence=8), a_site(uid="b", sequence=0))
    staging.registered = True
    assert not record_site(staging, a_site(uid="a", sequence=9))
    assert (staging.site.uid, staging.registered) == ("b", True)


@pytest.mark.parametrize(
    ("before", "now", "again"),
    [
        ({}, {"rwx": False}, True),
        ({"rwx": False}, {"rwx": True}, True),
        ({"rwx": True}, {"rwx": True}, False),
        (None, {"rwx": True}, False),
        ({"rwx": True}, None, False),
    ],
    ids=[
        "a missing class is there",
        "volumes may be expanded",
        "nothing changed",
        "they become known",
        "they are not known",
    ],
)
def test_a_change_of_the_storage_classes_causes_volumes_to_be_applied_again(
    before: dict[str, bool] | None, now: dict[str, bool] | None, *, again: bool
) -> None:
    staging = after(a_site(storage_classes=before))
    staging.retry_at = "2030-01-01T00:00:00Z"
    assert record_site(staging, a_site(sequence=2, storage_classes=now))
    assert (staging.copies[0].applied_generation, bool(staging.retry_at)) == (
        (0, False) if again else (1, True)
    )


def test_a_report_overtaken_by_the_deletion_is_ignored() -> None:
    assert not after(a_site(sequence=8, present=False), a_site(sequence=8)).site.present


@pytest.mark.parametrize("first", ["present", "earlier"])
def test_of_two_clusters_with_one_name_a_cache_follows_the_one_that_answers(
    monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    """Otherwise, a late report of the earlier one would make it reject the current one
    permanently.
    """
    second, asked = {"present": "earlier", "earlier": "present"}[first], list[str]()

    async def query(workflow_ids: Iterable[str], *_: str) -> SurveyResult:
        asked.extend(workflow_ids)
        return SurveyResult(
            answers={each: a_site("eu", uid="present").wire() for each in workflow_ids}
        )

    monkeypatch.setattr(clusters, "query_each", query)
    state = CacheState(
        surveyed=True, stagings={"eu": new_staging(a_site("eu", uid=first))}
    )
    known = clusters.StagingClusters(
        EntityContext(
            "ModelCache",
            state,
            lambda: None,
            "modelcache/ml/m",
            lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )
    )
    if first == "earlier":
        # The cache may have treated it as the earlier one before.
        state.stagings["eu"].site_version = MessageVersion(
            uid=first, superseded=["present"]
        )
        second = "another"
    known.reported(a_site("eu", uid=second))
    assert (state.stagings["eu"].site.uid, state.stagings["eu"].doubted) == (
        first,
        True,
    )
    asyncio.run(known.survey())
    known.reported(a_site("eu", uid="present", sequence=9))
    known.reported(a_site("eu", uid="earlier", sequence=9))
    asyncio.run(known.survey())
    assert set(asked) == {"inferencecluster/eu"}
    assert (state.stagings["eu"].site, state.stagings["eu"].doubted) == (
        a_site("eu", uid="present", sequence=9),
        False,
    )


def test_a_silent_cluster_of_unknown_uid_is_requested_to_report_when_it_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[SignalRequest] = []

    async def query(workflow_ids: Iterable[str], *_: str) -> SurveyResult:
        return SurveyResult(answers={}, unresponsive=dict.fromkeys(workflow_ids, ""))

    async def send(requests: Iterable[SignalRequest], _: str) -> None:
        sent.extend(requests)

    monkeypatch.setattr(clusters, "query_each", query)
    monkeypatch.setattr(clusters, "send_all", send)
    state = CacheState(
        surveyed=True, stagings={"eu": new_staging(a_site("eu", uid="known"))}
    )
    known = clusters.StagingClusters(
        EntityContext(
            "ModelCache",
            state,
            lambda: None,
            "modelcache/ml/m",
            lambda: datetime(2026, 1, 1, tzinfo=UTC),
        )
    )
    known.reported(a_site("eu", uid="another"))
    asyncio.run(known.survey())
    assert [(request.workflow_id, request.signal) for request in sent] == [
        ("inferencecluster/eu", "resync")
    ]
    assert state.stagings["eu"].site.uid == "known"


@pytest.mark.parametrize(
    ("name", "uid", "spec", "deleting", "is_released"),
    [
        ("m", "c", SPEC, True, True),
        ("m", "earlier", SPEC, True, False),
        ("another", "c", SPEC, True, False),
        # This cache takes over the volumes.
        ("m", "c", SPEC, False, False),
        (
            "m",
            "c",
            {**SPEC, "clusterSelector": {"matchLabels": {"a": "b"}}},
            False,
            True,
        ),
        ("m", "c", {**SPEC, "volume": {"nodeLocal": True}}, False, True),
    ],
)
def test_a_cluster_without_the_cache_is_released_from_an_earlier_cache(
    name: str, uid: str, spec: dict[str, Any], *, deleting: bool, is_released: bool
) -> None:
    """The earlier cache was terminated, so only its successor can remove the registration."""
    state = CacheState(uid=uid, spec=spec)
    context = EntityContext(
        "ModelCache", state, lambda: None, f"modelcache/ml/{name}", lambda: NOW
    )
    site = a_site("eu", deleting=deleting, holders={"ml/m": "earlier"})
    clusters.StagingClusters(context).reported(site)
    released = [each for each in state.stagings.values() if each.registered]
    assert len(released) == int(is_released)
    assert [event.reason for event in state.events] == ["Abandoned"] * len(released)
    gone = DESIRED._replace(deleting=True)
    assert all(can_forget(each, gone, (), NOW) for each in released)


GOLD = {"clusterSelector": {"matchLabels": {"tier": "gold"}}}


@pytest.mark.parametrize(
    ("site", "spec", "why"),
    [
        (a_site(storage_class_name=""), GOLD, "reports no storage class for caches"),
        (a_site(connection=None), GOLD, "is not connected"),
        (a_site(), GOLD, ""),
        (
            a_site(storage_class_name=""),
            {**GOLD, "volume": {"storageClassName": "nfs"}},
            "",
        ),
        (a_site(storage_class_name="", labels={}), GOLD, ""),
        (a_site(storage_class_name="", deleting=True), GOLD, ""),
        (a_site(storage_class_name="", present=False), GOLD, ""),
    ],
    ids=[
        "no class",
        "not connected",
        "can stage",
        "the cache names a class",
        "not selected",
        "being deleted",
        "gone",
    ],
)
def test_a_selected_cluster_that_cannot_stage_shows_the_reason(
    site: CacheSite, spec: dict[str, object], why: str
) -> None:
    state = CacheState(spec=spec, unready={"eu-1": "something else"})
    record_unready(state, site)
    assert state.unready == ({"eu-1": why} if why else {})
