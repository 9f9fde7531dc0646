"""Counting devices instead of nodes."""

import itertools
import random
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from scheduler.decide import decide_and_explain
from scheduler.explain.pool_report import pool_report
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.charged_devices import Pods, PoolLoad
from scheduler.hardware.node_fitting import SearchBudget
from scheduler.hardware.template import compile_template
from scheduler.model.inputs import DeploymentView, EngineView, ScheduleRequest
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from scheduler.model.rules import MatchRules
from scheduler.placement.limits.device_accounting import (
    charged_load,
    fit_devices,
    is_safe,
)
from scheduler.planning.trees import decision_tree
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    IS_NIC,
    NOW,
    actions,
    alone,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    message,
    nic,
    places,
    pool,
    pools_of,
    put_replicas,
    report_releasing,
    settled,
    worker,
)

SAFE = SchedulerOptions(accounting="device-safe")
PACKED = SchedulerOptions(accounting="device-packed", packed_enforced=True)


def gpus(count: int, copies: int = 1) -> EngineView:
    return engine("main", alone(ask(count=count)), copies=copies)


def filled(options: SchedulerOptions, nodes: int, *sizes: int) -> Fleet:
    world = fleet(cluster("a", pool("p", nodes, gpu(count=8))), options=options)
    for number, size in enumerate(sizes):
        decision = settled(
            world, deployment(gpus(size), name=f"d{number}"), request_id=str(number)
        )
        assert places(decision) == ["a/0"]
    return world


def asks(world: Fleet, size: int) -> list[str]:
    return places(decided(world, deployment(gpus(size), name="next")))


def test_eight_single_devices_share_a_node_and_the_ninth_is_refused() -> None:
    world = filled(SAFE, 1, *([1] * 8))
    assert asks(world, 1) == []
    assert "of 0 free guaranteed" in message(
        decided(world, deployment(gpus(1), name="next"))
    )


def test_the_detail_of_a_pool_counts_devices() -> None:
    world = filled(SAFE, 1, 4, 4)
    (explained,) = decide_and_explain(
        world, [ScheduleRequest("1", deployment(gpus(1), name="next"))], NOW
    )
    tree = decision_tree(explained)
    assert tree["clusters"]["a"]["pools"]["p"] == {
        "selectors": [],
        "reason": "InsufficientNodes",
        "detail": "engine main: needs 1 devices on one node, 0 of 0 free guaranteed on a/p",
    }


@pytest.mark.parametrize(
    ("options", "want"),
    [(SAFE, []), (PACKED, ["a/0"])],
    ids=["safe refuses", "packed places"],
)
def test_a_whole_node_is_guaranteed_only_by_packing(
    options: SchedulerOptions, want: list[str]
) -> None:
    assert asks(filled(options, 2, 4, 4), 8) == want


@pytest.mark.parametrize("options", [SAFE, PACKED], ids=["safe", "packed"])
def test_a_fourth_half_node_always_fits_two_nodes(options: SchedulerOptions) -> None:
    assert asks(filled(options, 2, 4, 4, 4), 4) == ["a/0"]


def test_by_nodes_the_third_half_node_is_refused() -> None:
    assert asks(filled(SchedulerOptions(), 2, 4, 4), 4) == []


def test_after_a_change_of_accounting_full_clusters_are_tried_again() -> None:
    world = filled(SchedulerOptions(), 1, 1)
    assert asks(world, 1) == []
    world.set_options(SAFE)
    assert asks(world, 1) == ["a/0"]


def test_packing_without_enforced_slots_counts_safely() -> None:
    assert asks(filled(SchedulerOptions(accounting="device-packed"), 2, 4, 4), 8) == []


def test_packed_pods_carry_their_slots() -> None:
    world = filled(PACKED, 2, 4, 4, 8)
    assert sorted(e.engines[0].members[0].slots for e in world.entries()) == [
        (0,),
        (0,),
        (1,),
    ]


def test_gang_pods_take_one_node_each() -> None:
    view = deployment(engine("main", leader(ask()), worker(3)))
    assert places(
        decided(fleet(cluster("a", pool("p", 3, gpu(count=8))), options=SAFE), view)
    ) == ["a/0"]
    assert (
        places(
            decided(fleet(cluster("a", pool("p", 2, gpu(count=8))), options=SAFE), view)
        )
        == []
    )


def test_several_kinds_of_devices_are_each_counted() -> None:
    is_nic = ask('device.driver == "nic.example.com"', count=4, name="nic")
    world = fleet(cluster("a", pool("p", 1, gpu(count=8), nic(count=8))), options=SAFE)
    view = deployment(engine("main", alone(ask(), is_nic)), want=3)
    assert places(decided(world, view)) == ["a/0", "a/1"]


def test_growth_is_counted_in_devices() -> None:
    world = fleet(cluster("a", pool("p", 1, gpu(count=8))), options=SAFE)
    put_replicas(world, deployment(gpus(4)), "a/0")
    assert actions(decided(world, deployment(gpus(4, copies=2), template="v2"))) == {
        "a/0": "Update"
    }
    assert actions(decided(world, deployment(gpus(4, copies=3), template="v2"))) == {
        "a/0": "Keep"
    }


def test_a_replacement_may_use_the_devices_it_releases() -> None:
    world = fleet(cluster("a", pool("p", 1, gpu(count=8))), options=SAFE)
    put_replicas(world, deployment(gpus(8)), "a/0")
    renamed: DeploymentView = deployment(
        engine("other", alone(ask(count=8))), template="v2"
    )
    assert actions(decided(world, renamed)) == {"a/0": "Replace"}


def strands_somebody(size: int, nodes: int, pods: tuple[int, ...]) -> bool:
    """Return whether some order and choice of nodes leaves a pod without a node.

    Every reachable arrangement is tried.
    """
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = set()
    stack: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,) * nodes, pods)]
    while stack:
        state = stack.pop()
        if state in seen:
            continue
        seen.add(state)
        loads, waiting = state
        for i, pod in enumerate(waiting):
            if i and waiting[i - 1] == pod:
                continue
            fitting = [n for n in range(nodes) if loads[n] + pod <= size]
            if not fitting:
                return True
            for n in fitting:
                after = tuple(sorted((*loads[:n], loads[n] + pod, *loads[n + 1 :])))
                stack.append((after, (*waiting[:i], *waiting[i + 1 :])))
    return False


def multisets() -> Iterator[tuple[int, int, tuple[int, ...]]]:
    for size in (2, 4, 8):
        for nodes in (1, 2, 3):
            for count in range(1, 7):
                for pods in itertools.combinations_with_replacement(
                    range(1, size + 1), count
                ):
                    yield size, nodes, pods


@pytest.mark.slow
def test_safe_accounting_never_strands_a_pod() -> None:
    """Every multiset of small pods, every order, every choice of nodes; strictness is
    bounded too.
    """
    strict = 0
    total = 0
    for size, nodes, pods in multisets():
        total += 1
        safe = is_safe((size,), nodes, [Pods((pod,), 1) for pod in pods])
        stranding = strands_somebody(size, nodes, pods)
        assert not (safe and stranding), (size, nodes, pods)
        strict += not safe and not stranding
    assert total > 5_000
    assert strict < total // 10


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(30)))
@pytest.mark.random
def test_a_random_scheduler_finds_a_node_for_every_admitted_pod(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    capacity = (8, dice.choice((2, 4)))
    nodes = dice.randint(1, 5)
    admitted: list[Pods] = []
    for _ in range(12):
        more = Pods((dice.choice((1, 2, 4, 8)), dice.choice((0, 1))), 1)
        if is_safe(capacity, nodes, [*admitted, more]):
            admitted.append(more)
    for _ in range(40):
        loads = [[0, 0] for _ in range(nodes)]
        order = admitted[:]
        dice.shuffle(order)
        for pod in order:
            fitting = [
                load
                for load in loads
                if all(
                    a + b <= c for a, b, c in zip(load, pod.size, capacity, strict=True)
                )
            ]
            assert fitting, (seed, [p.size for p in admitted])
            chosen = dice.choice(fitting)
            chosen[:] = [a + b for a, b in zip(chosen, pod.size, strict=True)]


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(60)))
@pytest.mark.random
def test_a_random_scheduler_that_keeps_siblings_apart_finds_a_node_for_every_admitted_pod(
    seed: int,
) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    nodes = dice.randint(1, 5)
    admitted: list[Pods] = []
    for _ in range(8):
        size, count, per_node = (
            dice.choice((1, 2, 3, 4, 5, 8)),
            dice.randint(1, 4),
            dice.choice((1, 1, 2)),
        )
        more = Pods((size,), count, (count - 1) // per_node)
        if size * per_node <= 8 and is_safe((8,), nodes, [*admitted, more]):
            admitted.append(more)
    per_node_of = [
        group.count if not group.siblings else -(-group.count // (group.siblings + 1))
        for group in admitted
    ]
    for _ in range(200):
        loads = [0] * nodes
        held = [[0] * nodes for _ in admitted]
        order = [g for g, group in enumerate(admitted) for _ in range(group.count)]
        dice.shuffle(order)
        for g in order:
            fitting = [
                n
                for n in range(nodes)
                if loads[n] + admitted[g].size[0] <= 8 and held[g][n] < per_node_of[g]
            ]
            assert fitting, (seed, nodes, admitted)
            chosen = dice.choice(fitting)
            loads[chosen] += admitted[g].size[0]
            held[g][chosen] += 1


def test_a_gang_of_whole_nodes_fits_as_many_nodes_as_it_has_pods() -> None:
    assert is_safe((8,), 3, [Pods((8,), 3, 2)])
    assert not is_safe((8,), 2, [Pods((8,), 3, 2)])
    assert not is_safe((8,), 3, [Pods((1,), 4, 3)])


def load(nodes: int, *pods: Pods) -> PoolLoad:
    found = PoolLoad((8,), nodes)
    for group in pods:
        found.add(group)
    return found


def test_packing_takes_the_tightest_slot() -> None:
    assert load(2, Pods((6,), 1, slots=(0,)), Pods((2,), 1, slots=(1,))).pack(
        [Pods((2,), 1)]
    ) == [(0,)]
    assert load(2, Pods((6,), 1)).pack([Pods((2,), 1)]) is None


SHARED = SchedulerOptions(class_accounting={"shared": "device-safe"})


def test_pools_of_one_class_are_counted_by_device_and_the_others_by_node() -> None:
    world = fleet(
        cluster(
            "a",
            pool("whole", 1, gpu(count=8)),
            pool("parts", 1, gpu(count=8), class_name="shared"),
        ),
        options=SHARED,
    )
    taken = [
        settled(world, deployment(gpus(4), name=f"d{i}"), request_id=str(i))
        for i in range(4)
    ]
    assert [
        [e.pool for p in decision.placements for e in p.engines] for decision in taken
    ] == [["whole"], ["parts"], ["parts"], []]


def test_another_accounting_moves_no_placed_replica() -> None:
    world = filled(SAFE, 1, 4, 4)
    world.set_options(SchedulerOptions())
    assert actions(decided(world, deployment(gpus(4), name="d1"))) == {"a/0": "Keep"}
    assert asks(world, 1) == []


SPANNING = engine(
    "main", leader(ask(count=8)), worker(2, ask(count=8)), span_pools=True
)


def test_an_engine_may_span_pools_of_one_network_when_devices_are_counted() -> None:
    apart = (pool("u", 1, network_domain="ib-1"), pool("v", 2, network_domain="ib-2"))
    refused = decided(fleet(cluster("a", *apart), options=SAFE), deployment(SPANNING))
    assert message(refused).endswith("1 violated spanPools: one network.")
    together = (*apart, pool("w", 1, network_domain="ib-2"))
    engines = (
        decided(fleet(cluster("a", *together), options=SAFE), deployment(SPANNING))
        .placements[0]
        .engines
    )
    assert [
        (member.role, member.pool) for engine in engines for member in engine.members
    ] == [("Leader", "w"), ("Worker", "v")]


def test_a_required_network_holds_when_devices_are_counted() -> None:
    pair = (
        engine("a", alone(ask(count=8)), phase="Prefill"),
        engine("b", alone(ask(count=8)), phase="Decode"),
    )
    pools = (pool("u", 1, network_domain="ib-1"), pool("v", 1, network_domain="ib-2"))
    policy = {
        rule: PlacementPolicy(network_domain=rule) for rule in ("Required", "Ignore")
    }
    view = deployment(*pair, serving_mode="PrefillDecode")
    found = [
        places(
            decided(
                fleet(cluster("a", *pools), options=SAFE),
                replace(view, policy=policy[rule]),
            )
        )
        for rule in policy
    ]
    assert found == [[], ["a/0"]]


@pytest.mark.parametrize(
    ("options", "sizes", "devices"),
    [
        (SAFE, (), {"largest": 8, "free": 16, "unusable": 0}),
        (SAFE, (4, 4), {"largest": 4, "free": 8, "unusable": 0}),
        (PACKED, (4, 4), {"largest": 8, "free": 8, "unusable": 0}),
        (PACKED, (3,), {"largest": 8, "free": 13, "unusable": 5}),
        (SAFE, (5, 5), {"largest": 2, "free": 6, "unusable": 4}),
    ],
    ids=[
        "empty",
        "safe, two halves",
        "packed, two halves",
        "packed, an odd piece",
        "safe, two odd pieces",
    ],
)
def test_fragmentation_is_reported_per_pool(
    options: SchedulerOptions, sizes: tuple[int, ...], devices: dict[str, int]
) -> None:
    report = pool_report(filled(options, 2, *sizes), "a", NOW)
    assert [pool["devices"] for pool in report] == [devices]
    assert [
        (pool["name"], pool["declared"], pool["accounting"]) for pool in report
    ] == [("p", 2, options.accounting)]


def test_by_nodes_a_used_node_is_used_whole() -> None:
    report = pool_report(filled(SchedulerOptions(), 2, 4), "a", NOW)
    assert report[0] == {
        "name": "p",
        "accounting": "node",
        "declared": 2,
        "charged": 1,
        "free": 1,
        "devices": {"largest": 8, "free": 12, "unusable": 4},
    }
    assert pool_report(fleet(), "nowhere", NOW) == []


@pytest.mark.parametrize("options", [SAFE, PACKED], ids=["safe", "packed"])
def test_a_profile_chooses_pools_also_where_devices_are_counted(
    options: SchedulerOptions,
) -> None:
    pools = (
        pool("dear", 2, price_milli=900),
        pool("cheap", 2, price_milli=100),
        pool("middle", 2, price_milli=500),
    )
    world = fleet(cluster("a", *pools), options=options)
    found = [
        pools_of(
            decided(world, deployment(gpus(1), policy=PlacementPolicy(profile=name)))
        )
        for name in ("default", "cheap")
    ]
    assert found == [["dear"], ["cheap"]]


@pytest.mark.parametrize("options", [SAFE, PACKED], ids=["safe", "packed"])
def test_replicas_can_be_assumed_gone(options: SchedulerOptions) -> None:
    world = filled(options, 1, 4, 4)
    overlay = FleetOverlay(world, NOW)
    compiled = compile_template((gpus(8),), MatchRules())
    uids = [entry.uid for entry in world.entries()]

    def failed(without: Collection[str]) -> int:
        budget = SearchBudget()
        return fit_devices(
            overlay,
            compiled,
            overlay.clusters["a"],
            ("ml", "next"),
            budget=budget,
            without=without,
        ).failed

    assert [failed(()), failed(uids[:1]), failed(uids)] == [0, 0, -1]


NEAREST = [
    (
        "too few nodes for a gang",
        (engine("main", leader(), worker(2, ask())),),
        "needs 2 pods with 1 gpu each on different nodes, 1 fit",
    ),
    ("too many copies", (gpus(1, 9),), "needs 9 pods with 1 gpu each, 8 fit"),
    (
        "another engine",
        (engine("e1", alone(ask(count=5))), engine("e2", alone(ask(count=4)))),
        "needs 4 gpu on one node, 8 gpu free",
    ),
    (
        "another device",
        (engine("main", alone(ask(), ask(IS_NIC, name="nic", count=2))),),
        "needs 1 gpu and 2 nic on one node, 8 gpu and 1 nic free",
    ),
]


@pytest.mark.parametrize("options", [SAFE, PACKED], ids=["safe", "packed"])
@pytest.mark.parametrize(
    ("engines", "text"), [row[1:] for row in NEAREST], ids=[row[0] for row in NEAREST]
)
def test_the_nearest_miss_names_the_missing_devices(
    options: SchedulerOptions, engines: tuple[EngineView, ...], text: str
) -> None:
    """Never as many devices as are free, if something else is the reason."""
    world = fleet(
        cluster("a", pool("p", 1, gpu(count=8), nic(count=2))), options=options
    )
    settled(
        world, deployment(engine("main", alone(ask(IS_NIC, name="nic"))), name="other")
    )
    assert f"(best: {text}" in message(decided(world, deployment(*engines)))


def test_replicas_gone_from_another_cluster_free_nothing_here() -> None:
    world = fleet(cluster("a", 4), cluster("b", 4), options=SAFE)
    own = put_replicas(world, deployment(gpus(4)), "a/0", "b/0")
    others = put_replicas(world, deployment(gpus(4), name="other"), "a/0", "b/0")
    for uid in own:
        report_releasing(world, uid)
    overlay = FleetOverlay(world, NOW)
    info = overlay.clusters["a"]

    def left(*without: str) -> int:
        return charged_load(overlay, info, ("ml", "m"), without).on(info.pools[0]).count

    assert [left(), left(others[1]), left(*others)] == [1, 1, 0]
