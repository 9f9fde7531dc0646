"""One decision takes a bounded time for any engines, rules and priorities.

Its message names the part that was cut short.
"""

import random
from collections.abc import Sequence

import pytest

from scheduler import read_need, to_wire
from scheduler.decide import apply, decide
from scheduler.fleet.caches.quota_usage import QuotaAmount, amount_of
from scheduler.fleet.cluster_index import ClusterInfo
from scheduler.fleet.fleet import Fleet
from scheduler.hardware import node_fitting
from scheduler.model.decision import EnginePlacement
from scheduler.model.inputs import DeploymentView, EngineView, ScheduleRequest
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from scheduler.placement import victim_search
from scheduler.placement.limits import device_accounting, quota
from tests.environment.effort import effort_below
from tests.scheduler.builders import (
    NAMESPACE,
    NOW,
    alone,
    ask,
    at_least,
    bind_all,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    message,
    places,
    pool,
    put_replicas,
    worker,
)

CLUSTERS, POOLS, WANTED = 200, 8, 1000
# Without its limit each case takes from five seconds to minutes.
EFFORT_MAX = 420


def large_fleet(
    least: int = 2, most: int = 2, options: SchedulerOptions | None = None
) -> Fleet:
    dice = random.Random(1)  # noqa: S311 - repeatable on purpose
    return fleet(
        *(
            cluster(
                f"c-{n:03}",
                *(
                    pool(f"p{p}", dice.randint(least, most), gpu())
                    for p in range(POOLS)
                ),
                labels={"zone": f"z{n % 20}"},
            )
            for n in range(CLUSTERS)
        ),
        options=options,
    )


def decides_in_time(
    world: Fleet, view: DeploymentView, effort: float = EFFORT_MAX
) -> None:
    """Fail if a decision takes more CPU time than it may."""
    with effort_below(effort):
        decide(world, [ScheduleRequest("ask", view)], NOW)


def terms(count: int, weight: int) -> tuple[AffinityTerm, ...]:
    return tuple(
        AffinityTerm({"a": f"{n % 2}"}, "zone", weight=weight) for n in range(count)
    )


def beside_others() -> Fleet:
    world = large_fleet()
    asked = [
        ScheduleRequest(
            f"ask-{n}", deployment(name=f"o-{n}", want=3, labels={"a": "1"})
        )
        for n in range(300)
    ]
    for decision in decide(world, asked, NOW):
        apply(world, decision)
    return world


def engines(dice: random.Random) -> DeploymentView:
    made = [
        engine(
            f"e{n}",
            alone(ask(at_least("80Gi"), count=dice.randint(2, 7))),
            copies=dice.randint(1, 6),
        )
        for n in range(8)
    ]
    return deployment(*made, want=WANTED)


@pytest.mark.slow
def test_many_preferences_among_many_others_are_fast() -> None:
    policy = PlacementPolicy(
        affinity=terms(16, 5),
        anti_affinity=terms(16, 5),
        topology_spread=(
            SpreadConstraint("zone", when_unsatisfiable="ScheduleAnyway"),
        ),
    )
    decides_in_time(
        beside_others(), deployment(want=WANTED, labels={"a": "1"}, policy=policy)
    )


@pytest.mark.slow
def test_a_preferred_spread_of_many_replicas_is_fast() -> None:
    policy = PlacementPolicy(
        topology_spread=(SpreadConstraint("zone", when_unsatisfiable="ScheduleAnyway"),)
    )
    decides_in_time(large_fleet(), deployment(want=WANTED, policy=policy))


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["", "balanced"])
def test_preferred_spreads_over_many_domains_are_fast(profile: str) -> None:
    keys = [f"key-{n}" for n in range(8)]
    world = fleet(
        *(
            cluster(
                f"c-{n:04}",
                2,
                labels={key: f"v-{n % (400 + i)}" for i, key in enumerate(keys)},
            )
            for n in range(1_000)
        )
    )
    spreads = (
        SpreadConstraint(key, when_unsatisfiable="ScheduleAnyway") for key in keys
    )
    policy = PlacementPolicy(profile=profile, topology_spread=tuple(spreads))
    decides_in_time(world, deployment(want=WANTED, policy=policy))


@pytest.mark.slow
@pytest.mark.parametrize("accounting", ["device-packed", "device-safe"])
def test_engines_that_fit_in_few_arrangements_are_bounded(accounting: str) -> None:
    world = large_fleet(3, 6, SchedulerOptions(accounting=accounting))
    decides_in_time(world, engines(random.Random(1)))  # noqa: S311 - repeatable on purpose


PRIORITIES = SchedulerOptions(priority_classes={"low": 0, "middle": 1, "high": 2})


def full_of_low_priority() -> Fleet:
    world = large_fleet(4, 4, PRIORITIES)
    for n in range(320):
        view = deployment(
            name=f"o-{n}",
            want=20,
            policy=PlacementPolicy(priority_class=("low", "middle")[n % 2]),
        )
        apply(world, decide(world, [ScheduleRequest(f"ask-{n}", view)], NOW)[0])
    bind_all(world)
    return world


PREEMPTS = PlacementPolicy(priority_class="high", preemption="LowerPriority")


@pytest.mark.slow
def test_preemption_for_many_replicas_is_bounded() -> None:
    many = deployment(
        *(engine(f"e{n}", copies=3) for n in range(8)), want=WANTED, policy=PREEMPTS
    )
    decides_in_time(full_of_low_priority(), many)


@pytest.mark.slow
def test_a_preemption_search_that_stopped_early_is_reported_and_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = full_of_low_priority()
    monkeypatch.setattr(victim_search, "PREEMPTION_STEPS_MAX", 300)
    decision = decide(
        world, [ScheduleRequest("ask", deployment(want=50, policy=PREEMPTS))], NOW
    )[0]
    assert 0 < len(decision.victims) < 50
    assert decision.more
    assert (
        decision.diagnosis.preemption
        == "the search for replicas to preempt continues: "
        "it has examined 300 replicas so far"
    )


def hard() -> tuple[Fleet, DeploymentView]:
    """Three engines fit two pools only in another order than theirs."""
    world = fleet(cluster("a", pool("p", 5, gpu()), pool("q", 4, gpu())))
    return world, deployment(
        engine("x", copies=2), engine("y", copies=2), engine("z", copies=5)
    )


def test_a_search_is_made_within_the_budget_of_its_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, view = hard()
    assert places(decide(world, [ScheduleRequest("ask", view)], NOW)[0]) == ["a/0"]
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", 0)
    world, view = hard()
    decision = decide(world, [ScheduleRequest("ask", view)], NOW)[0]
    assert places(decision) == []
    assert "search steps for one decision (use fewer engines" in message(decision)


def test_an_unsearched_cluster_does_not_count_as_full_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, view = hard()
    with monkeypatch.context() as patched:
        patched.setattr(node_fitting, "DECISION_STEPS_MAX", 0)
        assert places(decide(world, [ScheduleRequest("ask", view)], NOW)[0]) == []
    assert places(decide(world, [ScheduleRequest("ask", view)], NOW)[0]) == ["a/0"]


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (
            PlacementPolicy(
                topology_spread=tuple(SpreadConstraint(f"k{n}") for n in range(9))
            ),
            "policy.topologySpread: must have at most 8",
        ),
        (
            PlacementPolicy(affinity=terms(33, 1)),
            "policy.affinity: must have at most 32",
        ),
        (
            PlacementPolicy(anti_affinity=terms(33, 1)),
            "policy.antiAffinity: must have at most 32",
        ),
    ],
)
def test_a_request_with_more_rules_than_a_manifest_may_have_is_refused(
    policy: PlacementPolicy, said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        read_need(to_wire(deployment(policy=policy)))


def test_a_search_by_devices_is_within_the_budget_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(device_accounting, "_STEPS_PER_POOL", 10**7)
    world = large_fleet(3, 6, SchedulerOptions(accounting="device-packed"))
    view = engines(random.Random(1))  # noqa: S311 - repeatable on purpose
    assert "search steps for one decision" in message(
        decide(world, [ScheduleRequest("ask", view)], NOW)[0]
    )


def crowded(nodes: int) -> Fleet:
    """One cluster with a replica of another kind on each node."""
    world = fleet(cluster("a", nodes), options=PRIORITIES)
    for n in range(nodes):
        put_replicas(world, deployment(engine(f"e{n}"), name=f"o-{n}"), "a/0")
    return world


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "engines"),
    [
        pytest.param(30, (engine("x", leader(ask()), worker(27)),), id="all-but-two"),
        pytest.param(1_200, (engine("x"), engine("y")), id="two-of-many"),
        pytest.param(
            600,
            (engine("x", leader(ask()), worker(499)), engine("y")),
            id="almost-all-of-many",
        ),
    ],
)
def test_preemption_among_all_different_replicas_is_bounded(
    nodes: int, engines: tuple[EngineView, ...]
) -> None:
    world = crowded(nodes)
    with effort_below(EFFORT_MAX):
        decision = decided(world, deployment(*engines, policy=PREEMPTS, name="big"))
    assert len(decision.victims) == sum(
        member.pods
        for placed in decision.placements[0].engines
        for member in placed.members
    )


@pytest.mark.slow
def test_preemption_by_many_replicas_on_one_cluster_is_bounded() -> None:
    world = fleet(cluster("a", 150), options=PRIORITIES)
    for n in range(150):
        put_replicas(world, deployment(name=f"o-{n % 100}"), f"a/{n}", priority=n % 2)
    decides_in_time(world, deployment(want=100, policy=PREEMPTS, name="big"))


@pytest.mark.slow
def test_preemption_by_devices_is_bounded() -> None:
    options = SchedulerOptions(
        priority_classes=PRIORITIES.priority_classes,
        accounting="device-packed",
        packed_enforced=True,
        quotas=tuple(
            Quota(NAMESPACE, max_nodes=10**5 + n, device_selector=at_least(f"{n}Gi"))
            for n in range(5)
        ),
    )
    world = fleet(
        *(
            cluster(f"c-{n:03}", *(pool(f"p{p}", 64, gpu()) for p in range(POOLS)))
            for n in range(50)
        ),
        options=options,
    )
    for n in range(50):
        for p in range(POOLS):
            put_replicas(
                world,
                deployment(engine(copies=32), name=f"o-{n}-{p}"),
                f"c-{n:03}/0",
                f"c-{n:03}/1",
                pools=f"p{p}",
                since=p,
            )
    many = deployment(
        *(
            engine(f"e{n}", leader(ask(count=8)), worker(20, ask(count=8)))
            for n in range(8)
        ),
        want=WANTED,
        policy=PREEMPTS,
    )
    decides_in_time(world, many)


def test_packing_siblings_on_separate_nodes_is_bounded() -> None:
    world = fleet(
        cluster("a", 800),
        options=SchedulerOptions(accounting="device-packed", packed_enforced=True),
    )
    first, second = (
        engine(name, leader(ask(count=2)), worker(nodes, ask(count=2)))
        for name, nodes in (("x", 400), ("y", 801))
    )
    decides_in_time(world, deployment(first, second), effort=100)


def test_quotas_are_not_recounted_for_equal_clusters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[Quota] = []

    def counting(
        limit: Quota, info: ClusterInfo, engines: Sequence[EnginePlacement]
    ) -> QuotaAmount:
        counted.append(limit)
        return amount_of(limit, info, engines)

    monkeypatch.setattr(quota, "amount_of", counting)
    world = large_fleet(
        options=SchedulerOptions(quotas=(Quota(NAMESPACE, max_nodes=10**5),))
    )
    assert places(decided(world, deployment(engine(copies=3), engine("x")))) == []
    assert len(counted) == 2 * POOLS


def test_attempts_by_devices_are_bounded_per_decision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = fleet(
        *(cluster(f"c-{n}", 1) for n in range(20)),
        options=SchedulerOptions(accounting="device-safe"),
    )
    monkeypatch.setattr(node_fitting, "DECISION_STEPS_MAX", 100)
    decision = decide(
        world,
        [
            ScheduleRequest(
                "ask", deployment(engine("main", alone(ask(count=8)), copies=2))
            )
        ],
        NOW,
    )[0]
    assert "search steps for one decision" in message(decision)
    monkeypatch.undo()
    assert "search steps" not in message(
        decide(world, [ScheduleRequest("ask", deployment(engine(copies=20)))], NOW)[0]
    )
