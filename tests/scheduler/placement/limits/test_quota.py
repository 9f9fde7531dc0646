"""Quotas of namespaces: the pools that they leave, and how their use is counted."""

from collections.abc import Callable

import pytest

from scheduler.decide import decide
from scheduler.fleet import change_log
from scheduler.fleet.caches import quota_usage
from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import ScheduleRequest
from scheduler.model.policy import PlacementPolicy, Quota, SchedulerOptions
from scheduler.planning.questions import headroom
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    at_least,
    bind_all,
    cluster,
    codes,
    decided,
    deployment,
    engine,
    finish_releases,
    fleet,
    gpu,
    message,
    places,
    pool,
    pools_of,
    put_replicas,
    settled,
)

BIG = pool("big", 4, gpu("192Gi"), class_name="h")
SMALL = pool("small", 2, gpu(), class_name="l")


def with_quota(*quotas: Quota) -> SchedulerOptions:
    return SchedulerOptions(quotas=quotas, priority_classes={"high": 100})


@pytest.mark.parametrize(
    "quota",
    [
        Quota("ml", max_nodes=0, class_name="h"),
        Quota("ml", max_devices=0, class_name="h"),
        Quota("ml", class_name="h", priority_floor=1),
    ],
    ids=["maxNodes", "maxDevices", "priorityFloor"],
)
@pytest.mark.parametrize("accounting", ["node", "device-safe"])
def test_a_quota_on_one_class_leaves_the_pools_of_another(
    quota: Quota, accounting: str
) -> None:
    world = fleet(
        cluster("a", BIG, SMALL),
        options=SchedulerOptions(quotas=(quota,), accounting=accounting),
    )
    assert pools_of(decided(world, deployment())) == ["small"]
    assert (
        headroom(world, deployment(), NOW).replicas
        == {"node": 2, "device-safe": 16}[accounting]
    )


def test_engines_are_arranged_so_that_the_quota_is_kept() -> None:
    """The first engine fits both pools, the second one only the big ones."""
    world = fleet(
        cluster("a", BIG, SMALL),
        options=with_quota(Quota("ml", max_nodes=1, class_name="h")),
    )
    wants = deployment(engine("x"), engine("y", alone(ask(at_least("192Gi")))))
    assert pools_of(decided(world, wants)) == ["small", "big"]


def test_an_exhausted_quota_is_reported_and_does_not_mark_the_cluster_as_full() -> None:
    world = fleet(
        cluster("a", 4), cluster("b", 4), options=with_quota(Quota("ml", max_nodes=1))
    )
    decision = settled(world, deployment(want=2))
    assert (places(decision), codes(decision)) == (["a/0"], {"Policy": 2})
    assert "2 were over quota (used 1 of 1 nodes, needs 1 more)" in message(decision)
    assert places(decided(world, deployment(namespace="other"))) == ["a/0"]


def put_one(world: Fleet, state: str = "Bound") -> None:
    put_replicas(world, deployment(name="first"), "a/0", pools="big", state=state)


def release_one(world: Fleet) -> None:
    put_one(world)
    world.release(next(iter(world.owned("ml", "first"))))


def put_one_releasing(world: Fleet) -> None:
    put_one(world, "Releasing")


def put_one_of_another_namespace(world: Fleet) -> None:
    put_replicas(world, deployment(namespace="other"), "a/0", pools="big")


def unpublish_its_pool(world: Fleet) -> None:
    put_one(world)
    world.put_cluster(cluster("a", SMALL))


def remove_its_cluster(world: Fleet) -> None:
    put_one(world)
    world.remove_cluster("a")


@pytest.mark.parametrize(
    ("change", "room"),
    [
        (put_one, 0),
        (put_one_releasing, 0),
        (release_one, 1),
        (put_one_of_another_namespace, 1),
        (unpublish_its_pool, 1),
        (remove_its_cluster, 1),
    ],
)
def test_the_use_of_a_quota_follows_every_change(
    change: Callable[[Fleet], None], room: int
) -> None:
    world = fleet(
        cluster("a", BIG), cluster("b", 4), options=with_quota(Quota("ml", max_nodes=1))
    )
    assert len(decided(world, deployment()).placements) == 1
    change(world)
    assert len(decided(world, deployment()).placements) == room
    assert world.audit() == []


def test_the_use_of_a_quota_follows_the_labels_of_a_cluster() -> None:
    world = fleet(
        cluster("a", BIG),
        cluster("b", 4, labels={"tier": "gold"}),
        options=with_quota(Quota("ml", -1, 0, {"tier": "gold"})),
    )
    world.set_options(
        with_quota(Quota("ml", max_nodes=1, match_labels={"tier": "gold"}))
    )
    put_one(world)
    assert places(decided(world, deployment(match_labels={"tier": "gold"}))) == ["b/0"]
    world.put_cluster(cluster("a", BIG, labels={"tier": "gold"}))
    assert places(decided(world, deployment(match_labels={"tier": "gold"}))) == []
    assert world.audit() == []


def test_the_use_of_a_quota_is_recounted_when_the_log_was_trimmed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(change_log, "_LENGTH_MAX", 3)
    world = fleet(cluster("a", 20), options=with_quota(Quota("ml", max_nodes=8)))
    for number in range(7):
        put_replicas(world, deployment(name=f"d{number}"), "a/0")
    assert len(decided(world, deployment(want=3)).placements) == 1
    assert world.audit() == []


def test_a_decision_does_not_count_the_replicas_of_its_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = 0
    real = quota_usage.amount_of

    def counting(*arguments: object) -> quota_usage.QuotaAmount:
        nonlocal counted
        counted += 1
        return real(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(quota_usage, "amount_of", counting)
    work = []
    for number in (10, 100):
        world = fleet(cluster("a", 200), options=with_quota(Quota("ml", max_nodes=150)))
        put_replicas(
            world,
            deployment(name="many", want=number),
            *(f"a/{index}" for index in range(number)),
        )
        decided(world, deployment(), request_id="first")
        counted = 0
        assert len(decided(world, deployment()).placements) == 1
        work.append(counted)
    assert work[0] == work[1]


def test_requests_of_a_batch_see_the_use_of_earlier_ones() -> None:
    world = fleet(cluster("a", 8), options=with_quota(Quota("ml", max_nodes=3)))
    asked = [
        ScheduleRequest(name, deployment(name=name, want=2)) for name in ("x", "y")
    ]
    assert [len(decision.placements) for decision in decide(world, asked, NOW)] == [
        2,
        1,
    ]


def test_a_deployment_may_use_the_quota_of_its_leaving_replicas() -> None:
    """Its releasing replica still counts for other deployments of its namespace."""
    world = fleet(cluster("a", 4), options=with_quota(Quota("ml", max_nodes=1)))
    put_replicas(world, deployment(), "a/0", pools="p", state="Releasing")
    assert places(decided(world, deployment(name="other"))) == []
    assert places(settled(world, deployment())) == ["a/1"]
    finish_releases(world)
    bind_all(world)
    assert (
        world.audit(),
        places(decided(world, deployment(want=2), request_id="2")),
    ) == ([], ["a/1"])


def test_victims_in_two_namespaces_give_back_only_the_use_of_this_quota() -> None:
    world = fleet(cluster("a", 2), options=with_quota(Quota("ml", max_nodes=1)))
    put_replicas(world, deployment(name="x", namespace="other"), "a/0")
    put_replicas(world, deployment(name="y"), "a/1")
    policy = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    decision = decided(world, deployment(want=1, name="hi", policy=policy))
    assert [(victim.namespace, victim.deployment) for victim in decision.victims] == [
        ("ml", "y")
    ]


def test_a_full_cluster_is_not_reported_as_over_quota() -> None:
    world = fleet(cluster("a", 1), options=with_quota(Quota("ml", max_nodes=5)))
    put_replicas(world, deployment(name="x"), "a/0")
    assert codes(decided(world, deployment())) == {"InsufficientNodes": 1}


def test_a_placement_on_one_cluster_uses_the_quota_on_all_clusters() -> None:
    world = fleet(
        cluster("a", 2),
        cluster("b", 2),
        options=SchedulerOptions(
            quotas=(Quota("ml", max_nodes=1),), profile="balanced"
        ),
    )
    assert len(decided(world, deployment(want=2)).placements) == 1
