"""The limits of a cluster's own admission: full queues, and replicas that wait too
long.
"""

from dataclasses import replace
from typing import Any

import pytest

from api_types.names import replica_name, tenant_queue, workload_name
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.manifests import cluster_view
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.snapshots import snapshot
from scheduler.model.inputs import AdmissionView, ClusterView, QueueView
from scheduler.model.policy import SchedulerOptions
from scheduler.placement.limits.queue_limits import (
    QueueLimits,
    devices_of,
    is_old,
    next_timeouts,
)
from tests.scheduler.builders import (
    NAMESPACE,
    NOW,
    actions,
    alone,
    ask,
    at_least,
    cluster,
    codes,
    condition,
    decided,
    deployment,
    engine,
    evicted,
    fleet,
    gpu,
    message,
    nic,
    places,
    pool,
    put_replicas,
    settled,
)

MINUTE = 60_000
QUEUE = tenant_queue(NAMESPACE)
M0 = workload_name(NAMESPACE, replica_name(NAMESPACE, "m", "a", 0))


def queued(
    name: str = "a", nodes: int = 4, free: int = 16, **fields: Any
) -> ClusterView:
    """A cluster of 8-GPU nodes whose tenant queue would still admit this number of
    devices.
    """
    queue = QueueView("q", fields.pop("tenants", (QUEUE,)), fields.pop("on", ()), free)
    return cluster(name, nodes, queues=(queue,), **{"observed_at": NOW, **fields})


@pytest.mark.parametrize(
    ("view", "placed"),
    [
        (queued(free=16), 2),
        (queued(free=15), 1),
        (queued(free=0), 0),
        (queued(free=-1), 4),
        (queued(free=0, tenants=("modelplane-others",)), 4),
        (queued(free=0, on=("elsewhere",)), 4),
        (queued(free=0, observed_at=NOW - 11 * MINUTE), 4),
    ],
    ids=[
        "two nodes",
        "a part is none",
        "nothing",
        "no limit",
        "another tenant's",
        "other pools",
        "too old",
    ],
)
def test_a_queue_limits_placements(view: ClusterView, placed: int) -> None:
    assert len(decided(fleet(view), deployment(want=4)).placements) == placed


def test_admitted_workloads_are_not_subtracted_twice() -> None:
    """Two nodes are charged.

    The queue has already subtracted one of them from its free 16 devices.
    """
    admitted = (AdmissionView(M0, "Admitted"),)
    for admission, more in (((), 0), (admitted, 1)):
        world = fleet(queued(free=16, admission=admission))
        put_replicas(world, deployment(), "a/0", "a/1")
        assert len(decided(world, deployment(name="other", want=4)).placements) == more


def test_engines_of_one_replica_share_the_queue() -> None:
    two = deployment(engine("x"), engine("y", alone(ask(at_least("20Gi")))))
    view = replace(queued(free=8), pools=(pool("p", 1), pool("q", 1, gpu("40Gi"))))
    refused = decided(fleet(view), two)
    assert codes(refused) == {"Policy": 1}
    assert "violated queue q: needs 16 devices, 8 left" in refused.message
    assert places(
        decided(fleet(replace(view, queues=(QueueView("q", (QUEUE,), (), 16),))), two)
    ) == ["a/0"]


def waiting(name: str, minutes: int, **fields: Any) -> ClusterView:
    seen = AdmissionView(M0, "Pending", "Unschedulable", NOW - minutes * MINUTE)
    return cluster(name, 2, admission=(seen,), observed_at=NOW, **fields)


def stuck(minutes: int, *others: ClusterView, **fields: Any) -> Fleet:
    """A replica on `a` whose pods have waited this number of minutes."""
    world = fleet(waiting("a", minutes), *others)
    put_replicas(
        world, deployment(), "a/0", **{"ready": False, "serving": False, **fields}
    )
    return world


def test_a_replica_that_waits_too_long_moves_once_another_place_exists() -> None:
    moved = decided(stuck(16, cluster("b", 2)), deployment())
    assert actions(moved) == {"b/0": "Create"}
    assert list(evicted(moved).values()) == ["NotAdmitted"]
    assert moved.refused == (("a", "p"),)
    assert (
        "waited 960 s for admission on a/p: Unschedulable" in moved.evictions[0].detail
    )


def evicted_on(name: str, minutes: int, **fields: Any) -> ClusterView:
    seen = AdmissionView(
        M0, "Evicted", "Preempted: by a higher priority", NOW - minutes * MINUTE
    )
    return cluster(name, 2, admission=(seen,), observed_at=NOW, **fields)


def test_an_evicted_replica_is_reported_at_once_and_moves_after_the_timeout() -> None:
    why = "its pods were evicted from a/p: Preempted: by a higher priority"
    world = fleet(evicted_on("a", 1), cluster("b", 2))
    put_replicas(world, deployment(), "a/0", ready=False, serving=False)
    kept = decided(world, deployment())
    assert (actions(kept), kept.refused) == ({"a/0": "Keep"}, ())
    assert condition(kept, "Evicted") == ("True", "Evicted")
    assert why in message(kept, "Evicted")

    world.put_cluster(evicted_on("a", 16))
    moved = decided(world, deployment())
    assert (actions(moved), list(evicted(moved).values()), moved.refused) == (
        {"b/0": "Create"},
        ["NotAdmitted"],
        (("a", "p"),),
    )
    assert moved.evictions[0].detail == (
        "its pods were evicted from a/p 960 s ago and have not been admitted again: "
        "Preempted: by a higher priority"
    )


def test_a_replica_that_lost_some_of_its_pods_and_still_serves_stays() -> None:
    world = fleet(evicted_on("a", 30), cluster("b", 2))
    put_replicas(world, deployment(), "a/0", ready=False, serving=True)
    kept = decided(world, deployment())
    assert actions(kept) == {"a/0": "Keep"}
    assert [note.reason for note in kept.notes] == ["Evicted"]


def test_the_timeout_of_an_evicted_replica_is_known() -> None:
    options = SchedulerOptions()
    due = NOW - MINUTE + (options.admission_timeout_seconds + 1) * 1000
    assert list(next_timeouts(evicted_on("a", 1), options)) == [(M0, due)]


def test_evicted_workloads_are_still_charged_to_the_queue() -> None:
    """Its quota is free again, and it will be admitted again, so no other replica gets
    the same nodes.
    """
    for state, more in (("Admitted", 2), ("Evicted", 1)):
        world = fleet(queued(free=16, admission=(AdmissionView(M0, state, since=NOW),)))
        put_replicas(world, deployment(), "a/0")
        assert len(decided(world, deployment(name="other", want=4)).placements) == more


@pytest.mark.parametrize(
    ("minutes", "fields"),
    [(15, {}), (16, {"serving": True}), (16, {"ready": True, "serving": True})],
    ids=["within the timeout", "serving with what it has", "ready"],
)
def test_a_replica_that_waits_a_little_or_serves_stays(
    minutes: int, fields: dict[str, Any]
) -> None:
    kept = decided(stuck(minutes, cluster("b", 2), **fields), deployment())
    assert (actions(kept), kept.refused) == ({"a/0": "Keep"}, ())


def test_without_another_place_the_replica_stays_and_a_note_says_so() -> None:
    kept = decided(stuck(16), deployment())
    assert actions(kept) == {"a/0": "Keep"}
    assert [note.reason for note in kept.notes] == ["ReplacementBlocked"]


def test_an_old_observation_moves_nothing() -> None:
    world = fleet(
        replace(waiting("a", 30), observed_at=NOW - 11 * MINUTE), cluster("b", 2)
    )
    put_replicas(world, deployment(), "a/0", ready=False, serving=False)
    assert actions(decided(world, deployment())) == {"a/0": "Keep"}


def test_a_refusal_concerns_one_deployment_and_one_pool_and_expires() -> None:
    world = stuck(16, cluster("b", 1))
    settled(world, deployment())
    for uid in [entry.uid for entry in world.entries() if entry.state == "Releasing"]:
        world.release(uid)
    more = deployment(want=2)
    hour = SchedulerOptions().refusal_seconds * 1000
    assert places(decided(world, more, NOW + hour - 1)) == ["b/0"]
    assert codes(decided(world, more, NOW + hour - 1)) == {
        "Policy": 1,
        "InsufficientNodes": 1,
    }
    assert places(decided(world, deployment(name="other"), NOW + 1)) == ["a/0"]
    assert places(
        decided(snapshot.load(snapshot.dump(world)), more, NOW + hour - 1)
    ) == ["b/0"]
    assert places(decided(world, more, NOW + hour)) == ["a/0", "b/0"]


def test_the_snapshot_reaches_the_cluster_through_its_report() -> None:
    manifest = {
        "metadata": {"name": "a"},
        "spec": {
            "nodePools": [
                {"name": "p", "className": "h100", "nodeCount": 1, "maxNodeCount": 6},
                {"name": "fixed", "nodeCount": 3},
            ]
        },
        "status": {
            "gpuPools": [
                {"name": name, "nodes": nodes, "devices": []}
                for name, nodes in (("p", 6), ("fixed", 3), ("unseen", 2))
            ],
            "capacity": {
                "observedAt": NOW,
                "pools": [
                    {
                        "name": "p",
                        "nodesTotal": 4,
                        "nodesSchedulable": 2,
                        "foreignNodes": 1,
                    },
                    {"name": "fixed", "nodesTotal": 1, "nodesSchedulable": 1},
                ],
                "queues": [
                    {"name": "q", "tenants": [QUEUE], "pools": ["p"], "free": 8}
                ],
                "admission": [
                    {"workload": "w", "state": "Pending", "reason": "Gated", "since": 5}
                ],
            },
        },
    }
    view = cluster_view(manifest)
    seen = [
        (
            one.name,
            one.observed.schedulable,
            one.observed.growable,
            one.observed.foreign,
        )
        for one in view.pools
        if one.observed
    ]
    assert seen == [("p", 2, 2, 1), ("fixed", 1, 0, 0), ("unseen", 0, 0, 0)]
    assert (view.queues, view.observed_at) == (
        (QueueView("q", (QUEUE,), ("p",), 8),),
        NOW,
    )
    assert view.admission == (AdmissionView("w", "Pending", "Gated", 5),)


@pytest.mark.parametrize(
    ("entries", "devices"),
    [
        ((gpu(count=5),), 5),
        ((gpu(count=5), nic(count=3)), 8),
        ((gpu(count=5), nic(count=-3)), 5),
        ((gpu(count=5), nic(count=3, claim="Synthetic")), 5),
        ((gpu(count=5, claim="DevicePlugin"), nic(count=3)), 8),
        ((gpu(count=0),), 1),
        ((gpu(count=5), nic(count=3, claim="Slot")), 5),
        ((gpu(count=7, claim="Synthetic"),), 1),
    ],
)
def test_a_node_counts_as_its_claimable_devices(
    entries: tuple[Any, ...], devices: int
) -> None:
    assert devices_of(pool("p", 1, *entries)) == devices


@pytest.mark.parametrize(
    ("queues", "nodes"),
    [
        ([], [5, 7]),
        ([QueueView("q", (QUEUE,), (), 13)], [2, 4]),
        ([QueueView("q", (QUEUE,), (), 10)], [2, 3]),
        ([QueueView("q", (QUEUE,), (), 9)], [1, 3]),
        ([QueueView("q", (QUEUE,), ("five",), 13)], [2, 7]),
        ([QueueView("q", (QUEUE,), ("three",), 13)], [5, 4]),
        ([QueueView("q", (QUEUE,), ("five", "three"), 13)], [2, 4]),
        ([QueueView("q", (QUEUE,), ("other",), 13)], [5, 7]),
        ([QueueView("q", ("others",), (), 13)], [5, 7]),
        ([QueueView("q", ("others", QUEUE), (), 13)], [2, 4]),
        ([QueueView("q", (QUEUE,), (), 0)], [0, 0]),
        ([QueueView("q", (QUEUE,), (), -1)], [5, 7]),
        ([QueueView("q", (QUEUE,), (), 1_000)], [5, 7]),
        (
            [QueueView("q", (QUEUE,), ("five",), 6), QueueView("r", (QUEUE,), (), 13)],
            [1, 4],
        ),
    ],
)
def test_the_nodes_of_each_pool_that_all_queues_would_admit(
    queues: list[QueueView], nodes: list[int]
) -> None:
    view = cluster(
        "a",
        pool("five", 5, gpu(count=5)),
        pool("three", 7, gpu(count=3)),
        queues=tuple(queues),
        observed_at=NOW,
    )
    overlay = FleetOverlay(fleet(view), NOW)
    assert (
        QueueLimits(overlay, overlay.clusters["a"], (NAMESPACE, "m")).nodes([5, 7])
        == nodes
    )


def test_an_observation_is_used_until_its_limit() -> None:
    view, options = (
        cluster("a", 1, observed_at=NOW),
        SchedulerOptions(observed_limit_seconds=7),
    )
    assert [is_old(view, NOW + later, options) for later in (0, 7_000, 7_001)] == [
        False,
        False,
        True,
    ]


@pytest.mark.parametrize(
    ("milliseconds", "waits"),
    [(899_999, True), (900_999, True), (901_000, False)],
    ids=["less than the timeout", "within its second", "a second more"],
)
def test_a_replica_waits_for_its_admission_for_the_whole_timeout(
    milliseconds: int, waits: bool
) -> None:
    seen = AdmissionView(M0, "Pending", "Unschedulable", NOW - milliseconds)
    world = fleet(cluster("a", 2, admission=(seen,), observed_at=NOW), cluster("b", 2))
    put_replicas(world, deployment(), "a/0", ready=False, serving=False)
    assert actions(decided(world, deployment())) == (
        {"a/0": "Keep"} if waits else {"b/0": "Create"}
    )
