"""The use of capacity by pools and namespaces, in nodes and in devices."""

import pytest

from scheduler.explain.capacity_use import (
    NamespaceCapacityUse,
    PoolCapacityUse,
    QuotaUse,
    namespace_use,
    pool_use,
    quota_use,
)
from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import ClusterView, EngineView
from scheduler.model.policy import Quota, SchedulerOptions
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    cluster,
    deployment,
    engine,
    fleet,
    gpu,
    pool,
    report_releasing,
    settled,
)

BY_NODE = SchedulerOptions()
BY_DEVICE = SchedulerOptions(accounting="device-safe")
DRAINED = ("modelplane.ai/maintenance:NoExecute",)


def gpus(count: int) -> EngineView:
    return engine("main", alone(ask(count=count)))


def a_fleet(options: SchedulerOptions, **fields: object) -> Fleet:
    """One pool of four nodes of eight devices.

    One replica of six devices runs, one starts, and one of two is being removed.
    """
    world = fleet(cluster("a", pool("p", 4, gpu(count=8)), **fields), options=options)
    for name, count in (("bound", 6), ("starting", 6), ("leaving", 2)):
        decision = settled(world, deployment(gpus(count), name=name), request_id=name)
        uid = decision.placements[0].uid
        if name != "starting":
            world.bind(uid, NOW)
        if name == "leaving":
            report_releasing(world, uid)
    return world


@pytest.mark.parametrize(
    ("options", "use"),
    [
        # Two nodes have two idle devices each, and one has six.
        (BY_NODE, PoolCapacityUse("a", "p", "nodes", 4, 1, 2, 1, 0, idle_devices=10)),
        # Of the largest size that still fits, 6, the pool admits one more pod.
        (BY_DEVICE, PoolCapacityUse("a", "p", "devices", 32, 6, 8, 6, 12)),
    ],
    ids=["nodes", "devices"],
)
def test_the_use_of_a_pool_adds_up_to_its_capacity(
    options: SchedulerOptions, use: PoolCapacityUse
) -> None:
    (found,) = pool_use(a_fleet(options), NOW)
    assert found == use
    assert found.total == found.used + found.held + found.free + found.wasted


def test_a_quota_counts_the_replicas_of_its_namespace_on_its_pools() -> None:
    quotas = (
        Quota("other", max_nodes=5),
        Quota("ml", max_nodes=4),
        Quota("ml", max_devices=20, class_name="h100", priority_floor=10),
        Quota("ml", max_nodes=1, match_labels={"b": "2", "a": "1"}),
    )
    assert quota_use(a_fleet(SchedulerOptions(quotas=quotas)), NOW) == [
        QuotaUse("ml", "all pools", 3, 4, 14, -1),
        QuotaUse("ml", "class h100; priority 10 or higher", 0, -1, 0, 20),
        QuotaUse("ml", "clusters a=1, b=2", 0, 1, 0, -1),
        QuotaUse("other", "all pools", 0, 5, 0, -1),
    ]


def test_a_namespace_uses_what_its_replicas_are_charged() -> None:
    assert namespace_use(a_fleet(BY_NODE), NOW) == [
        NamespaceCapacityUse("ml", "nodes", 3, 1, 2, idle_devices=10)
    ]
    assert namespace_use(a_fleet(BY_DEVICE), NOW) == [
        NamespaceCapacityUse("ml", "devices", 3, 6, 8)
    ]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"ready": False}, "the cluster is not Ready"),
        ({"deleting": True}, "the cluster is being deleted"),
        ({"accounted": False}, "the scheduler rebuilds its ledger"),
        ({"taints": DRAINED}, "the cluster is drained or cordoned"),
        (
            {"pools": (pool("p", 4, gpu(count=8), class_missing=True),)},
            "its class is deleted",
        ),
        (
            {"pools": (pool("p", 4, gpu(count=8), unusable="no driver"),)},
            "no driver",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.parametrize("options", [BY_NODE, BY_DEVICE], ids=["nodes", "devices"])
def test_capacity_that_takes_no_replica_is_wasted_and_the_reason_is_named(
    options: SchedulerOptions, changed: dict[str, object], why: str
) -> None:
    world = a_fleet(options)
    parts = {"pools": (pool("p", 4, gpu(count=8)),), **changed}
    pools = parts.pop("pools")
    assert isinstance(pools, tuple)
    view: ClusterView = cluster("a", *pools, **parts)
    world.put_cluster(view, NOW)
    (found,) = pool_use(world, NOW)
    assert (found.free, found.why) == (0, why)
    assert found.wasted == found.total - found.used - found.held


def test_nodes_that_a_new_replica_takes_over_count_once() -> None:
    world = fleet(cluster("a", pool("p", 1, gpu(count=8))))
    first = settled(world, deployment(gpus(8)))
    world.bind(first.placements[0].uid, NOW)
    report_releasing(world, first.placements[0].uid)
    assert settled(world, deployment(gpus(8)), request_id="again").placements
    (found,) = pool_use(world, NOW)
    assert (found.total, found.held) == (1, 1)
    assert [use.held for use in namespace_use(world, NOW)] == [1]
