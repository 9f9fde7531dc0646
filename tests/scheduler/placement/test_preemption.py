"""Which replicas are preempted for which deployments."""

from typing import Any

import pytest

from api_types.names import replica_name, tenant_queue, workload_name
from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import (
    AdmissionView,
    ClusterView,
    DeploymentView,
    EngineView,
    QueueView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from scheduler.planning.settle import copy_of
from tests.scheduler.builders import (
    NOW,
    bind_all,
    cluster,
    decided,
    deployment,
    engine,
    finish_releases,
    fleet,
    gpu,
    message,
    places,
    pool,
    put_replicas,
    settled,
)

OPTIONS = SchedulerOptions(priority_classes={"high": 100, "mid": 50})


def urgent(
    *engines: EngineView,
    preemption: str = "LowerPriority",
    want: int = 1,
    name: str = "urgent",
    klass: str = "high",
) -> DeploymentView:
    policy = PlacementPolicy(priority_class=klass, preemption=preemption)
    return deployment(*engines, want=want, name=name, policy=policy)


def test_the_fewest_replicas_of_the_lowest_priority_are_preempted() -> None:
    world = fleet(cluster("a", 4), cluster("b", 4), options=OPTIONS)
    for name, at, copies, priority in (
        ("x", "a/0", 4, 10),
        ("y", "b/0", 2, 0),
        ("z", "b/0", 2, 0),
    ):
        put_replicas(
            world, deployment(engine(copies=copies), name=name), at, priority=priority
        )
    decision = settled(world, urgent(engine(copies=2)))
    assert places(decision) == ["b/0"]
    assert [(v.deployment, v.reason, v.detail) for v in decision.victims] == [
        ("y", "Preempted", "Preempted by ml/urgent")
    ]
    assert decision.placements[0].after == (decision.victims[0].uid,)


def test_an_eviction_does_not_name_a_preemptor_of_another_namespace() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(
        world, deployment(engine(copies=2), name="x", namespace="others"), "a/0"
    )
    decision = settled(world, urgent())
    assert [(v.namespace, v.detail) for v in decision.victims] == [
        ("others", "Preempted by a deployment of another namespace")
    ]


def test_the_victims_nodes_are_nominated_for_the_preemptor() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="x"), "a/0")
    decision = settled(world, urgent())
    assert world.free("a") == {"p": 0}
    assert world.audit() == []
    assert copy_of(world).audit() == []
    assert places(decided(world, deployment(name="late"))) == []
    finish_releases(world)
    bind_all(world)
    assert world.free("a") == {"p": 1}
    assert world.audit() == []
    assert places(decided(world, urgent(), request_id="2")) == places(decision)


def test_a_victims_deployment_is_placed_elsewhere_by_its_next_request() -> None:
    world = fleet(cluster("a", 1), cluster("b", 0), options=OPTIONS)
    put_replicas(world, deployment(name="x"), "a/0")
    settled(world, urgent())
    world.put_cluster(cluster("b", 1))
    assert places(decided(world, deployment(name="x"))) == ["b/0"]


def test_the_youngest_of_equals_is_preempted() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(name="old"), "a/0", since=1)
    put_replicas(world, deployment(name="young"), "a/0", since=2)
    assert [v.deployment for v in settled(world, urgent()).victims] == ["young"]


REFUSALS = [
    (
        "168 equal priority",
        {"priority": 100},
        urgent(),
        "1 replicas have no lower priority",
    ),
    (
        "168 Never",
        {"priority": 0},
        urgent(preemption="Never"),
        "preemption is off (preemptionPolicy Never)",
    ),
    (
        "min available",
        {"priority": 0, "min_available": 1},
        urgent(),
        "1 replicas are needed for minAvailable",
    ),
]


@pytest.mark.parametrize(
    ("story", "fields", "view", "reason"), REFUSALS, ids=[row[0] for row in REFUSALS]
)
def test_no_replica_is_preempted_and_the_reason_is_shown(
    story: str, fields: dict[str, Any], view: DeploymentView, reason: str
) -> None:
    del story
    world = fleet(cluster("a", 1), options=OPTIONS)
    put_replicas(world, deployment(name="x"), "a/0", **fields)
    decision = decided(world, view)
    assert (places(decision), decision.victims) == ([], ())
    assert reason.lower() in message(decision).lower()


def test_a_deployment_is_preempted_once_per_cooldown() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(name="x", want=2), "a/0", "a/1")
    first = settled(world, urgent(want=2))
    assert (len(first.victims), first.shortfall) == (1, 1)
    assert "preempted recently" in message(first)
    finish_releases(world)
    bind_all(world)
    later = NOW + OPTIONS.preemption_cooldown_seconds * 1000
    assert decided(world, urgent(want=2), later - 1, "2").victims == ()
    assert len(decided(world, urgent(want=2), later, "2").victims) == 1


def test_preemptions_are_remembered_for_the_cooldown_and_no_longer() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(name="x", want=2), "a/0", "a/1")
    settled(world, urgent())
    assert list(world.preempted_at) == [("ml", "x")]
    finish_releases(world)
    later = NOW + OPTIONS.preemption_cooldown_seconds * 1000
    apply(world, decided(world, urgent(), later - 1, "2"))
    assert list(world.preempted_at) == [("ml", "x")]
    apply(world, decided(world, urgent(), later, "3"))
    assert world.preempted_at == {}


def test_the_highest_priority_of_victims_counts_before_their_number() -> None:
    world = fleet(cluster("a", 2), cluster("b", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="one"), "a/0", priority=50)
    put_replicas(world, deployment(name="two"), "b/0")
    put_replicas(world, deployment(name="three"), "b/0")
    assert {v.deployment for v in decided(world, urgent(engine(copies=2))).victims} == {
        "two",
        "three",
    }


def test_a_higher_priority_in_the_same_batch_is_never_a_victim() -> None:
    world = fleet(cluster("a", 1), options=OPTIONS)
    first, second = decide(
        world,
        [
            ScheduleRequest("1", urgent()),
            ScheduleRequest("2", urgent(name="other", klass="mid")),
        ],
        NOW,
    )
    assert (places(first), places(second)) == (["a/0"], [])
    apply(world, first)
    assert world.audit() == []


def test_no_replica_is_preempted_when_that_would_not_be_enough() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(name="x"), "a/0")
    decision = decided(world, urgent(engine(copies=3)))
    assert (decision.victims, places(decision)) == ((), [])


def test_a_higher_priority_takes_over_a_nomination_once() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="x"), "a/0")
    first = settled(world, urgent(engine(copies=2), name="middle", klass="mid"))
    assert [victim.deployment for victim in first.victims] == ["x"]
    higher = urgent(engine(copies=2), name="higher")
    second = settled(world, higher, request_id="2")
    assert places(second) == ["a/0"]
    assert [victim.deployment for victim in second.victims] == ["middle"]
    assert (world.free("a"), world.audit()) == ({"p": 0}, [])
    leaving = [entry for entry in world.entries() if entry.state == "Releasing"]
    assert {
        entry.deployment: entry.nominated_for for entry in leaving
    } == dict.fromkeys(("x", "middle"), ("ml", "higher"))
    assert set(second.placements[0].after) == {entry.uid for entry in leaving}


@pytest.mark.parametrize("order", [("x", "middle"), ("middle", "x")], ids=" then ".join)
def test_nodes_of_a_lost_nomination_are_free_for_no_other_in_any_order_of_releases(
    order: tuple[str, str],
) -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="x"), "a/0")
    settled(world, urgent(engine(copies=2), name="middle", klass="mid"))
    settled(world, urgent(engine(copies=2), name="higher"), request_id="2")
    for name in order:
        world.release(next(iter(world.owned("ml", name))))
        assert (world.free("a"), world.audit()) == ({"p": 0}, [])
    assert [entry.deployment for entry in world.entries()] == ["higher"]
    world.release(next(iter(world.owned("ml", "higher"))))
    assert world.free("a") == {"p": 2}


def test_an_equal_priority_does_not_take_over_a_nomination() -> None:
    world = fleet(cluster("a", 1), options=OPTIONS)
    put_replicas(world, deployment(name="x"), "a/0")
    settled(world, urgent(name="first"))
    assert places(decided(world, urgent(name="second"), request_id="2")) == []


def test_room_left_by_a_victim_is_used_before_another_preemption() -> None:
    world = fleet(cluster("a", 8), options=OPTIONS)
    for number in range(2):
        put_replicas(
            world, deployment(engine(copies=4), name=f"l{number}"), f"a/{number}"
        )
    decision = settled(world, urgent(want=4))
    assert (len(decision.victims), places(decision)) == (
        1,
        ["a/0", "a/1", "a/2", "a/3"],
    )
    assert [
        placement.action
        for placement in decided(world, urgent(want=4), request_id="2").placements
    ] == ["Keep"] * 4


@pytest.mark.parametrize("protected", [0, 4], ids=["no minAvailable", "minAvailable 4"])
def test_only_the_needed_devices_are_freed(protected: int) -> None:
    options = SchedulerOptions(priority_classes={"high": 100}, accounting="device-safe")
    world = fleet(cluster("a", pool("p", 1, gpu(count=8))), options=options)
    low = deployment(
        want=8, name="low", policy=PlacementPolicy(min_available=protected)
    )
    assert len(settled(world, low).placements) == 8
    bind_all(world)
    decision = settled(world, urgent())
    assert (len(decision.victims), len(decision.placements)) == (1, 1)


def gang_of(size: int, want: int, **fields: Any) -> DeploymentView:
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", gang_replicas=size
    )
    return deployment(want=want, name="gang", policy=policy, **fields)


def test_a_gang_preempts_for_all_its_replicas_or_for_none() -> None:
    world = fleet(cluster("a", 1), cluster("b", 1), options=OPTIONS)
    put_replicas(world, deployment(name="x"), "a/0")
    put_replicas(world, deployment(name="y"), "b/0", priority=100)
    decision = decided(world, gang_of(2, 2))
    assert (decision.victims, places(decision)) == ((), [])
    put_replicas(world, deployment(name="z"), "b/1")
    world.put_cluster(cluster("b", 2))
    decision = decided(world, gang_of(2, 2))
    assert [victim.deployment for victim in decision.victims] == ["x", "z"]
    assert places(decision) == ["a/0", "b/0"]
    assert decided(world, gang_of(2, 2)) == decision


def test_a_gang_may_take_several_replicas_of_one_deployment_at_once() -> None:
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(name="x", want=2), "a/0", "a/1")
    assert len(decided(world, gang_of(2, 2)).victims) == 2


def test_a_nomination_survives_requests_of_other_deployments() -> None:
    world = fleet(cluster("a", 4), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=4), name="low"), "a/0")
    settled(world, urgent())
    assert places(settled(world, deployment(name="other"), request_id="2")) == []
    assert places(decided(world, urgent(want=2), request_id="3")) == ["a/0", "a/1"]


def in_domains(**fields: Any) -> ClusterView:
    pools = [
        pool(name, 1, gpu(), network_domain=domain)
        for name, domain in (("u", "x"), ("v", "y"), ("w", "y"))
    ]
    return cluster("a", *pools, **fields)


def test_victims_are_chosen_so_that_their_nodes_share_a_network() -> None:
    world = fleet(in_domains(), options=OPTIONS)
    for since, name in enumerate(("w", "v", "u"), 1):
        put_replicas(
            world, deployment(name=name), f"a/{since}", pools=name, since=since
        )
    policy = PlacementPolicy(
        priority_class="high", preemption="LowerPriority", network_domain="Required"
    )
    wants = deployment(
        engine("prefill"),
        engine("decode"),
        name="pd",
        serving_mode="PrefillDecode",
        policy=policy,
    )
    decision = decided(world, wants)
    assert sorted(victim.deployment for victim in decision.victims) == ["v", "w"]
    assert places(decision) == ["a/0"]


def quota(**fields: Any) -> SchedulerOptions:
    return SchedulerOptions(
        priority_classes={"high": 100}, quotas=(Quota("ml", **fields),)
    )


def test_a_quota_on_one_cluster_leaves_the_next_best_to_preempt_on() -> None:
    world = fleet(
        cluster("a", 1, labels={"tier": "gold"}),
        cluster("b", 2),
        options=quota(max_nodes=0, match_labels={"tier": "gold"}),
    )
    put_replicas(world, deployment(name="x", namespace="other"), "a/0")
    put_replicas(
        world, deployment(engine(copies=2), name="y", namespace="other"), "b/0"
    )
    decision = decided(world, urgent())
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["y"],
        ["b/0"],
    )


def test_a_victim_of_the_same_namespace_gives_back_its_quota() -> None:
    world = fleet(cluster("a", 1), options=quota(max_nodes=1))
    put_replicas(world, deployment(name="x"), "a/0")
    decision = settled(world, urgent())
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["x"],
        ["a/0"],
    )


def test_no_replica_is_preempted_if_a_quota_would_reject_anyway() -> None:
    world = fleet(cluster("a", 2), options=quota(max_nodes=1))
    put_replicas(world, deployment(name="x", namespace="other"), "a/0", "a/1")
    decision = decided(world, urgent(engine(copies=2)))
    assert (decision.victims, places(decision)) == ((), [])
    assert "used 0 of 1 nodes, needs 2 more" in message(decision)


def test_a_victim_that_a_later_one_makes_superfluous_stays() -> None:
    world = fleet(
        cluster("a", pool("p", 1, gpu()), pool("q", 3, gpu())), options=OPTIONS
    )
    put_replicas(world, deployment(name="small"), "a/0", pools="p")
    put_replicas(world, deployment(engine(copies=3), name="large"), "a/1", pools="q")
    decision = settled(world, urgent(want=3))
    assert ([victim.deployment for victim in decision.victims], decision.shortfall) == (
        ["large"],
        0,
    )
    assert world.audit() == []


def test_without_a_cooldown_a_deployment_may_be_preempted_for_each_replica() -> None:
    world = fleet(
        cluster("a", 2),
        options=SchedulerOptions(
            priority_classes={"high": 100}, preemption_cooldown_seconds=0
        ),
    )
    put_replicas(world, deployment(name="x", want=2), "a/0", "a/1")
    assert len(decided(world, urgent(want=2)).victims) == 2


def test_a_gang_takes_no_more_of_a_deployment_than_it_can_lose() -> None:
    world = fleet(cluster("a", 3), options=OPTIONS)
    put_replicas(
        world, deployment(name="x", want=3), "a/0", "a/1", "a/2", min_available=2
    )
    decision = decided(world, gang_of(2, 2))
    assert (decision.victims, places(decision)) == ((), [])
    assert "are needed for minAvailable" in message(decision)


def test_nodes_that_were_nominated_for_a_victim_are_freed_with_it() -> None:
    """The victim of middle priority was going to reuse one of the two nodes; the other
    one is still nominated for it.
    """
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="x"), "a/0")
    settled(world, urgent(name="middle", klass="mid"))
    decision = settled(world, urgent(engine(copies=2), name="higher"), request_id="2")
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["middle"],
        ["a/0"],
    )
    assert (world.free("a"), world.audit()) == ({"p": 0}, [])


def test_the_search_tries_each_replica_of_a_protected_deployment() -> None:
    """Of x only one can go. The younger one frees too little, even with y."""
    world = fleet(cluster("a", 4), options=OPTIONS)
    (older,) = put_replicas(
        world, deployment(engine(copies=2), name="x"), "a/0", since=1, min_available=1
    )
    put_replicas(world, deployment(name="x"), "a/1", since=3, min_available=1)
    (beside,) = put_replicas(world, deployment(name="y"), "a/0", since=2)
    decision = decided(world, urgent(engine(copies=3)))
    assert sorted(victim.uid for victim in decision.victims) == sorted((older, beside))


def test_a_cluster_that_a_spread_forbids_once_is_tried_for_the_next_replica() -> None:
    """The youngest victims are in one zone, so the second replica passes over one of
    them.
    """
    world = fleet(
        *(
            cluster(name, 1, labels={"zone": zone})
            for name, zone in (("a", "z1"), ("b", "z2"), ("c", "z1"))
        ),
        options=OPTIONS,
    )
    for since, at in ((3, "a/0"), (1, "b/0"), (2, "c/0")):
        put_replicas(world, deployment(name=f"x{since}"), at, since=since)
    policy = PlacementPolicy(
        priority_class="high",
        preemption="LowerPriority",
        topology_spread=(SpreadConstraint("zone"),),
    )
    decision = decided(world, deployment(want=3, name="spread", policy=policy))
    assert [victim.deployment for victim in decision.victims] == ["x3", "x1", "x2"]


def test_nodes_that_two_replicas_share_are_freed_once() -> None:
    """On a the replica of middle priority has the nodes that x still holds, so no
    victim there frees four.
    """
    world = fleet(cluster("a", 3), cluster("b", 4), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=3), name="x"), "a/0")
    put_replicas(world, deployment(engine(copies=4), name="y"), "b/0", priority=60)
    settled(world, urgent(engine(copies=3), name="middle", klass="mid"))
    decision = decided(world, urgent(engine(copies=4), name="higher"), request_id="2")
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["y"],
        ["b/0"],
    )


@pytest.mark.parametrize("state", ["Admitted", "Pending"])
def test_a_victim_gives_back_its_admitted_devices(
    state: str,
) -> None:
    """The queue has already counted the devices of an admitted replica, but not of a
    waiting one.
    """
    name = replica_name("ml", "x", "a", 0)
    queue = QueueView(
        "q", (tenant_queue("ml"),), (), {"Admitted": 0, "Pending": 8}[state]
    )
    admission = (AdmissionView(workload_name("ml", name), state),)
    world = fleet(
        cluster("a", 2, queues=(queue,), admission=admission, observed_at=NOW),
        options=OPTIONS,
    )
    put_replicas(world, deployment(name="x"), "a/0", name=name)
    assert places(decided(world, deployment(name="other"))) == []
    decision = decided(world, urgent())
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["x"],
        ["a/0"],
    )


def test_a_placement_may_be_preempted_later_in_its_batch() -> None:
    world = fleet(cluster("a", 1), options=OPTIONS)
    low, high = decide(
        world,
        [ScheduleRequest("1", deployment(name="low")), ScheduleRequest("2", urgent())],
        NOW,
    )
    assert (
        places(low),
        [victim.deployment for victim in high.victims],
        places(high),
    ) == (["a/0"], ["low"], ["a/0"])


def middle_on_nodes_of_x() -> Fleet:
    """Two replicas of middle priority are going to reuse the two nodes that x still
    holds.
    """
    world = fleet(cluster("a", 2), options=OPTIONS)
    put_replicas(world, deployment(engine(copies=2), name="x"), "a/0")
    assert (
        len(settled(world, urgent(name="middle", klass="mid", want=2)).placements) == 2
    )
    return world


def test_nodes_that_another_replica_will_reuse_are_not_taken_over() -> None:
    world = middle_on_nodes_of_x()
    decision = settled(world, urgent(name="higher"), request_id="2")
    assert (len(decision.victims), len(decision.placements)) == (2, 1)
    assert (world.free("a"), world.audit()) == ({"p": 0}, [])


def test_nodes_are_taken_over_with_all_replicas_that_would_reuse_them() -> None:
    world = middle_on_nodes_of_x()
    assert (
        len(
            settled(
                world, urgent(engine(copies=2), name="higher"), request_id="2"
            ).placements
        )
        == 1
    )
    assert (
        len(
            settled(
                world, urgent(name="later", want=2, klass="high"), request_id="3"
            ).placements
        )
        == 0
    )
    for name in ("x", "middle", "middle"):
        world.release(next(iter(world.owned("ml", name))))
        assert (world.free("a"), world.audit()) == ({"p": 0}, [])


def test_a_victim_for_a_quota_stays_if_a_later_one_gives_back_enough() -> None:
    """The first replica is placed with the nodes of the young one; the second one needs
    nodes that only the old one has.
    """
    world = fleet(cluster("a", 2), cluster("b", 3), options=quota(max_nodes=4))
    put_replicas(world, deployment(name="young"), "a/0", since=2)
    put_replicas(world, deployment(engine(copies=3), name="old"), "b/0", since=1)
    decision = decided(world, urgent(want=3))
    assert (
        [victim.deployment for victim in decision.victims],
        len(decision.placements),
    ) == (["old"], 3)


def test_quota_returned_by_a_victim_opens_every_cluster() -> None:
    world = fleet(cluster("a", 2), cluster("b", 3), options=quota(max_nodes=4))
    put_replicas(world, deployment(engine(copies=3), name="x"), "b/0")
    decision = decided(world, urgent(engine(copies=2), want=2))
    assert ([victim.deployment for victim in decision.victims], places(decision)) == (
        ["x"],
        ["a/0", "b/0"],
    )
