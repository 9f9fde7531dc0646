"""Why a pod is not ready."""

from typing import Any, NamedTuple

import pytest

from activities.observe.pods import (
    NotReadyReason,
    PodSeen,
    WorkloadKey,
    dominant_reason,
    read_pod,
)

STANDALONE = {"modelplane.ai/workload": "main", "modelplane.ai/serving": "W"}
LEADER = {"leaderworkerset.sigs.k8s.io/name": "gang", "modelplane.ai/serving": "W"}
FOLLOWER = {"leaderworkerset.sigs.k8s.io/name": "gang"}


def a_pod(
    labels: dict[str, str] | None = None,
    *,
    ready: bool = False,
    metadata: dict[str, Any] | None = None,
    **status: Any,
) -> dict[str, Any]:
    """Return a pod of an engine. `status` is its status without the Ready condition."""
    conditions = [
        *status.pop("conditions", []),
        {
            "type": "Ready",
            "status": str(ready),
            "lastTransitionTime": "2026-11-21T10:00:00Z",
        },
    ]
    return {
        "metadata": {
            "name": "p",
            "namespace": "ml-team",
            "labels": STANDALONE if labels is None else labels,
            **(metadata or {}),
        },
        "status": {"conditions": conditions, **status},
    }


def a_container(state: str = "running", **details: Any) -> dict[str, Any]:
    """Return the status of the engine container."""
    return {
        "name": "engine",
        "image": "acme/vllm:1",
        "restartCount": details.pop("restarts", 0),
        **details.pop("more", {}),
        "state": {state: details},
    }


class Case(NamedTuple):
    """A pod and the reason why it is not ready."""

    story: str
    pod: dict[str, Any]
    says: str


UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/4 nodes are available: 4 cannot allocate all claims.",
}
LAST = {"lastState": {"terminated": {"exitCode": 137}}}
CASES = [
    Case("a ready pod", a_pod(ready=True), ""),
    Case(
        "no devices",
        a_pod(conditions=[UNSCHEDULABLE]),
        "unschedulable: 0/4 nodes are available: 4 cannot allocate all claims.",
    ),
    Case(
        "an image that cannot be had",
        a_pod(
            containerStatuses=[
                a_container("waiting", reason="ImagePullBackOff", message="not found")
            ]
        ),
        "cannot pull image acme/vllm:1: ImagePullBackOff: not found",
    ),
    Case(
        "a missing Secret",
        a_pod(
            containerStatuses=[
                a_container(
                    "waiting",
                    reason="CreateContainerConfigError",
                    message='secret "hub" not found',
                )
            ]
        ),
        'cannot create container engine: secret "hub" not found',
    ),
    Case(
        "a crash loop",
        a_pod(
            containerStatuses=[
                a_container("waiting", reason="CrashLoopBackOff", restarts=3, more=LAST)
            ]
        ),
        "crashing: container engine ended with exit code 137, 3 restarts",
    ),
    Case(
        "just ended",
        a_pod(containerStatuses=[a_container("terminated", exitCode=1)]),
        "crashing: container engine ended with exit code 1, 0 restarts",
    ),
    Case(
        "a probe that fails",
        a_pod(containerStatuses=[a_container()]),
        "running, not ready since 2026-11-21T10:00:00Z",
    ),
    Case(
        "evicted",
        a_pod(phase="Failed", reason="Evicted", message="node is low on memory"),
        "ended: Evicted node is low on memory",
    ),
    Case(
        "containers being made",
        a_pod(containerStatuses=[a_container("waiting", reason="ContainerCreating")]),
        "starting",
    ),
    Case("nothing known yet", a_pod(), "starting"),
    Case(
        "an init container before all",
        a_pod(
            initContainerStatuses=[
                a_container("waiting", reason="ErrImagePull", message="no such host")
            ],
            containerStatuses=[a_container("waiting")],
        ),
        "cannot pull image acme/vllm:1: ErrImagePull: no such host",
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_a_pod_that_is_not_ready_has_a_reason(case: Case) -> None:
    seen = read_pod(case.pod)
    assert seen is not None
    assert (seen.not_ready.text if seen.not_ready else "") == case.says


@pytest.mark.parametrize(
    ("labels", "workload", "serving"),
    [
        (STANDALONE, ("Deployment", "main"), True),
        (LEADER, ("LeaderWorkerSet", "gang"), True),
        (FOLLOWER, ("LeaderWorkerSet", "gang"), False),
    ],
    ids=["standalone", "leader", "follower"],
)
def test_a_pod_belongs_to_its_engine_and_serves_unless_it_follows(
    labels: dict[str, str], workload: tuple[str, str], *, serving: bool
) -> None:
    seen = read_pod(
        a_pod(labels, metadata={"annotations": {"modelplane.ai/template-hash": "abc"}})
    )
    assert seen is not None
    assert (seen.workload, seen.serving, seen.template_hash) == (
        WorkloadKey(workload[0], "ml-team", workload[1]),
        serving,
        "abc",
    )


def test_a_pod_of_no_engine_is_not_kept() -> None:
    assert read_pod(a_pod({"app": "something"})) is None


def a_seen(rank: int | None, text: str = "", *, terminating: bool = False) -> PodSeen:
    return PodSeen(
        workload=WorkloadKey("Deployment", "n", "main"),
        serving=True,
        ready=rank is None,
        terminating=terminating,
        template_hash="",
        not_ready=None if rank is None else NotReadyReason(rank, text),
    )


def test_the_first_reason_is_given_with_the_number_of_its_pods() -> None:
    pods = [
        a_seen(None),
        a_seen(0, "crashing: x"),
        a_seen(0, "crashing: y"),
        a_seen(6, "starting"),
        a_seen(0, "crashing", terminating=True),
    ]
    assert dominant_reason(pods) == "2 of 4 pods crashing: x"


def test_ready_pods_have_no_reason() -> None:
    assert (
        dominant_reason([a_seen(None), a_seen(6, "starting", terminating=True)]) == ""
    )
