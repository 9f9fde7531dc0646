"""The nodes of a created cluster that the scheduler counts, and its unready objects."""

from typing import Any

import pytest

from api_types.messages.clouds import CloudObjectState
from api_types.messages.observations import ObservedCluster, ObservedNodes
from tests.activities.clouds.builders import a_pool
from workflows.inference_cluster.classes import published_pools
from workflows.inference_cluster.cloud_pools import (
    shown_objects,
    unready_message,
    unready_objects,
    unready_reason,
)
from workflows.inference_cluster.cloud_state import CloudLink
from workflows.inference_cluster.reports import scheduler_report
from workflows.inference_cluster.state import ClusterState, KnownClass

NEXT = "wait for machines"
HEALTHY = CloudObjectState(
    key="pool/gpu",
    kind="NodePool",
    name="gpu",
    pool="gpu",
    phase="Ready",
    ready=True,
    was_ready=True,
)
DEGRADED = HEALTHY.model_copy(
    update={
        "phase": "Degraded",
        "ready": False,
        "lacks_nodes": True,
        "reason": "CapacityUnavailable",
        "code": "GCE_STOCKOUT",
        "message": "no machines",
        "since": "2026-01-05T12:00:00Z",
        "next_step": NEXT,
        "retry_at": "2026-01-05T12:10:00Z",
    }
)
WAITING = HEALTHY.model_copy(
    update={
        "phase": "Creating",
        "ready": False,
        "was_ready": False,
        "lacks_nodes": True,
        "message": "waits for cluster",
    }
)
REPLACE = HEALTHY.model_copy(
    update={"ready": False, "reason": "ReplaceRequired", "message": "machine type"}
)
TEMPLATE = CloudObjectState(
    key="lt/gpu", kind="LaunchTemplate", name="x-lt-gpu", pool="gpu", reason="Busy"
)


def a_state(
    *states: CloudObjectState, source: str = "GKE", **more: Any
) -> ClusterState:
    """Return a cluster whose pool has up to four nodes."""
    spec = {
        "cluster": {"source": source, "gke": {"region": "europe-west4"}},
        "nodePools": [a_pool(maxNodeCount=4)],
    }
    known = KnownClass(generation=1, spec={"devices": []})
    link = CloudLink(states=list(states), was_ready=more.pop("was_ready", True))
    return ClusterState(
        uid="u", spec=spec, generation=1, classes={"l4": known}, cloud=link, **more
    )


def with_nodes(ready: int, *, reachable: bool = True) -> ObservedCluster:
    nodes = [ObservedNodes(pool="gpu", total=4, ready=ready)] if ready else []
    return ObservedCluster(reachable=reachable, nodes=nodes)


NO_MACHINES = (
    "the cloud provides {} of 4 nodes: NodePool gpu: CapacityUnavailable: no machines; "
    f"next step: {NEXT}"
)
ALL_THERE = NO_MACHINES.replace("{} of", "no more than")


@pytest.mark.parametrize(
    ("states", "observed", "expected"),
    [
        ([HEALTHY], None, (4, None)),
        ([HEALTHY], with_nodes(1), (4, None)),
        ([HEALTHY, TEMPLATE], with_nodes(1), (4, None)),
        ([REPLACE], with_nodes(1), (4, None)),
        ([DEGRADED], with_nodes(3), (3, NO_MACHINES.format(3))),
        ([DEGRADED], with_nodes(0), (0, NO_MACHINES.format(0))),
        ([DEGRADED], with_nodes(4), (4, ALL_THERE)),
        ([DEGRADED], with_nodes(1, reachable=False), (4, ALL_THERE)),
        ([DEGRADED], None, (4, ALL_THERE)),
        (
            [WAITING],
            None,
            (0, "the cloud provides 0 of 4 nodes: NodePool gpu: waits for cluster"),
        ),
        (
            [WAITING],
            with_nodes(2),
            (2, "the cloud provides 2 of 4 nodes: NodePool gpu: waits for cluster"),
        ),
        ([], None, (0, "the cloud provides 0 of 4 nodes: it does not exist yet")),
    ],
    ids=[
        "the cloud scales a healthy pool",
        "an autoscaled pool with one node grows",
        "a template that cannot be changed",
        "a pool that cannot be changed",
        "a degraded pool keeps its nodes",
        "a degraded pool without nodes",
        "a degraded pool with all nodes",
        "the cluster does not answer",
        "nothing was observed yet",
        "a pool that waits",
        "a pool that has some of its first nodes",
        "a pool that is not planned yet",
    ],
)
def test_the_scheduler_counts_the_nodes_that_the_cloud_provides(
    states: list[CloudObjectState],
    observed: ObservedCluster | None,
    expected: tuple[int, str | None],
) -> None:
    state = a_state(*states, observed=observed)
    state.pools = published_pools(state)
    report = scheduler_report("prod", state, gone=False).manifest
    (pool,) = report["status"]["gpuPools"]
    assert (pool["nodes"], pool.get("shortage")) == expected


def test_the_nodes_of_an_existing_cluster_are_those_of_its_spec() -> None:
    (pool,) = published_pools(a_state(source="Existing"))
    assert pool == {"name": "gpu", "nodes": 4, "devices": []}


BINDING = CloudObjectState(
    key="iam/binding",
    kind="IAM binding",
    name="mp-x",
    reason="PermissionDenied",
    message="lacks resourcemanager.projects.setIamPolicy",
    since="2026-01-05T12:00:00Z",
    next_step="grant the permission that the message names",
)


def test_the_condition_names_pool_resource_words_time_and_next_step() -> None:
    waiting = WAITING.model_copy(update={"pool": "b", "key": "pool/b", "name": "b"})
    found = unready_objects(a_state(waiting, HEALTHY, DEGRADED, BINDING))
    assert unready_reason(found) == "CapacityUnavailable"
    assert unready_message(found).split("; ") == [
        (
            "pool gpu (NodePool gpu): CapacityUnavailable: no machines, since "
            "2026-01-05T12:00:00Z, next step: wait for machines, next attempt at "
            "2026-01-05T12:10:00Z"
        ),
        (
            "iam/binding (IAM binding mp-x): PermissionDenied: lacks "
            "resourcemanager.projects.setIamPolicy, since 2026-01-05T12:00:00Z, next step: "
            "grant the permission that the message names"
        ),
        "pool b (NodePool b): waits for cluster",
    ]
    assert unready_message([BINDING] * 5).endswith("; and 2 more")


def test_a_cluster_that_is_being_created_has_no_condition_for_what_it_waits_for() -> (
    None
):
    state = a_state(WAITING, was_ready=False)
    assert unready_objects(state) == []
    assert unready_objects(a_state(DEGRADED, was_ready=False)) == [DEGRADED]
    assert unready_objects(a_state(HEALTHY)) == []


def test_the_status_has_a_row_for_each_object_without_empty_fields() -> None:
    assert shown_objects(a_state(HEALTHY, BINDING)) == [
        {
            "object": "pool/gpu",
            "pool": "gpu",
            "kind": "NodePool",
            "name": "gpu",
            "phase": "Ready",
            "ready": True,
        },
        {
            "object": "iam/binding",
            "kind": "IAM binding",
            "name": "mp-x",
            "phase": "Waiting",
            "reason": "PermissionDenied",
            "message": "lacks resourcemanager.projects.setIamPolicy",
            "since": "2026-01-05T12:00:00Z",
            "nextStep": "grant the permission that the message names",
            "ready": False,
        },
    ]
