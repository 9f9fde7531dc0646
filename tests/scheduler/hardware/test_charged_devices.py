"""The devices that pods take from a pool, updated as pods come and go."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from scheduler.decide import decide
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.ledger import Ledger
from scheduler.fleet.nomination import nominate
from scheduler.hardware import charged_devices
from scheduler.hardware.charged_devices import ClusterLoad, Pods, PoolLoad, pods_of
from scheduler.model.inputs import LedgerEntry, ScheduleRequest
from scheduler.model.policy import SchedulerOptions
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    cluster,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    placed_engines,
    pool,
    settled,
    worker,
)

PACKED = SchedulerOptions(accounting="device-packed", packed_enforced=True)
SIZES = (1, 2, 4, 8)


def pack_naively(
    nodes: int, charged: Sequence[Pods], added: Sequence[Pods]
) -> list[tuple[int, ...]] | None:
    """Best fit decreasing over all slots, computed from all pods each time."""
    left = [8] * nodes
    for group in charged:
        for slot in group.slots:
            left[slot] -= group.size[0]
    chosen: list[tuple[int, ...]] = [()] * len(added)
    for i in sorted(range(len(added)), key=lambda i: (-added[i].size[0], i)):
        slots: list[int] = []
        for _ in range(added[i].count):
            fitting = [
                n
                for n in range(nodes)
                if left[n] >= added[i].size[0]
                and not (added[i].siblings and n in slots)
            ]
            if not fitting:
                return None
            slots.append(min(fitting, key=lambda n: (left[n], n)))
            left[slots[-1]] -= added[i].size[0]
        chosen[i] = tuple(slots)
    return chosen


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(40)))
@pytest.mark.random
def test_incremental_packing_equals_a_recount(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    nodes = dice.randint(1, 6)
    load = PoolLoad((8,), nodes)
    there: list[Pods] = []
    for _ in range(60):
        if there and dice.random() < 0.4:
            load.add(there.pop(dice.randrange(len(there))), -1)
            continue
        asked = [
            Pods((dice.choice(SIZES),), dice.randint(1, 3), dice.choice((0, 0, 1)))
            for _ in range(dice.randint(1, 2))
        ]
        found = load.pack(asked)
        assert found == pack_naively(nodes, there, asked)
        for group, slots in zip(asked, found or (), strict=False):
            there.append(replace(group, slots=slots))
            load.add(there[-1])
    for group in there:
        load.add(group, -1)
    assert load == PoolLoad((8,), nodes)


def test_pods_with_a_slot_keep_it() -> None:
    load = PoolLoad((8,), 3)
    load.add(Pods((4,), 1, slots=(0,)))
    assert load.pack([Pods((4,), 2, slots=(1,))]) == [(1, 0)]
    assert load.pack([Pods((4,), 2, slots=(7,))]) == [(0, 1)]


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(40)))
@pytest.mark.random
def test_charges_follow_every_change_of_the_ledger_and_its_forks(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    shapes = [
        deployment(
            engine("main", leader(ask(count=size)), worker(2, ask(count=4))),
            name=f"d{size}",
        )
        for size in SIZES
    ]
    built = fleet(cluster("a", pool("p", 4), pool("q", 4)), cluster("b", pool("p", 4)))
    ledgers = [built.ledger]

    def entry(number: int) -> LedgerEntry:
        view, at = dice.choice(shapes), dice.choice("aab")
        placed = placed_engines(view, dice.choice(("p", "q", "gone")), built, at)
        slots = (dice.randrange(4),) if dice.random() < 0.7 else ()
        placed = tuple(
            replace(
                e, members=tuple(replace(m, slots=slots * m.pods) for m in e.members)
            )
            for e in placed
        )
        return LedgerEntry(
            f"{view.name}-{number}",
            "ml",
            view.name,
            at,
            number,
            f"{view.name}-{number}",
            placed,
        )

    def change(ledger: Ledger) -> None:
        known = sorted(ledger.entries(), key=lambda e: e.uid)
        deed = dice.randrange(5)
        if deed < 2 or not known:
            ledger.put(entry(dice.randrange(4)))
        elif deed == 2:
            ledger.remove(dice.choice(known).uid)
        elif deed == 3:
            nominate(ledger, dice.choice(known), ("ml", "other"), NOW)
        else:
            ledger.put(dice.choice(known).as_releasing(NOW))

    for _ in range(60):
        if dice.random() < 0.1:
            # A fork is decided on and dropped before its source changes.
            ledgers = ledgers[: dice.randint(1, len(ledgers))]
            ledgers.append(ledgers[-1].fork())
        if dice.random() < 0.05:
            # The class of a pool is edited, or nodes are added.
            built.put_cluster(
                cluster(
                    "a",
                    pool("p", dice.randint(1, 5), gpu(count=dice.choice((4, 8)))),
                    pool("q", 4),
                )
            )
        change(ledgers[-1])
        for name, info in built.clusters.items():
            if dice.random() < 0.6:
                counted = ClusterLoad(info.pools, ledgers[-1].on_cluster(name).values())
                assert ledgers[-1].load(name, info.pools).differences(counted) == []
    assert built.audit() == []


def test_a_recount_finds_devices_that_are_not_charged() -> None:
    world = fleet(cluster("a", pool("p", 1)), options=PACKED)
    settled(world, deployment(engine("main", alone(ask(count=4)))))
    info = world.clusters["a"]
    assert world.audit() == []
    world.ledger.load("a", info.pools).charge(next(world.entries()), -1)
    assert world.audit() == ["a/p: the charged devices differ from a recount"]


def test_a_copy_and_its_source_change_independently() -> None:
    world = fleet(cluster("a", pool("p", 4)))
    settled(world, deployment(want=2))
    first, second = world.entries()
    pools = world.clusters["a"].pools
    load = ClusterLoad(pools, [first])
    copied = load.copy()
    load.charge(second, 1)
    assert copied.differences(ClusterLoad(pools, [first])) == []
    copied.charge(first, -1)
    assert load.differences(ClusterLoad(pools, [first, second])) == []


def test_no_load_is_kept_for_a_cluster_without_replicas() -> None:
    world = fleet(cluster("a", pool("p", 1)), options=PACKED)
    (placement,) = settled(world, deployment()).placements
    assert not decide(
        world,
        [
            ScheduleRequest(
                "ask", deployment(engine("main", alone(ask(count=8))), name="next")
            )
        ],
        NOW,
    )[0].placements
    assert set(world.ledger._loads) == {"a"}
    world.release(placement.uid)
    assert not world.ledger._loads


@pytest.mark.parametrize("accounting", ["device-safe", "device-packed"])
def test_a_decision_does_not_count_the_pods_of_a_cluster_again(
    accounting: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Fleet(replace(PACKED, accounting=accounting))
    world.put_cluster(cluster("a", pool("p", 100), pool("q", 100)))
    settled(world, deployment(engine("main", alone(ask(count=4))), want=100))
    counted = 0

    def count(*arguments: object) -> Pods:
        nonlocal counted
        counted += 1
        return pods_of(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(charged_devices, "pods_of", count)
    asking = deployment(engine("main", alone(ask(count=2))), name="next", want=10)
    for _ in range(3):
        assert not decide(world, [ScheduleRequest("ask", asking)], NOW)[0].shortfall
    assert counted < 200  # the first hundred, and some for each replica
