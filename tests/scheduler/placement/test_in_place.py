"""In-place updates of replicas, and their charges meanwhile."""

import json
import random
from collections import Counter
from dataclasses import replace

import pytest

from scheduler.decide import apply
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots.ledger_rows import pack_rows, unpack_rows
from scheduler.hardware.template import charges
from scheduler.model.decision import (
    Decision,
    EnginePlacement,
    MemberPlacement,
    ResolvedDeviceRequest,
)
from scheduler.model.inputs import DeploymentView, EngineView
from scheduler.model.policy import (
    PlacementPolicy,
    Quota,
    RolloutPolicy,
    SchedulerOptions,
)
from scheduler.model.received import read_entry
from scheduler.model.wire import from_wire, to_wire
from scheduler.placement.in_place import at_larger
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    actions,
    alone,
    ask,
    at_least,
    below,
    bind_all,
    cluster,
    decided,
    deployment,
    engine,
    finish_releases,
    fleet,
    gpu,
    leader,
    message,
    placed_engines,
    pool,
    put_replicas,
    settled,
    worker,
)

AT_ONCE = PlacementPolicy(RolloutPolicy("AllAtOnce"))
TWO_AT_A_TIME = PlacementPolicy(RolloutPolicy(max_unavailable=2))
SAFE = SchedulerOptions(accounting="device-safe")
PACKED = SchedulerOptions(accounting="device-packed", packed_enforced=True)
ACCOUNTING = pytest.mark.parametrize(
    "options", [SchedulerOptions(), SAFE, PACKED], ids=["nodes", "safe", "packed"]
)
PACES = pytest.mark.parametrize(
    "pace", [AT_ONCE, TWO_AT_A_TIME], ids=["all at once", "rolling"]
)


def notes(view: DeploymentView, world: Fleet) -> list[tuple[str, str]]:
    return [(note.reason, note.detail) for note in decided(world, view).notes]


def sized(count: int, copies: int = 1) -> EngineView:
    return engine("main", alone(ask(count=count)), copies=copies)


def run(world: Fleet, view: DeploymentView) -> None:
    """Place a deployment, and let its replicas become Ready."""
    assert not settled(world, view).shortfall
    bind_all(world)


def spanning(copies: int, workers: int, **fields: object) -> DeploymentView:
    """A leader on a pool of large devices, workers on one of small devices."""
    members = (leader(ask(at_least("100Gi"))), worker(workers, ask(below("100Gi"))))
    return deployment(
        engine("main", *members, copies=copies, span_pools=True),
        want=2,
        **fields,  # type: ignore[arg-type]
    )


@PACES
def test_an_update_that_shrinks_on_one_pool_and_grows_on_another_stays_within_capacity(
    pace: PlacementPolicy,
) -> None:
    world = fleet(cluster("a", pool("A", 20, gpu("141Gi")), pool("B", 10, gpu("24Gi"))))
    run(world, spanning(4, 1))
    assert world.free("a") == {"A": 12, "B": 2}
    edited = spanning(1, 6, template="v2", policy=pace)
    decision = decided(world, edited)
    assert sorted(actions(decision).values()) == ["Keep", "Update"]
    assert [(note.reason, note.detail) for note in decision.notes] == [
        ("ResizeBlocked", "needs 2 more nodes on a/B, 0 free")
    ]
    settled(world, edited)
    assert world.free("a") == {"A": 12, "B": 0}
    bind_all(world)
    assert world.free("a") == {"A": 15, "B": 0}


@PACES
@ACCOUNTING
def test_replicas_that_grow_in_one_decision_do_not_share_nodes(
    options: SchedulerOptions, pace: PlacementPolicy
) -> None:
    """Three whole nodes for two replicas of one: the second may not grow as well."""
    world = fleet(cluster("a", pool("p", 3)), options=options)
    run(world, deployment(sized(8), want=2))
    grown = deployment(sized(8, 2), want=2, template="v2", policy=pace)
    decision = decided(world, grown)
    assert sorted(actions(decision).values()) == ["Keep", "Update"]
    assert [note.reason for note in decision.notes] == ["ResizeBlocked"]


@ACCOUNTING
def test_a_growing_replica_waits_for_no_releasing_replica(
    options: SchedulerOptions,
) -> None:
    world = fleet(cluster("a", pool("p", 2)), options=options)
    run(world, deployment(sized(8), want=2))
    grown = deployment(sized(8, 2), template="v2")
    decision = settled(world, grown)
    assert (actions(decision), len(decision.evictions)) == ({"a/0": "Keep"}, 1)
    assert [note.reason for note in decision.notes] == ["ResizeBlocked"]
    finish_releases(world)
    assert actions(decided(world, grown)) == {"a/0": "Update"}


SHRUNK = deployment(sized(8), template="v2")
OTHER = deployment(sized(8), name="other")


def shrinking(options: SchedulerOptions, nodes: int = 2) -> Fleet:
    """Return a cluster whose only replica is being updated from two nodes to one."""
    world = fleet(cluster("a", pool("p", nodes)), options=options)
    run(world, deployment(sized(8, 2)))
    assert actions(settled(world, SHRUNK)) == {"a/0": "Update"}
    bind_all(world, ready=False)
    return world


@ACCOUNTING
def test_a_shrinking_replica_holds_the_nodes_of_its_old_pods_until_it_is_ready(
    options: SchedulerOptions,
) -> None:
    world = shrinking(options)
    decision = settled(world, SHRUNK)
    # Its deployment requests again when the replica is Ready.
    assert (actions(decision), decision.more) == ({"a/0": "Keep"}, True)
    assert decided(world, OTHER).shortfall == 1
    bind_all(world)
    assert decided(world, SHRUNK).more is False
    assert actions(decided(world, OTHER)) == {"a/0": "Create"}
    assert world.audit() == []


@ACCOUNTING
def test_a_released_replica_holds_the_nodes_of_its_old_pods_until_it_is_gone(
    options: SchedulerOptions,
) -> None:
    world = shrinking(options)
    settled(world, replace(SHRUNK, replicas=0))
    assert decided(world, OTHER).shortfall == 1
    finish_releases(world)
    assert not decided(world, replace(OTHER, replicas=2)).shortfall


@ACCOUNTING
@pytest.mark.parametrize(
    "engines",
    [
        (sized(8, 2),),
        (sized(8), engine("second", alone(ask(count=8)))),
    ],
    ids=["one engine", "two engines"],
)
def test_a_preempted_replica_frees_the_nodes_of_its_old_pods(
    options: SchedulerOptions, engines: tuple[EngineView, ...]
) -> None:
    world = shrinking(replace(options, priority_classes={"high": 100}))
    first = PlacementPolicy(priority_class="high", preemption="LowerPriority")
    urgent = deployment(*engines, name="urgent", policy=first)
    decision = settled(world, urgent)
    assert (actions(decision), len(decision.victims)) == ({"a/0": "Create"}, 1)
    finish_releases(world)
    assert world.free("a") == {"p": 0}
    assert world.audit() == []


@ACCOUNTING
def test_old_pods_count_in_the_quota(options: SchedulerOptions) -> None:
    world = shrinking(replace(options, quotas=(Quota("ml", max_nodes=2),)), nodes=9)
    assert decided(world, OTHER).shortfall == 1
    bind_all(world)
    assert not decided(world, OTHER).shortfall


@ACCOUNTING
def test_a_second_update_keeps_the_charge_of_the_first_pods(
    options: SchedulerOptions,
) -> None:
    """The replica grows back within its charge, although nothing else is free."""
    world = shrinking(replace(options, quotas=(Quota("ml", max_nodes=2),)))
    (entry,) = world.entries()
    settled(world, deployment(sized(8), template="v3"))
    (again,) = world.entries()
    assert charges(again.charged) == charges(entry.charged) == {"p": 2}
    third = deployment(sized(8, 2), template="v4")
    world.put_cluster(cluster("a", pool("p", 1)))
    assert actions(settled(world, third)) == {"a/0": "Update"}
    (last,) = world.entries()
    assert charges(last.engines) == charges(last.charged) == {"p": 2}


def test_a_decision_and_its_entry_keep_the_charge_of_old_pods_in_json() -> None:
    world = fleet(cluster("a", pool("p", 2)))
    run(world, deployment(sized(8, 2)))
    decision = decided(world, SHRUNK)
    tree = json.loads(json.dumps(to_wire(decision)))
    assert from_wire(Decision, tree) == decision
    apply(world, from_wire(Decision, tree))
    (entry,) = world.entries()
    assert (charges(entry.charged), entry.held_until) == ({"p": 2}, "v2")
    rows = json.loads(json.dumps(pack_rows([entry])))
    assert list(unpack_rows(rows)) == [entry]
    assert read_entry(to_wire(entry)) == entry
    # An older scheduler wrote neither.
    rows["rest"] = [item[:5] for item in rows["rest"]]
    assert list(unpack_rows(rows)) == [entry.as_rolled_out()]
    for placement in tree["placements"]:
        del placement["held"]
    assert from_wire(Decision, tree).placements[0].held == ()


@PACES
@ACCOUNTING
@pytest.mark.parametrize(
    "quota",
    [Quota("ml", max_nodes=3), Quota("ml", max_devices=24)],
    ids=["nodes", "devices"],
)
def test_growth_in_place_is_charged_to_the_quota_at_once(
    options: SchedulerOptions, pace: PlacementPolicy, quota: Quota
) -> None:
    world = fleet(cluster("a", pool("p", 9)), options=replace(options, quotas=(quota,)))
    run(world, deployment(sized(8), want=2))
    grown = deployment(sized(8, 2), want=2, template="v2", policy=pace)
    decision = decided(world, grown)
    assert sorted(actions(decision).values()) == ["Keep", "Update"]
    (note,) = decision.notes
    assert (note.reason, note.detail) in (
        ("ResizeBlocked", "used 3 of 3 nodes, needs 1 more"),
        ("ResizeBlocked", "used 24 of 24 devices, needs 8 more"),
    )


def test_growth_leaves_less_quota_for_new_replicas() -> None:
    world = fleet(
        cluster("a", pool("p", 9)),
        options=SchedulerOptions(quotas=(Quota("ml", max_nodes=3),)),
    )
    run(world, deployment())
    decision = decided(world, deployment(engine(copies=2), want=2, template="v2"))
    assert actions(decision) == {"a/0": "Update"}
    assert "quota" in message(decision)


def test_by_devices_no_replica_grows_on_a_reserved_pool() -> None:
    options = replace(SAFE, queue_order="StrictOrder", priority_classes={"high": 10})
    world = fleet(cluster("a", pool("p", 2)), options=options)
    run(world, deployment(sized(2)))
    ahead = deployment(
        sized(8, 3), name="ahead", policy=PlacementPolicy(priority_class="high")
    )
    assert settled(world, ahead).waiting_since >= 0
    grown = deployment(sized(2, 2), template="v2")
    assert notes(grown, world) == [("ResizeBlocked", "too few free devices on a/p")]
    same = deployment(sized(2), template="v2")
    assert actions(decided(world, same)) == {"a/0": "Update"}


@pytest.mark.parametrize("options", [SAFE, PACKED], ids=["safe", "packed"])
def test_a_replica_that_does_not_grow_is_updated_on_a_pool_without_nodes(
    options: SchedulerOptions,
) -> None:
    world = fleet(cluster("a", pool("p", 2)), options=options)
    settled(world, deployment(sized(8, 2)))
    world.put_cluster(cluster("a", pool("p", 1)))
    assert actions(decided(world, deployment(sized(8, 2), template="v2"))) == {
        "a/0": "Update"
    }
    assert notes(deployment(sized(8, 3), template="v2"), world) == [
        ("ResizeBlocked", "too few free devices on a/p")
    ]


def test_larger_pods_are_charged_before_the_next_replica_grows() -> None:
    """On three nodes, two replicas of 4 and one of 4: with both at 8, some order would
    strand one.
    """
    world = fleet(cluster("a", pool("p", 3)), options=SAFE)
    settled(world, deployment(sized(4), name="other"))
    run(world, deployment(sized(4), want=2))
    grown = deployment(sized(8), want=2, template="v2", policy=AT_ONCE)
    assert sorted(actions(decided(world, grown)).values()) == ["Keep", "Update"]


def test_pods_keep_their_slots_in_an_update_and_new_ones_get_some() -> None:
    world = fleet(cluster("a", pool("p", 3)), options=PACKED)
    settled(world, deployment(sized(4), name="first"))
    settled(world, deployment(sized(8), name="second"))
    settled(world, deployment(sized(4)))

    def slots(view: DeploymentView) -> tuple[int, ...]:
        (placement,) = settled(world, view).placements
        return placement.engines[0].members[0].slots

    assert slots(deployment(sized(4))) == (0,)
    assert slots(deployment(sized(4, 3), template="v2")) == (0, 2, 2)
    assert slots(deployment(sized(4, 1), template="v3")) == (0,)
    assert slots(deployment(sized(8), template="v4")) == (2,)
    world.release(next(iter(world.owned("ml", "second"))))
    assert slots(deployment(sized(8, 2), template="v5")) == (2, 1)
    (entry,) = world.owned("ml", "m").values()
    assert entry.engines[0].members[0].slots == (2, 1)


def test_additional_pods_get_no_slot_of_a_releasing_replica() -> None:
    world = fleet(cluster("a", pool("p", 2)), options=PACKED)
    run(world, deployment(sized(4), want=2))
    decision = settled(world, deployment(sized(4, 2), template="v2"))
    assert [
        placement.engines[0].members[0].slots for placement in decision.placements
    ] == [(0, 1)]


def test_an_update_moves_no_pod_that_keeps_its_size() -> None:
    world = fleet(cluster("a", pool("p", 2)), options=PACKED)
    settled(world, deployment(sized(8), name="first"))
    settled(world, deployment(sized(2)))
    world.release(next(iter(world.owned("ml", "first"))))
    settled(world, deployment(sized(6), name="third"))
    (placement,) = settled(world, deployment(sized(2), template="v2")).placements
    assert placement.engines[0].members[0].slots == (1,)


def test_a_replica_does_not_grow_if_other_pods_would_have_to_move() -> None:
    def two(size: int, template: str) -> DeploymentView:
        return deployment(
            engine("e1", alone(ask(count=4))),
            engine("e2", alone(ask(count=size))),
            template=template,
        )

    world = fleet(cluster("a", pool("p", 2)), options=PACKED)
    settled(world, two(2, "v1"))
    settled(world, deployment(sized(4), name="other"))
    assert [entry.engines[0].members[0].slots for entry in world.entries()] == [
        (0,),
        (1,),
    ]
    assert notes(two(8, "v2"), world) == [
        ("ResizeBlocked", "too few free devices on a/p")
    ]


def test_slots_that_an_update_frees_are_not_used_before_the_replica_is_ready() -> None:
    world = fleet(cluster("a", pool("p", 1)), options=PACKED)
    settled(world, deployment(sized(8)))
    smaller = deployment(sized(4), want=2, template="v2")
    assert actions(settled(world, smaller)) == {"a/0": "Update"}
    assert actions(decided(world, smaller)) == {"a/0": "Keep"}
    bind_all(world)
    assert actions(decided(world, smaller)) == {"a/0": "Keep", "a/1": "Create"}


def test_pods_of_another_size_are_charged_in_addition_to_the_old_ones() -> None:
    world = fleet(cluster("a", pool("p", 2)), options=PACKED)
    settled(world, deployment(sized(8)))
    settled(world, deployment(sized(4), name="other"))
    smaller = deployment(sized(4), want=2, template="v2")
    decision = settled(world, smaller)
    assert [
        placement.engines[0].members[0].slots for placement in decision.placements
    ] == [(1,)]
    assert actions(decided(world, smaller)) == {"a/0": "Keep"}
    bind_all(world)
    assert actions(decided(world, smaller)) == {"a/0": "Keep", "a/1": "Create"}


def test_pods_without_a_slot_do_not_move_pods_with_one() -> None:
    world = fleet(cluster("a", pool("p", 2)), options=PACKED)
    settled(world, deployment(sized(4)))
    put_replicas(world, deployment(sized(4), name="old"), "a/0")
    (placement,) = settled(world, deployment(sized(4), template="v2")).placements
    assert (placement.action, placement.engines[0].members[0].slots) == ("Update", (0,))


@pytest.mark.parametrize(
    ("before", "after", "charged"),
    [
        ((4, 1), (4, 3), [(4, 3)]),
        ((4, 3), (4, 1), [(4, 3)]),
        ((4, 2), (8, 2), [(8, 2)]),
        ((8, 2), (4, 1), [(8, 2)]),
        ((8, 1), (4, 2), [(8, 1), (4, 2)]),
        ((4, 2), (8, 1), [(4, 2), (8, 1)]),
    ],
    ids=[
        "more",
        "fewer",
        "larger",
        "fewer and smaller",
        "more and smaller",
        "fewer and larger",
    ],
)
def test_no_pod_is_charged_as_smaller_ones(
    before: tuple[int, int], after: tuple[int, int], charged: list[tuple[int, int]]
) -> None:
    world = fleet(cluster("a", pool("p", 4)))
    old, new = (
        placed_engines(deployment(sized(*shape)), "p", world, "a")
        for shape in (before, after)
    )
    larger = at_larger(old, new, world.clusters["a"].pools)
    assert [
        (engine.members[0].draw[0][1], engine.copies) for engine in larger
    ] == charged


def random_engines(
    dice: random.Random, before: tuple[EnginePlacement, ...] = ()
) -> tuple[EnginePlacement, ...]:
    """Return engines on pools, optionally derived from others with changed copies,
    nodes and claims.
    """
    claim = (ResolvedDeviceRequest("gpu", "class", 1),)
    found = []
    for i in range(len(before) or dice.randint(1, 3)):
        members = (
            before[i].members
            if before
            else tuple(
                MemberPlacement(role, dice.choice("AB"))
                for role in ("Leader", "Worker")
            )
        )
        edited = tuple(
            replace(
                m,
                requests=claim * dice.choice((1, 1, 0)),
                worker_nodes=dice.randint(1, 4),
            )
            for m in members
        )
        found.append(EnginePlacement(f"e{i}", edited, dice.randint(1, 4)))
    return tuple(found)


def test_pods_on_other_slots_are_charged_in_addition() -> None:
    world = fleet(cluster("a", pool("p", 4)), options=PACKED)
    (only,) = placed_engines(deployment(sized(8)), "p", world, "a")
    first, second = (
        (replace(only, members=(replace(only.members[0], slots=(slot,)),)),)
        for slot in (0, 1)
    )
    pools = world.clusters["a"].pools
    assert at_larger(first, second, pools) == (*first, *second)
    assert at_larger(first, first, pools) == first


@pytest.mark.parametrize(
    ("shapes", "charged"),
    [
        ([(8, 1), (4, 2), (4, 1)], [(8, 1), (4, 2)]),
        ([(8, 1), (4, 2), (2, 4)], [(8, 1), (4, 2), (2, 4)]),
        ([(8, 1), (4, 2), (4, 2)], [(8, 1), (4, 2)]),
        ([(8, 1), (4, 2), (8, 2)], [(8, 2)]),
        ([(4, 1), (4, 3), (8, 1)], [(4, 3), (8, 1)]),
    ],
    ids=["covered", "neither", "equal", "covers both", "covers one"],
)
def test_all_earlier_pods_are_charged_during_several_updates(
    shapes: list[tuple[int, int]], charged: list[tuple[int, int]]
) -> None:
    world = fleet(cluster("a", pool("p", 4)))
    first, *others = (
        placed_engines(deployment(sized(*shape)), "p", world, "a") for shape in shapes
    )
    for engines in others:
        first = at_larger(first, engines, world.clusters["a"].pools)
    assert [
        (engine.members[0].draw[0][1], engine.copies) for engine in first
    ] == charged


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(200)))
@pytest.mark.random
def test_the_larger_of_two_shapes_is_charged_on_each_pool(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    before = random_engines(dice)
    after = random_engines(dice, before)
    larger = Counter(charges(before)) | Counter(charges(after))
    assert Counter(charges(at_larger(before, after))) == larger
    last = random_engines(dice, after)
    assert Counter(
        charges(at_larger(at_larger(before, after), last))
    ) == larger | Counter(charges(last))
