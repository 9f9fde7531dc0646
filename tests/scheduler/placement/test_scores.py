"""The numbers that rank clusters, reserve pools and count quotas."""

from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.explain.placement_report import _price
from scheduler.fleet.caches.quota_usage import QuotaAmount, amount_of
from scheduler.fleet.caches.tried_clusters import ScoreColumn, TriedClusters
from scheduler.fleet.cluster_index import ClusterSet
from scheduler.fleet.expiries import next_expiry
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.fleet.queue_reservations import QueueReservation, ahead_of
from scheduler.hardware.node_fitting import Trial
from scheduler.hardware.template import compile_template
from scheduler.model.decision import (
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.inputs import CacheView, ClusterView, DeploymentView
from scheduler.model.policy import Quota, SchedulerOptions
from scheduler.placement.constraints import Constraints
from scheduler.placement.ranking import Levels, OwnReplicas
from scheduler.placement.score import UNKNOWN_PRICE, ClusterScorer, domain_keys
from tests.scheduler.builders import (
    NOW,
    cluster,
    deployment,
    engine,
    fleet,
    gpu,
    pool,
    put_replicas,
)

REGION = "modelplane.ai/region"
WEIGHTS = {
    "spread": 17,
    "free": 13,
    "binpack": 11,
    "cost": 7,
    "locality": 5,
    f"domain:{REGION}": 3,
}
OWN = {"a": 3, "b": 5, "c": 7, "gone": 11}
ENGINES = (engine("x", copies=2), engine("y", copies=3))


def a_cluster(name: str, region: str, **prices: int) -> ClusterView:
    """Return a cluster with 13 nodes in `p` and 17 in `q`."""
    p = pool("p", 13, price_milli=prices.get("p", 7))
    q = pool("q", 17, gpu("192Gi"), price_milli=prices.get("q", 5))
    return cluster(name, p, q, labels={REGION: region})


def scorer(
    world: Any, view: DeploymentView, counts: Mapping[str, int] = OWN
) -> ClusterScorer:
    overlay = FleetOverlay(world, NOW)
    compiled = compile_template(view.engines, overlay.rules.matching)
    constraints = Constraints(overlay, view, overlay.index.everything)
    own = OwnReplicas(overlay.index, domain_keys(overlay, view))
    for name, count in counts.items():
        own.add(name, count)
    return ClusterScorer(overlay, view, compiled, constraints, own)


@pytest.mark.parametrize(
    ("positions", "prices", "scores"),
    [
        ((0, 1), {}, {"free": -733, "binpack": 22, "cost": 29}),
        ((1, 0), {}, {"free": -733, "binpack": 22, "cost": 31}),
        ((0, 0), {}, {"free": -384, "binpack": 5, "cost": 35}),
        ((1, 1), {}, {"free": -705, "binpack": 12, "cost": 25}),
        ((0, 1), {"p": 0}, {"free": -733, "binpack": 22, "cost": 15}),
        ((0, 1), {"p": -1}, {"free": -733, "binpack": 22, "cost": UNKNOWN_PRICE + 15}),
    ],
)
def test_the_scores_of_a_cluster(
    positions: tuple[int, ...], prices: dict[str, int], scores: dict[str, int]
) -> None:
    options = SchedulerOptions(profile="weighted", weights=WEIGHTS)
    views = [a_cluster("a", "us", **prices), a_cluster("b", "us"), a_cluster("c", "eu")]
    world = fleet(*views, options=options)
    put_replicas(world, deployment(engine(copies=3), name="other"), "a/0")
    cache = CacheView("Present", "w", phases={"a": "Hydrating"})
    view = deployment(*ENGINES, cache=cache)
    found = scorer(world, view)
    info = world.clusters["a"]
    expected = {**scores, "spread": 3, "locality": 1, f"domain:{REGION}": 8}
    assert found.scores(info, Trial(positions)) == expected
    assert list(found.scores(info, Trial(positions))) == list(WEIGHTS)


@pytest.mark.parametrize(
    ("rows", "sums"),
    [
        # Own replicas and remaining nodes: each is scaled to 0 to 100, then weighted
        # with 17 and 13.
        ([(3, 20), (5, 10), (4, 15)], [1300, 1700, 1500]),
        ([(3, 20), (10, 20), (5, 20)], [0, 1700, 476]),
        ([(0, 2), (3, 9), (1, 5)], [0, 3000, 1107]),
        ([(5, 10), (3, 20)], [1700, 1300]),
    ],
)
def test_a_weighted_sum_compares_each_score_with_the_best_and_the_worst(
    rows: list[tuple[int, int]], sums: list[int]
) -> None:
    options = SchedulerOptions(
        profile="weighted", weights={"spread": 17, "binpack": 13}
    )
    names = "abc"[: len(rows)]
    world = fleet(
        *(cluster(name, left + 1) for name, (_, left) in zip(names, rows, strict=True)),
        options=options,
    )
    found = scorer(
        world,
        deployment(),
        {name: own for name, (own, _) in zip(names, rows, strict=True)},
    )
    outcomes = TriedClusters(len(rows))
    outcomes.add(dict.fromkeys(range(len(rows)), Trial((0,))))
    assert [info.name for info, _ in found.ranked([(outcomes, outcomes.fitting)])] == [
        name for _, name in sorted(zip(sums, names, strict=True))
    ]


def test_levels_split_clusters_by_replicas_per_domain() -> None:
    levels = Levels()
    for domain, clusters, change in (
        ("x", 0b0011, 2),
        ("y", 0b0100, 1),
        ("x", 0b0011, -1),
        ("z", 0b1000, 1),
        ("z", 0b1000, -1),
    ):
        levels.add(domain, ClusterSet(clusters), change)
    assert list(levels.ascending(ClusterSet(0b11111))) == [(0, 0b11000), (1, 0b00111)]
    assert levels.lowest(ClusterSet(0b0101)) == 0b0101


@pytest.mark.parametrize("within", [0b1111, 0b0110, 0b1000])
def test_a_column_returns_the_lowest_clusters_of_any_set(within: int) -> None:
    values = {0: 7, 1: -2, 2: 7, 3: 9}
    column = ScoreColumn(4)
    column.put(values)
    column.remove(1)
    column.put({1: 8})
    known = {**values, 1: 8}
    lowest = min(known[rank] for rank in range(4) if within >> rank & 1)
    assert column.least(ClusterSet(within)) == (
        lowest,
        sum(
            1 << rank for rank in known if known[rank] == lowest and within >> rank & 1
        ),
    )
    assert column.bounds(ClusterSet(within)) == (
        lowest,
        max(known[rank] for rank in range(4) if within >> rank & 1),
    )


@pytest.mark.parametrize(
    ("milli", "text"),
    [
        (0, "0.00"),
        (9, "0.00"),
        (10, "0.01"),
        (999, "0.99"),
        (1_000, "1.00"),
        (12_345, "12.34"),
        (UNKNOWN_PRICE - 1, f"{(UNKNOWN_PRICE - 1) // 1000}.97"),
        (UNKNOWN_PRICE, "an unknown price"),
        (UNKNOWN_PRICE + 5, "an unknown price"),
    ],
)
def test_a_price_has_two_decimals(milli: int, text: str) -> None:
    assert _price(milli) == text


CLAIMS = (ResolvedDeviceRequest("gpu", "c", 5), ResolvedDeviceRequest("nic", "n", 2))
PLACED = (
    EnginePlacement("x", (MemberPlacement("Worker", "p", CLAIMS, worker_nodes=3),), 11),
    EnginePlacement("y", (MemberPlacement("Leader", "q", CLAIMS[:1]),), 13),
    EnginePlacement("z", (MemberPlacement("Leader", "q"),), 17),
    EnginePlacement("v", (MemberPlacement("Leader", "elsewhere", CLAIMS),), 19),
)


@pytest.mark.parametrize(
    ("quota", "amount"),
    [
        (Quota("ml"), QuotaAmount(46, 296)),
        (Quota("ml", class_name="h"), QuotaAmount(33, 231)),
        (Quota("ml", class_name="l"), QuotaAmount(13, 65)),
        (Quota("ml", class_name="none"), QuotaAmount()),
        (Quota("ml", match_labels={REGION: "us"}), QuotaAmount(46, 296)),
        (Quota("ml", match_labels={REGION: "eu"}), QuotaAmount()),
        (
            Quota("ml", device_selector='device.driver == "gpu.nvidia.com"'),
            QuotaAmount(46, 296),
        ),
        (Quota("ml", device_selector='device.driver == "other"'), QuotaAmount()),
        (Quota("ml", device_selector="cannot be read"), QuotaAmount(46, 296)),
    ],
)
def test_a_quota_counts_nodes_and_devices_of_its_pools(
    quota: Quota, amount: QuotaAmount
) -> None:
    view = cluster(
        "a",
        pool("p", 99, class_name="h"),
        pool("q", 99, class_name="l"),
        labels={REGION: "us"},
    )
    assert amount_of(quota, fleet(view).clusters["a"], PLACED) == amount
    assert QuotaAmount(7, 5).plus(QuotaAmount(2, 3)) == QuotaAmount(9, 8)
    assert QuotaAmount(7, 5).minus(QuotaAmount(2, 3)) == QuotaAmount(5, 2)


def waiting(name: str, priority: int, since: int) -> QueueReservation:
    return QueueReservation(deployment(name=name), priority, since)


@pytest.mark.parametrize(
    ("owner", "priority", "ahead"),
    [
        ("new", 0, ["high", "first", "second", "twin"]),
        ("new", 7, ["high"]),
        ("new", 6, ["high"]),
        ("new", 11, ["high"]),
        ("new", 12, []),
        ("second", 5, ["high", "first"]),
        ("twin", 5, ["high", "first", "second"]),
        ("first", 5, ["high"]),
        ("high", 11, []),
    ],
)
def test_the_order_of_the_queue_is_priority_then_time_then_name(
    owner: str, priority: int, ahead: list[str]
) -> None:
    queue = [
        waiting("twin", 5, NOW - 2_000),
        waiting("second", 5, NOW - 2_000),
        waiting("first", 5, NOW - 3_000),
        waiting("high", 11, NOW),
        waiting("expired", 13, NOW - 7_001),
    ]
    found = ahead_of(
        {each.owner: each for each in queue}, ("ml", owner), priority, NOW, 7
    )
    assert [each.owner[1] for each in found] == ahead


@pytest.mark.parametrize(
    ("ages", "expires"),
    [
        ([], None),
        ([7_001], None),
        ([7_000], 1),
        ([0], 7_001),
        ([2_000, 5_000, 9_000], 2_001),
    ],
)
def test_the_next_reservation_expires_a_millisecond_after_its_time(
    ages: list[int], expires: int | None
) -> None:
    world = Fleet(SchedulerOptions(hold_for_seconds=7))
    for age in ages:
        world.set_queue_reservation(
            ("ml", f"m-{age}"), waiting(f"m-{age}", 0, NOW - age)
        )
    assert next_expiry(world, NOW) == (None if expires is None else NOW + expires)
