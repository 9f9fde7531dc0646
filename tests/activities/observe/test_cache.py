"""The observation of a cache on one cluster: claims, Jobs, and download errors."""

from typing import Any

import pytest

from activities.cluster_objects.cluster_api import Json
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.cache_observation_index import CacheObservationIndex
from activities.observe.cache import (
    JobPodSeen,
    observe_cache,
    read_job,
    read_job_pod,
    read_volume,
)
from activities.watching.reflector import NamespacedName
from api_types import labels
from api_types.messages.observations import ObservedJob, ObservedVolume

CLAIM = "modelcache-ml-team-qwen-0a1b2c3d"
LISTING = "sha256:" + "ab" * 32
CACHE = ObjectOwner("ModelCache", "ml-team", "qwen", "uid-c")


def an_object(name: str, owner: ObjectOwner = CACHE, **parts: Any) -> Json:
    notes = {
        labels.OWNER_KIND: owner.kind,
        labels.OWNER_NAMESPACE: owner.namespace,
        labels.OWNER_NAME: owner.name,
        labels.OWNER_UID: owner.uid,
    }
    marks = {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, labels.CACHE: CLAIM}
    metadata = {
        "name": name,
        "namespace": "ml-team",
        "uid": f"uid-of-{name}",
        "labels": marks,
        "annotations": notes,
    }
    return {
        "apiVersion": "v1",
        "kind": "Thing",
        "metadata": metadata | parts.pop("metadata", {}),
        **parts,
    }


def a_job(*conditions: tuple[str, str], **metadata: Any) -> Json:
    written = [
        {"type": kind, "status": status, "reason": "Because", "message": "of this"}
        for kind, status in conditions
    ]
    return an_object(f"{CLAIM}-hyd", status={"conditions": written}, metadata=metadata)


def a_pod(
    exit_code: int | None = None,
    at: str = "2026-01-01T00:00:00Z",
    message: str = "",
    **status: Any,
) -> Json:
    ended = (
        {"terminated": {"exitCode": exit_code, "finishedAt": at, "message": message}}
        if exit_code is not None
        else {}
    )
    metadata = {
        "name": f"pod-{at}",
        "namespace": "ml-team",
        "labels": {labels.CACHE: CLAIM},
        "ownerReferences": [{"kind": "Job", "uid": f"uid-of-{CLAIM}-hyd"}],
    }
    containers = [{"name": "hydrate", "state": ended}] if ended else []
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "status": {"containerStatuses": containers, **status},
    }


def observed(job: Json, *pods: Json) -> ObservedJob:
    seen = read_job(job)
    assert seen
    read = [found for pod in pods if (found := read_job_pod(pod))]
    assert len(read) == len(pods)
    return observe_cache("eu-1", [], [seen], read).jobs[0]


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        pytest.param([], "Running", id="no condition yet"),
        pytest.param([("Complete", "True")], "Complete", id="complete"),
        pytest.param([("Failed", "True")], "Failed", id="failed"),
        pytest.param(
            [("FailureTarget", "True")],
            "Running",
            id="about to fail, with pods still ending",
        ),
        pytest.param(
            [("Complete", "False")], "Running", id="a condition that does not hold"
        ),
    ],
)
def test_only_conditions_say_how_a_job_ended(
    conditions: list[tuple[str, str]], state: str
) -> None:
    assert observed(a_job(*conditions)).state == state


def test_the_last_pod_that_failed_says_why() -> None:
    early = a_pod(1, "2026-01-01T00:00:00Z", "the hub answered 503", phase="Failed")
    late = a_pod(42, "2026-01-01T00:01:00Z", "acme/none does not exist", phase="Failed")
    job = observed(a_job(("Failed", "True")), late, early)
    assert (job.exit_code, job.message) == (42, "acme/none does not exist")


def test_a_failed_job_without_a_failed_pod_gives_its_own_message() -> None:
    job = observed(a_job(("Failed", "True")), a_pod(137, phase="Failed"))
    assert (job.exit_code, job.message) == (137, "Because: of this")


def test_the_end_of_a_long_log_is_kept_within_one_kib() -> None:
    job = observed(
        a_job(("Failed", "True")),
        a_pod(1, message="x" * 5000 + " no space left", phase="Failed"),
    )
    assert job.message.endswith("no space left")
    assert len(job.message.encode()) == 1024


def test_a_pod_that_cannot_start_is_the_blocker_of_its_job() -> None:
    unschedulable = {
        "type": "PodScheduled",
        "status": "False",
        "message": "0/3 nodes are available",
    }
    job = observed(a_job(), a_pod(phase="Pending", conditions=[unschedulable]))
    assert job.blocker == "unschedulable: 0/3 nodes are available"


def test_a_running_download_has_no_blocker_though_it_is_never_ready() -> None:
    assert observed(a_job(), a_pod(phase="Running")).blocker == ""


def test_a_job_that_is_being_deleted_counts_as_gone() -> None:
    seen = read_job(a_job(deletionTimestamp="2026-01-01T00:00:00Z"))
    assert seen
    assert observe_cache("eu-1", [], [seen], []).jobs == []


def test_a_volume_claim_is_observed_with_its_phase() -> None:
    bound = read_volume(an_object(CLAIM, status={"phase": "Bound"}))
    assert bound
    assert bound.volume.phase == "Bound"
    deleting = read_volume(
        an_object(
            CLAIM,
            status={"phase": "Bound"},
            metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"},
        )
    )
    assert deleting
    assert deleting.volume.phase == "Terminating"


def test_foreign_objects_do_not_affect_a_cache() -> None:
    foreign = ObjectOwner("ModelReplica", "ml-team", "qwen", "uid-r")
    assert read_volume(an_object("data", foreign)) is None
    assert read_job(an_object("migrate", foreign)) is None
    assert (
        read_job_pod({"metadata": {"name": "x", "labels": {labels.CACHE: CLAIM}}})
        is None
    )


class TestBoard:
    """The owners that are enqueued for each change."""

    def index(self) -> tuple[CacheObservationIndex, list[ObjectOwner]]:
        touched: list[ObjectOwner] = []
        return CacheObservationIndex("eu-1", touched.append), touched

    def test_a_pods_failure_is_news_for_the_cache_of_its_job(self) -> None:
        index, touched = self.index()
        index.put_job(NamespacedName("ml-team", f"{CLAIM}-hyd"), read_job(a_job()))
        touched.clear()
        index.put_pod(
            NamespacedName("ml-team", "pod"), read_job_pod(a_pod(41, phase="Failed"))
        )
        assert touched == [CACHE]
        index.put_job(
            NamespacedName("ml-team", f"{CLAIM}-hyd"),
            read_job(a_job(("Failed", "True"))),
        )
        assert index.observation_for(CACHE).jobs[0].exit_code == 41

    def test_a_cache_without_objects_is_observed_once_more_and_then_dropped(
        self,
    ) -> None:
        index, touched = self.index()
        key = NamespacedName("ml-team", CLAIM)
        index.put_volume(key, read_volume(an_object(CLAIM, status={"phase": "Bound"})))
        assert [volume.claim for volume in index.observation_for(CACHE).volumes] == [
            CLAIM
        ]
        index.put_volume(key, None)
        assert touched == [CACHE, CACHE]
        assert index.is_empty(CACHE)
        assert index.observation_for(CACHE).volumes == list[ObservedVolume]()
        index.forget(CACHE)
        assert index.owners() == []

    def test_caches_of_two_namespaces_do_not_mix(self) -> None:
        index, _ = self.index()
        other = ObjectOwner("ModelCache", "other", "qwen", "uid-o")
        index.put_volume(
            NamespacedName("ml-team", CLAIM), read_volume(an_object(CLAIM))
        )
        index.put_volume(
            NamespacedName("other", CLAIM), read_volume(an_object(CLAIM, other))
        )
        assert [
            len(index.observation_for(owner).volumes) for owner in (CACHE, other)
        ] == [1, 1]
        index.put_volume(NamespacedName("ml-team", CLAIM), None)
        assert [
            len(index.observation_for(owner).volumes) for owner in (CACHE, other)
        ] == [0, 1]

    def test_a_pod_whose_job_is_unknown_waits_for_it(self) -> None:
        index, touched = self.index()
        pod = read_job_pod(a_pod(41, phase="Failed"))
        assert isinstance(pod, JobPodSeen)
        index.put_pod(NamespacedName("ml-team", "pod"), pod)
        assert touched == []
        index.put_job(
            NamespacedName("ml-team", f"{CLAIM}-hyd"),
            read_job(a_job(("Failed", "True"))),
        )
        assert index.observation_for(CACHE).jobs[0].exit_code == 41


@pytest.mark.parametrize(
    ("message", "commit"),
    [
        ("a" * 40, "a" * 40),
        ("a" * 40 + "\n", "a" * 40),
        ("", ""),
        ("staged acme/tiny", ""),
        ("A" * 40, ""),
        ("a" * 41, ""),
        (LISTING, LISTING),
    ],
    ids=[
        "a commit",
        "a line",
        "nothing",
        "a log",
        "no hash",
        "too long",
        "a digest",
    ],
)
def test_a_complete_job_says_the_commit_that_it_staged(
    message: str, commit: str
) -> None:
    assert (
        observed(
            a_job(("Complete", "True")), a_pod(0, message=message, phase="Succeeded")
        ).commit
        == commit
    )
    assert (
        observed(a_job(), a_pod(0, message=message, phase="Succeeded")).commit == ""
    ), "not before it is complete"
