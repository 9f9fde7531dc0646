"""A hostile cluster cannot choose the number of objects that reach a workflow."""

from collections.abc import Callable
from typing import Any

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.capacity.adapters import ADAPTERS, CapacityAdapter
from activities.clusters.capacity.objects import CapacityObjects
from activities.clusters.watch.capacity_tracker import CapacityTracker
from activities.observe.cache import MODEL_CACHE, JobSeen, VolumeSeen, observe_cache
from activities.observe.capacity import NodeSeen, observe_nodes
from activities.observe.objects import ObjectSeen, WorkloadSeen
from activities.observe.pods import PodSeen
from activities.observe.replica import observe_replica, workload_key
from api_types import labels
from api_types.clock import utc_now
from api_types.limits import OBSERVED_MAX, REPLICAS_ON_CLUSTER_MAX
from api_types.messages.capacity import CapacityQueue
from api_types.messages.observations import ObservedVolume
from tests.environment.effort import effort_below

MADE_UP = range(REPLICAS_ON_CLUSTER_MAX + 1)
REPLICA, CACHE = (
    ObjectOwner("ModelReplica", "ml", "qwen-0", "u1"),
    ObjectOwner(MODEL_CACHE, "ml", "qwen", "u2"),
)


def test_the_reported_objects_of_a_replica_are_limited() -> None:
    workload = WorkloadSeen(
        current=True,
        desired=1,
        updated=1,
        ready=1,
        available=1,
        total=1,
        hashes=frozenset(),
        message="",
    )
    objects = [
        ObjectSeen(
            ObjectId(kinds.DEPLOYMENT, "ml", f"d{number}"), REPLICA, "digest", workload
        )
        for number in MADE_UP
    ]
    key = workload_key(objects[0])
    pods = [
        PodSeen(
            key,
            serving=True,
            ready=True,
            terminating=False,
            template_hash=f"hash-{number}",
            not_ready=None,
        )
        for number in MADE_UP
    ]
    observed = observe_replica(objects, {key: pods}, {}, utc_now()).observed
    assert (
        len(observed.objects),
        len(observed.workloads),
        len(observed.workloads[0].hashes),
    ) == (OBSERVED_MAX,) * 3


def test_the_reported_volumes_and_jobs_of_a_cache_are_limited() -> None:
    volumes = [
        VolumeSeen(CACHE, ObservedVolume(claim=f"c{number}")) for number in MADE_UP
    ]
    jobs = [
        JobSeen(CACHE, f"c{number}", f"j{number}", "Running", "", deleting=False)
        for number in MADE_UP
    ]
    observed = observe_cache("eu", volumes, jobs, [])
    assert (len(observed.volumes), len(observed.jobs)) == (OBSERVED_MAX, OBSERVED_MAX)


@pytest.mark.slow
def test_the_reported_pools_queues_and_workloads_of_a_cluster_are_limited() -> None:
    nodes = [
        NodeSeen(f"n{number}", f"p{number}", ready=True, schedulable=True)
        for number in MADE_UP
    ]
    assert len(observe_nodes(nodes, [])) == OBSERVED_MAX

    def queues(_: CapacityObjects) -> list[CapacityQueue]:
        names = [f"q{number}" for number in MADE_UP]
        return [
            CapacityQueue(name=name, tenants=names, pools=names)
            for name in names[: OBSERVED_MAX + 1]
        ]

    objects = CapacityObjects()
    for number in MADE_UP:
        made_up: dict[str, Any] = {
            "name": f"p{number}",
            "namespace": "ml",
            "labels": {labels.SERVING: f"w{number}", labels.POOL: f"p{number}"},
        }
        for kind in ("Pod", "Node"):
            objects.put(
                kind,
                "ml",
                f"p{number}",
                {"metadata": made_up, "spec": {}, "status": {}},
            )
    seen = CapacityAdapter("test", queues=queues).snapshot("eu", objects, 0)
    assert (len(seen.pools), len(seen.queues), len(seen.admission)) == (
        OBSERVED_MAX,
        OBSERVED_MAX,
        REPLICAS_ON_CLUSTER_MAX,
    )
    assert {(len(queue.tenants), len(queue.pools)) for queue in seen.queues} == {
        (OBSERVED_MAX, OBSERVED_MAX)
    }


def objects_of(*made: tuple[str, dict[str, Any]]) -> CapacityObjects:
    objects = CapacityObjects()
    for kind, item in made:
        objects.put(
            kind, "", item["metadata"]["name"], {"spec": {}, "status": {}, **item}
        )
    return objects


MANY = range(4000)
Made = list[tuple[str, dict[str, Any]]]


def a_slice(number: int) -> dict[str, Any]:
    spec = {"driver": "d", "pool": {"name": f"n{number}"}, "nodeName": f"n{number}"}
    return {"metadata": {"name": f"s{number}"}, "spec": spec}


def a_queue(number: int) -> dict[str, Any]:
    flavor = {"name": "f", "resources": [{"name": "gpu", "nominalQuota": 1}]}
    return {
        "metadata": {"name": f"q{number}"},
        "spec": {"cohortName": "c", "resourceGroups": [{"flavors": [flavor]}]},
    }


def nodes_and_slices() -> Made:
    nodes = [
        (
            "Node",
            {"metadata": {"name": f"n{number}", "labels": {labels.POOL: f"p{number}"}}},
        )
        for number in MANY
    ]
    return [*nodes, *(("ResourceSlice", a_slice(number)) for number in MANY)]


def a_cohort() -> Made:
    return [("ClusterQueue", a_queue(number)) for number in MANY]


def a_chain() -> Made:
    return [
        (
            "Queue",
            {
                "metadata": {"name": f"q{number}"},
                "spec": {"parentQueue": f"q{number + 1}"},
            },
        )
        for number in MANY
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("adapter", "made"),
    [("kube", nodes_and_slices), ("kueue", a_cohort), ("kai", a_chain)],
)
def test_the_time_of_a_snapshot_does_not_grow_quadratically(
    adapter: str, made: Callable[[], Made]
) -> None:
    """The worker of all clusters reads it, and does nothing else meanwhile."""
    objects = objects_of(*made())
    with effort_below(200):
        ADAPTERS[adapter].snapshot("eu", objects, 0)


@pytest.mark.parametrize(
    "spec",
    [
        {"resourceGroups": [{"flavors": [{"resources": [{}]}]}]},
        {"resourceGroups": [3]},
        {"resourceGroups": {"a": "b"}},
    ],
)
def test_a_queue_without_its_fields_is_not_the_end_of_the_watch(spec: Any) -> None:
    tracker = CapacityTracker(ADAPTERS["kueue"], "eu")
    tracker.synced, tracker.objects = (
        True,
        objects_of(("ClusterQueue", {"metadata": {"name": "q"}, "spec": spec})),
    )
    assert tracker.snapshot(utc_now()) is None
