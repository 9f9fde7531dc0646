"""Random fleets that count devices, under a kube-scheduler that picks any node that
fits.
"""

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pytest

from scheduler.fleet.fleet import Fleet
from scheduler.hardware.charged_devices import Pods, capacity_of, pods_of
from scheduler.model.inputs import (
    DeploymentView,
    EngineView,
    LedgerEntry,
    PoolView,
    RequestView,
)
from scheduler.model.policy import PlacementPolicy, RolloutPolicy, SchedulerOptions
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    IS_GPU,
    IS_NIC,
    alone,
    ask,
    bind_all,
    cluster,
    deployment,
    engine,
    finish_releases,
    fleet,
    gpu,
    leader,
    nic,
    pool,
    settled,
    worker,
)

OPTIONS = {
    "safe": SchedulerOptions(accounting="device-safe"),
    "packed": SchedulerOptions(accounting="device-packed", packed_enforced=True),
    "by class": SchedulerOptions(
        class_accounting={"one": "device-safe", "two": "device-packed"},
        packed_enforced=True,
    ),
}


@dataclass(frozen=True)
class Member:
    """The pods of one copy of a member, with a limit per node."""

    pods: Pods
    each_node: int


def random_requests(dice: random.Random) -> tuple[RequestView, ...]:
    wanted = ask(IS_GPU, count=dice.choice((1, 1, 2, 3, 4, 8)))
    return (
        (wanted, ask(IS_NIC, count=dice.choice((1, 2)), name="nic"))
        if dice.random() < 0.3
        else (wanted,)
    )


def random_engine(dice: random.Random, name: str) -> EngineView:
    if dice.random() < 0.7:
        return engine(name, alone(*random_requests(dice)), copies=dice.randint(1, 3))
    part = worker(dice.randint(1, 3), *random_requests(dice))
    return engine(
        name,
        leader(*random_requests(dice)),
        replace(part, pods_per_node=dice.choice((1, 1, 2))),
        copies=dice.randint(1, 2),
    )


def random_view(dice: random.Random, name: str, template: int) -> DeploymentView:
    return deployment(
        *(random_engine(dice, f"e{i}") for i in range(dice.choice((1, 1, 2)))),
        name=name,
        want=dice.randint(0, 3),
        template=f"v{template}",
        policy=PlacementPolicy(
            dice.choice(
                (
                    RolloutPolicy("AllAtOnce"),
                    RolloutPolicy(),
                    RolloutPolicy(max_surge=1),
                )
            )
        ),
    )


def edited(dice: random.Random, view: DeploymentView, template: int) -> DeploymentView:
    """Another number of copies or replicas, or another deployment altogether."""
    deed = dice.randrange(4)
    if deed == 0:
        return replace(random_view(dice, view.name, template), policy=view.policy)
    if deed == 1:
        return replace(view, replicas=dice.randint(0, 4))
    grown = tuple(replace(one, copies=dice.randint(1, 3)) for one in view.engines)
    return replace(view, engines=grown, template=f"v{template}")


def members_on(entries: Iterable[LedgerEntry], where: PoolView) -> Iterator[Member]:
    for entry in entries:
        for placed in entry.engines:
            for member in placed.members:
                if member.pool == where.name and member.requests:
                    pods = pods_of(member, 1, where)
                    each_node = (
                        pods.count if pods.siblings == 0 else member.pods_per_node
                    )
                    yield from [Member(pods, each_node)] * placed.copies


def stranded(dice: random.Random, where: PoolView, members: Iterable[Member]) -> bool:
    """Start all pods in some order, each on some node that fits; return whether one
    finds none.
    """
    capacity = capacity_of(where)
    loads = [(0,) * len(capacity) for _ in range(where.nodes)]
    waiting = [
        (number, member)
        for number, member in enumerate(members)
        for _ in range(member.pods.count)
    ]
    dice.shuffle(waiting)
    siblings: Counter[tuple[int, int]] = Counter()
    for number, member in waiting:
        after = [
            tuple(a + b for a, b in zip(load, member.pods.size, strict=True))
            for load in loads
        ]
        fitting = [
            n
            for n in range(where.nodes)
            if siblings[number, n] < member.each_node
            and all(a <= b for a, b in zip(after[n], capacity, strict=True))
        ]
        if not fitting:
            return True
        chosen = dice.choice(fitting)
        loads[chosen] = after[chosen]
        siblings[number, chosen] += 1
    return False


def check(dice: random.Random, world: Fleet, waiting: set[str]) -> None:
    """Both the present pods and the pods after the releasing replicas are gone find
    nodes.
    """
    for name, info in world.clusters.items():
        entries = world.on_cluster(name).values()
        there = [entry for entry in entries if entry.uid not in waiting]
        later = [entry for entry in entries if entry.state != "Releasing"]
        for where in info.pools:
            unit = world.options.class_accounting.get(
                where.class_name, world.options.accounting
            )
            for some in (there, later):
                if unit == "device-safe":
                    assert not any(
                        stranded(dice, where, members_on(some, where)) for _ in range(5)
                    )
                elif unit == "node":
                    assert (
                        sum(member.pods.count for member in members_on(some, where))
                        <= where.nodes
                    )
                else:
                    check_slots(where, some)


def check_slots(where: PoolView, entries: Iterable[LedgerEntry]) -> None:
    used: dict[int, Counter[int]] = {}
    for entry in entries:
        for placed in entry.engines:
            for member in placed.members:
                if member.pool == where.name and member.requests:
                    assert len(member.slots) == member.pods * placed.copies
                    for slot in member.slots:
                        used.setdefault(slot, Counter()).update(
                            dict(enumerate(pods_of(member, 1, where).size))
                        )
    assert set(used) <= set(range(where.nodes))
    for load in used.values():
        assert all(load[e] <= devices for e, devices in enumerate(capacity_of(where)))


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(60)))
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.random
def test_every_admitted_pod_always_has_a_node(
    options: SchedulerOptions, seed: int
) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    classes = ("one", "two", "three")
    pools = [
        pool(
            f"p{i}",
            dice.randint(1, 5),
            gpu(count=dice.choice((4, 8))),
            nic(count=dice.choice((2, 4))),
            class_name=dice.choice(classes),
        )
        for i in range(dice.randint(1, 2))
    ]
    world = fleet(cluster("a", *pools), options=options)
    views = [random_view(dice, f"d{i}", 0) for i in range(4)]
    waiting: set[str] = set()
    for step in range(12):
        if dice.random() < 0.5:
            finish_releases(world)
            waiting.clear()
        if dice.random() < 0.7:
            bind_all(world)
        at = dice.randrange(len(views))
        if dice.random() < 0.6:
            views[at] = edited(dice, views[at], step)
        decision = settled(world, views[at], request_id=f"ask-{step}")
        waiting |= {
            placement.uid for placement in decision.placements if placement.after
        }
        check(dice, world, waiting)
    assert world.audit() == []
