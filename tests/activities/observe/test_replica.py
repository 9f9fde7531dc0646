"""The observation of a replica on its cluster."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest

from activities.observe.objects import ObjectSeen, read_object
from activities.observe.pods import NotReadyReason, PodSeen, WorkloadKey
from activities.observe.replica import observe_replica
from api_types.messages.observations import ObservedWorkload

CREATED = datetime(2026, 11, 21, 10, 0, 0, tzinfo=UTC)
LATER = CREATED + timedelta(seconds=61)
OWNER = {
    "owner-kind": "ModelReplica",
    "owner-namespace": "ml-team",
    "owner-name": "qwen",
    "owner-uid": "u1",
}
KIND = {
    "Deployment": "apps/v1",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "HTTPRoute": "gateway.networking.k8s.io/v1",
    "InferencePool": "inference.networking.k8s.io/v1",
    "Service": "v1",
}


def an_item(
    kind: str,
    *,
    generation: int = 1,
    labels: dict[str, str] | None = None,
    **parts: Any,
) -> dict[str, Any]:
    """Return an object of the control plane as the API server sends it."""
    return {
        "apiVersion": KIND[kind],
        "kind": kind,
        "metadata": {
            "name": "main",
            "namespace": "ml-team",
            "generation": generation,
            "creationTimestamp": "2026-11-21T10:00:00Z",
            "labels": {"app.kubernetes.io/managed-by": "modelplane", **(labels or {})},
            "annotations": {
                f"modelplane.ai/{key}": value for key, value in OWNER.items()
            },
        },
        **parts,
    }


def seen(kind: str, **parts: Any) -> ObjectSeen:
    found = read_object(an_item(kind, **parts))
    assert found is not None
    return found


def a_pod(
    kind: str = "Deployment",
    *,
    ready: bool = True,
    hash_: str = "new",
    serving: bool = True,
    terminating: bool = False,
    group: str = "",
) -> PodSeen:
    trouble = None if ready else NotReadyReason(6, "starting")
    return PodSeen(
        WorkloadKey(kind, "ml-team", "main"),
        serving,
        ready,
        terminating,
        hash_,
        trouble,
        group,
    )


def a_group(
    number: int, *, followers_ready: bool = True, terminating: bool = False
) -> list[PodSeen]:
    """Return a leader and its follower."""
    leader = a_pod("LeaderWorkerSet", group=str(number))
    follower = a_pod(
        "LeaderWorkerSet",
        hash_="new-worker",
        serving=False,
        ready=followers_ready,
        terminating=terminating,
        group=str(number),
    )
    return [leader, follower]


def observe(item: ObjectSeen, *pods: PodSeen) -> ObservedWorkload:
    key = WorkloadKey(item.target.kind.kind, "ml-team", "main")
    return observe_replica([item], {key: pods}, {}, LATER).observed.workloads[0]


DEPLOYED = {
    "observedGeneration": 2,
    "replicas": 4,
    "updatedReplicas": 4,
    "readyReplicas": 4,
    "availableReplicas": 4,
}


def test_a_deployment_is_counted_as_its_controller_counts() -> None:
    found = observe(
        seen("Deployment", generation=2, spec={"replicas": 4}, status=DEPLOYED),
        *[a_pod() for _ in range(4)],
    )
    assert found == ObservedWorkload(
        name="main",
        kind="Deployment",
        current=True,
        desired=4,
        updated=4,
        ready=4,
        available=4,
        total=4,
        pods_ready=4,
        hashes=["new"],
    )


def test_updated_copies_are_counted_apart_from_available_ones() -> None:
    found = observe(
        seen(
            "Deployment",
            generation=2,
            spec={"replicas": 4},
            status={**DEPLOYED, "updatedReplicas": 1},
        )
    )
    assert (found.updated, found.available) == (1, 4)


@pytest.mark.parametrize(
    ("reason", "overdue"),
    [("ProgressDeadlineExceeded", True), ("ReplicaSetUpdated", False)],
)
def test_a_passed_deadline_is_reported_and_changes_no_count(
    reason: str, *, overdue: bool
) -> None:
    status = {
        **DEPLOYED,
        "conditions": [
            {
                "type": "Progressing",
                "status": "False" if overdue else "True",
                "reason": reason,
            }
        ],
    }
    found = observe(
        seen("Deployment", generation=2, spec={"replicas": 4}, status=status)
    )
    assert (found.overdue, found.ready, found.current) == (overdue, 4, True)


def test_a_controller_that_has_not_seen_the_newest_spec_is_not_current() -> None:
    assert not observe(
        seen("Deployment", generation=3, spec={"replicas": 4}, status=DEPLOYED)
    ).current
    assert not observe(seen("Deployment", generation=1, spec={"replicas": 1})).current


def test_pods_that_cannot_be_created_are_reported() -> None:
    failure = {
        "type": "ReplicaFailure",
        "status": "True",
        "message": "exceeded quota: gpus",
    }
    found = observe(
        seen("Deployment", spec={"replicas": 1}, status={"conditions": [failure]})
    )
    assert found.blocker == "pods cannot be created: exceeded quota: gpus"


SET = {
    "replicas": 2,
    "leaderWorkerTemplate": {
        "size": 2,
        "leaderTemplate": {
            "metadata": {"annotations": {"modelplane.ai/template-hash": "new"}}
        },
        "workerTemplate": {
            "metadata": {"annotations": {"modelplane.ai/template-hash": "new-worker"}}
        },
    },
}
AVAILABLE = {"type": "Available", "status": "True"}
WHOLE = {
    "replicas": 2,
    "readyReplicas": 2,
    "updatedReplicas": 2,
    "conditions": [AVAILABLE],
}


def test_a_gang_is_current_only_when_no_old_pod_is_left() -> None:
    gang = seen("LeaderWorkerSet", spec=SET, status=WHOLE)
    pods = [*a_group(0), *a_group(1)]
    found = observe(gang, *pods)
    assert (
        found.current,
        found.ready,
        found.available,
        found.pods_ready,
        found.hashes,
    ) == (True, 2, 2, 2, ["new", "new-worker"])
    assert not observe(gang, *pods, a_pod("LeaderWorkerSet", hash_="old")).current
    assert observe(
        gang, *pods, a_pod("LeaderWorkerSet", hash_="old", terminating=True)
    ).current


@pytest.mark.parametrize(
    "broken",
    [a_group(1, followers_ready=False), a_group(1, terminating=True), a_group(1)[:1]],
    ids=[
        "a follower without a node",
        "a follower that is terminating",
        "no follower yet",
    ],
)
def test_a_gang_with_an_unready_follower_is_not_ready_even_if_its_status_is(
    broken: list[PodSeen],
) -> None:
    found = observe(
        seen("LeaderWorkerSet", spec=SET, status=WHOLE), *a_group(0), *broken
    )
    assert (found.ready, found.available, found.total, found.pods_ready) == (1, 1, 2, 1)


def test_a_gang_that_is_not_available_has_no_available_copy() -> None:
    gang = seen(
        "LeaderWorkerSet",
        spec=SET,
        status={
            "replicas": 2,
            "readyReplicas": 2,
            "conditions": [{**AVAILABLE, "status": "False"}],
        },
    )
    assert observe(gang).available == 0


class StatusCase(NamedTuple):
    """A status of a route or pool, and why it is not accepted (or empty)."""

    story: str
    kind: str
    parents: list[dict[str, Any]]
    message: str


def a_parent(
    accepted: str = "True",
    resolved: str = "True",
    *,
    name: str = "inference-gateway",
    generation: int = 1,
    **more: Any,
) -> dict[str, Any]:
    conditions = [
        {
            "type": "Accepted",
            "status": accepted,
            "observedGeneration": generation,
            **more,
        }
    ]
    if resolved:
        conditions.append(
            {
                "type": "ResolvedRefs",
                "status": resolved,
                "observedGeneration": generation,
                **more,
            }
        )
    return {
        "parentRef": {"name": name, "namespace": "modelplane-system"},
        "conditions": conditions,
    }


STATUS_CASES = [
    StatusCase("a route that is whole", "HTTPRoute", [a_parent()], ""),
    StatusCase(
        "a route without a status",
        "HTTPRoute",
        [],
        "no gateway has reported a status for it yet",
    ),
    StatusCase(
        "a refused route",
        "HTTPRoute",
        [a_parent("False", reason="NotAllowedByListeners")],
        "Accepted is False: NotAllowedByListeners",
    ),
    StatusCase(
        "a route with a lost backend",
        "HTTPRoute",
        [a_parent(resolved="False", reason="BackendNotFound")],
        "ResolvedRefs is False: BackendNotFound",
    ),
    StatusCase(
        "another gateway's status",
        "HTTPRoute",
        [a_parent(name="other")],
        "no gateway has reported a status for it yet",
    ),
    StatusCase(
        "a route without a condition for its references",
        "HTTPRoute",
        [a_parent(resolved="")],
        "ResolvedRefs is not reported yet",
    ),
    StatusCase(
        "a pool without a condition for its references",
        "InferencePool",
        [a_parent(resolved="")],
        "",
    ),
    StatusCase(
        "a pool with a lost picker",
        "InferencePool",
        [a_parent(resolved="False", reason="X")],
        "ResolvedRefs is False: X",
    ),
    StatusCase(
        "our gateway accepts what another refuses",
        "HTTPRoute",
        [a_parent("False", name="other"), a_parent()],
        "",
    ),
]


@pytest.mark.parametrize("case", STATUS_CASES, ids=lambda case: case.story)
def test_a_route_or_pool_is_accepted_as_our_gateway_reports(case: StatusCase) -> None:
    view = observe_replica(
        [seen(case.kind, status={"parents": case.parents})], {}, {}, CREATED
    ).observed
    (found,) = view.routes or view.pools
    assert (found.accepted, found.message) == (not case.message, case.message)


def test_a_verdict_on_an_older_spec_is_ignored() -> None:
    route = seen(
        "HTTPRoute", generation=2, status={"parents": [a_parent(generation=1)]}
    )
    (found,) = observe_replica([route], {}, {}, CREATED).observed.routes
    assert (found.accepted, found.message) == (
        False,
        "Accepted is not reported yet for the current generation",
    )


def test_a_pool_without_a_status_is_accepted_after_a_minute_if_the_route_is_accepted() -> (
    None
):
    pool, route = (
        seen("InferencePool"),
        seen("HTTPRoute", status={"parents": [a_parent()]}),
    )
    early = observe_replica([pool, route], {}, {}, CREATED)
    assert not early.observed.pools[0].accepted
    assert early.changes_at == CREATED + timedelta(seconds=60)
    late = observe_replica([pool, route], {}, {}, LATER)
    assert late.observed.pools[0].accepted
    assert late.changes_at is None
    assert (
        not observe_replica([pool, seen("HTTPRoute")], {}, {}, LATER)
        .observed.pools[0]
        .accepted
    )


def test_endpoints_come_from_the_service_that_gets_the_requests() -> None:
    backend = seen("Service", labels={"app.kubernetes.io/component": "routing"})
    picker = seen("Service", labels={"app.kubernetes.io/component": "epp"})
    assert (
        observe_replica(
            [backend], {}, {("ml-team", "main"): 3}, CREATED
        ).observed.endpoints_ready
        == 3
    )
    assert (
        observe_replica(
            [picker], {}, {("ml-team", "main"): 3}, CREATED
        ).observed.endpoints_ready
        == 0
    )


def test_an_object_without_an_owner_is_not_kept() -> None:
    foreign = an_item("Service")
    foreign["metadata"]["labels"] = {}
    assert read_object(foreign) is None
