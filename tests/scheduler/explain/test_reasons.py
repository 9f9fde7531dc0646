"""The reasons for replicas without a place, as an engineer reads them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler.decide import decide_and_explain
from scheduler.explain import near_miss, near_names
from scheduler.explain.cluster_report import ClusterDetail
from scheduler.explain.diagnosis import diagnose
from scheduler.explain.near_names import by_nearness, nearest
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.overlay import FleetOverlay
from scheduler.hardware.template import compile_template
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import (
    ClusterView,
    DeploymentView,
    PoolView,
    QueueView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from scheduler.placement.limits.quota import QuotaGate
from scheduler.placement.placer import ReplicaPlacer
from scheduler.planning.settle import copy_of
from tests.scheduler.builders import (
    DRIVER,
    NOW,
    alone,
    ask,
    at_least,
    cluster,
    condition,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    leader,
    message,
    nic,
    pool,
    put_replicas,
    worker,
)


def details(world: Fleet, view: DeploymentView) -> Mapping[str, ClusterDetail]:
    (explained,) = decide_and_explain(world, [ScheduleRequest("1", view)], NOW)
    return explained.clusters


def wanting(*selectors: str, count: int = 1) -> DeploymentView:
    return deployment(engine("main", alone(ask(*selectors, count=count))))


PREFILL_AND_DECODE = (engine("prefill", copies=2), engine("decode", copies=2))


def test_engines_that_share_a_pool_are_added_up() -> None:
    view = deployment(*PREFILL_AND_DECODE, serving_mode="PrefillDecode")
    found = details(fleet(cluster("a", 3)), view)["a"]
    together = "needs 4 nodes of a/p together (prefill 2, decode 2), 3 free"
    assert together in message(decided(fleet(cluster("a", 3)), view))
    assert (
        found.detail == f"had too few free nodes for engine decode (best: {together})"
    )
    assert (found.pools["p"].reason, found.pools["p"].detail) == (
        "InsufficientNodes",
        "needs 4 nodes together (prefill 2, decode 2), 3 free of 3",
    )
    (need,) = found.needs
    assert (need.pool, need.nodes, need.free, need.engines) == (
        "p",
        4,
        3,
        (("prefill", 2), ("decode", 2)),
    )


def test_every_pool_that_lacks_nodes_is_named() -> None:
    view = deployment(
        engine("big", copies=2),
        engine(
            "small", alone(ask(at_least("24Gi"), 'device.driver == "l4"')), copies=3
        ),
    )
    other = DeviceEntry(
        "gpu", "DRA", "l4", "l4", 1, capacity=((f"{DRIVER}/memory", "24Gi"),)
    )
    found = details(fleet(cluster("a", pool("h200", 1), pool("l4", 1, other))), view)[
        "a"
    ]
    assert found.detail.endswith(
        "(best: needs 2, 1 free on a/h200 and needs 3, 1 free on a/l4)"
    )


def test_a_member_that_may_span_pools_is_explained_on_its_own() -> None:
    wide = engine("main", leader(ask()), worker(3), span_pools=True)
    world = fleet(cluster("a", 2))
    assert (
        "needs 4 nodes of a/p together (main Leader 1, main Worker 3), 2 free"
        in message(decided(world, deployment(wide)))
    )
    assert (
        details(world, deployment(wide))["a"].pools["p"].reason == "InsufficientNodes"
    )


SELECTORS = [
    ("a quantity", at_least("80Gi"), "memory is 24Gi, wanted at least 80Gi"),
    (
        "a quantity on the left",
        f'quantity("80Gi").isLessThan(device.capacity["{DRIVER}"].memory)',
        "memory is 24Gi, wanted more than 80Gi",
    ),
    (
        "a quantity compared from the left",
        f'quantity("80Gi").compareTo(device.capacity["{DRIVER}"].memory) <= 0',
        "memory is 24Gi, wanted at least 80Gi",
    ),
    (
        "a version",
        f'device.attributes["{DRIVER}"].cuda.isGreaterThan(semver("9.0.0"))',
        "cuda is 8.9.0, wanted more than 9.0.0",
    ),
    (
        "a text",
        f'device.attributes["{DRIVER}"].family == "Hopper"',
        "family is Ada, wanted Hopper",
    ),
    (
        "alternatives",
        (
            f'device.attributes["{DRIVER}"].family == "Hopper" || '
            f'device.attributes["{DRIVER}"]["family"] == "Blackwell"'
        ),
        "family is Ada, wanted Hopper or Blackwell",
    ),
    (
        "one of a list",
        f'device.attributes["{DRIVER}"].family in ["Hopper", "Blackwell"]',
        "family is Ada, wanted Hopper or Blackwell",
    ),
    ("a bool", f'device.attributes["{DRIVER}"].mig', "mig is false, wanted true"),
    (
        "a bool that is not",
        f'!device.attributes["{DRIVER}"].ecc',
        "ecc is true, wanted false",
    ),
    (
        "the beginning of a text",
        f'device.attributes["{DRIVER}"].family.startsWith("B")',
        "family is Ada, wanted beginning with B",
    ),
    (
        "the driver",
        'device.driver == "nic.example.com"',
        "driver is gpu.nvidia.com, wanted nic.example.com",
    ),
    (
        "a name that is missing",
        f'device.attributes["{DRIVER}"].product == "H100"',
        "has no product, only productName, cuda, ecc, family, mig",
    ),
    (
        "a domain that is missing",
        'device.attributes["gpu.nvidia.co"].cuda == "x"',
        (
            "has no gpu.nvidia.co/cuda, only gpu.nvidia.com/cuda, gpu.nvidia.com/ecc, "
            "gpu.nvidia.com/mig, gpu.nvidia.com/family, "
            "gpu.nvidia.com/productName"
        ),
    ),
    (
        "two at once",
        (
            f'device.attributes["{DRIVER}"].family == "Hopper" && '
            f'device.driver == "{DRIVER}" && {at_least("80Gi")}'
        ),
        "family is Ada, wanted Hopper, memory is 24Gi, wanted at least 80Gi",
    ),
]
L4 = DeviceEntry(
    "l4",
    "DRA",
    DRIVER,
    DRIVER,
    8,
    (
        ("family", "string", "Ada"),
        ("cuda", "version", "8.9.0"),
        ("ecc", "bool", True),
        ("mig", "bool", False),
        ("productName", "string", "L4"),
    ),
    (("memory", "24Gi"),),
)


@pytest.mark.parametrize(
    ("story", "selector", "told"), SELECTORS, ids=[row[0] for row in SELECTORS]
)
def test_a_selector_is_shown_with_the_closest_devices_value(
    story: str, selector: str, told: str
) -> None:
    del story
    found = details(fleet(cluster("a", pool("p", 1, L4))), wanting(selector))[
        "a"
    ].pools["p"]
    assert found.detail.endswith(f"; closest device l4: {told}")


def test_the_closest_device_is_the_one_with_the_fewest_differences() -> None:
    devices = (
        nic(),
        gpu("24Gi", name="small"),
        gpu("40Gi", name="medium"),
        gpu("16Gi", name="tiny"),
    )
    found = details(
        fleet(cluster("a", pool("p", 1, *devices))),
        wanting(f'device.driver == "{DRIVER}" && {at_least("80Gi")}'),
    )["a"].pools["p"]
    assert found.detail.endswith(
        "; closest device medium: memory is 40Gi, wanted at least 80Gi"
    )
    (seen,) = found.selectors
    assert (
        seen.engine,
        seen.member,
        seen.gap.selector,
        seen.gap.device,
        seen.gap.unmet[0].has,
    ) == (
        "main",
        "Standalone",
        1,
        "medium",
        "40Gi",
    )


def test_the_closest_device_of_the_fleet_is_in_the_message() -> None:
    small, large = pool("p", 1, gpu("24Gi")), pool("q", 1, gpu("40Gi", name="big"))
    told = message(
        decided(
            fleet(cluster("a", small), cluster("b", small, large)),
            wanting(at_least("80Gi")),
        )
    )
    assert (
        "2 had no pool for engine main (best: b/q, closest device big: memory is "
        "40Gi, wanted at least 80Gi)" in told
    )
    told = message(
        decided(fleet(cluster("a", small), cluster("b", 0)), wanting(at_least("80Gi")))
    )
    assert "1 had no pool for engine main," in told


def test_how_many_devices_a_node_has_is_in_the_message() -> None:
    few, many = (
        pool("p", 1, replace(gpu("80Gi"), count=4)),
        pool("q", 1, replace(gpu("80Gi"), count=8)),
    )
    view = deployment(engine("main", alone(ask(at_least("80Gi"), count=16))))
    told = message(decided(fleet(cluster("a", few), cluster("b", many)), view))
    assert (
        "2 had no pool for engine main (best: b/q, request gpu needs 16 devices, best 8)."
        in told
    )


def test_a_long_selector_is_cut_off() -> None:
    selector = " || ".join(f'device.driver == "other-{i}"' for i in range(100))
    found = details(fleet(cluster("a", 1)), wanting(selector))["a"].pools["p"]
    assert "matched 0 of 1 entries: device.driver == " in found.detail
    assert len(found.detail) < 2_500


MALFORMED = [
    (
        "a version",
        replace(L4, attributes=(("cuda", "version", "8.x"),)),
        "attribute cuda",
    ),
    (
        "a quantity",
        replace(L4, capacity=(("memory", "24 gigabytes"),)),
        "capacity memory",
    ),
    ("no type", replace(L4, attributes=(("cuda", "", ""),)), "attribute cuda"),
]


@pytest.mark.parametrize(
    ("story", "device", "where"), MALFORMED, ids=[row[0] for row in MALFORMED]
)
def test_a_device_that_cannot_be_read_is_malformed(
    story: str, device: DeviceEntry, where: str
) -> None:
    del story
    found = details(
        fleet(cluster("a", pool("p", 1, device))), wanting(at_least("16Gi"))
    )["a"].pools["p"]
    assert found.reason == "DeviceMalformed"
    assert (
        f"request gpu: device l4 of the class cannot be read: {where}: " in found.detail
    )


def test_a_selector_error_is_not_a_malformed_device() -> None:
    found = details(
        fleet(cluster("a", pool("p", 1, L4))), wanting('device.attributes["x"].y == 1')
    )["a"].pools["p"]
    assert found.reason == "SelectorError"


def test_a_malformed_device_does_not_hide_a_selector_error_on_another_device() -> None:
    entries = (replace(L4, name="broken", attributes=(("cuda", "version", "8.x"),)), L4)
    found = details(
        fleet(cluster("a", pool("p", 1, *entries))),
        wanting('device.attributes["x"].y == 1'),
    )["a"].pools["p"]
    assert found.reason == "SelectorError"


def test_a_second_pool_of_a_name_has_its_own_row() -> None:
    pools = details(fleet(cluster("a", pool("p", 0), pool("p", 9))), deployment())[
        "a"
    ].pools
    assert {name: (seen.reason, seen.detail) for name, seen in pools.items()} == {
        "p": ("InsufficientNodes", "engine main: needs 1, 0 free of 0"),
        "p (duplicate)": ("DuplicatePool", "an earlier pool has the same name"),
    }


def unpublished(name: str, class_name: str) -> ClusterView:
    return replace(cluster(name), unpublished=(("p", class_name),))


def test_a_missing_class_is_reported_with_the_nearest_name() -> None:
    known = cluster("b", pool("p", 0, class_name="h200"))
    text = "InferenceClass h20 does not exist, nearest: h200"
    assert f"1 publish no pools (a: pool p: {text})" in message(
        decided(fleet(unpublished("a", "h20"), known), deployment())
    )
    assert (
        details(fleet(unpublished("a", "h20"), known), deployment())["a"].detail
        == f"publish no pools; pool p: {text}"
    )


def test_a_class_that_exists_is_not_called_missing() -> None:
    world = fleet(unpublished("a", "h20"))
    world.class_names = frozenset({"h20", "h200"})
    assert (
        "InferenceClass h20 has no devices, or its cluster has not read it yet"
        in message(decided(world, deployment()))
    )


def test_a_missing_label_is_reported_with_the_nearest_one() -> None:
    world = fleet(
        cluster("a", 1, labels={"region": "us-east"}),
        cluster("b", 1, labels={"region": "eu-west"}),
    )
    told = message(decided(world, deployment(match_labels={"region": "us-eats"})))
    assert (
        "2 didn't match clusterSelector (no cluster has region=us-eats, nearest: region=us-east)"
        in told
    )
    told = message(decided(world, deployment(match_labels={"regoin": "us-east"})))
    assert "(no cluster has regoin=us-east, nearest: region=us-east)" in told
    assert (
        details(world, deployment(match_labels={"regoin": "us-east"}))["a"].detail
        == "wants regoin=us-east, has region=us-east"
    )


def test_names_are_sorted_by_how_many_characters_differ() -> None:
    assert by_nearness("product", ["memory", "productName", "prodcut", "a"]) == [
        "productName",
        "prodcut",
        "a",
        "memory",
    ]
    assert [
        nearest("h20", ["a100", "h200", "l4"]),
        nearest("eu", ["us"]),
        nearest("gold", ["gold"]),
    ] == ["h200", "", ""]


def gangs(size: int, *, want: int = 0, **policy: object) -> DeploymentView:
    return deployment(
        want=want or size,
        policy=PlacementPolicy(gang_replicas=size, **policy),  # type: ignore[arg-type]
    )


GANGS = [
    (
        "one cluster",
        [cluster("a", 1)],
        2,
        (
            "1 had too few free nodes for engine main (a gang of 2 replicas needs 2 "
            "nodes, 1 free on a/p)."
        ),
    ),
    (
        "several clusters",
        [cluster("a", 1), cluster("b", 1)],
        3,
        "2 had too few free nodes for engine main (a gang of 3 replicas needs 3 nodes, 2 free).",
    ),
    (
        "nothing free",
        [cluster("a", 0)],
        2,
        (
            "1 had too few free nodes for engine main (a gang of 2 replicas needs 2 "
            "nodes, 0 free on a/p)."
        ),
    ),
]


@pytest.mark.parametrize(
    ("story", "clusters", "size", "told"), GANGS, ids=[row[0] for row in GANGS]
)
def test_a_gang_is_explained_as_a_unit(
    story: str, clusters: list[ClusterView], size: int, told: str
) -> None:
    del story
    decision = decided(fleet(*clusters), gangs(size))
    assert told in message(decision)
    assert condition(decision) == ("False", "InsufficientCapacity")
    assert condition(decision, "FullyScheduled") == ("False", "InsufficientNodes")
    assert sum(group.count for group in decision.diagnosis.groups) == len(clusters)


def test_a_report_says_after_how_many_placed_gang_replicas_the_next_does_not_fit() -> (
    None
):
    assert details(fleet(cluster("a", 1)), gangs(2))["a"].detail == (
        "had too few free nodes for engine main (best: needs 1, 0 free on a/p) after "
        "1 of 2 replicas of its gang were placed"
    )


def test_the_rejection_of_the_rest_of_a_gang_is_its_reason() -> None:
    world = fleet(
        cluster("a", 9), options=SchedulerOptions(quotas=(Quota("ml", max_nodes=1),))
    )
    decision = decided(world, gangs(2))
    assert (
        "1 were over quota (used 1 of 1 nodes, needs 1 more). A gang of 2 replicas is "
        "placed as a whole, and 1 would fit." in message(decision)
    )


REFUSALS: list[tuple[str, list[PoolView], dict[str, object], SchedulerOptions]] = [
    ("quota", [pool("p", 9)], {}, SchedulerOptions(quotas=(Quota("ml", max_nodes=0),))),
    ("gang", [pool("p", 1)], {"gang_replicas": 2}, SchedulerOptions()),
    (
        "gang and quota",
        [pool("p", 9)],
        {"gang_replicas": 2},
        SchedulerOptions(quotas=(Quota("ml", max_nodes=1),)),
    ),
    (
        "spread",
        [pool("p", 9)],
        {"topology_spread": (SpreadConstraint("zone"),)},
        SchedulerOptions(),
    ),
    (
        "preemption of nothing",
        [pool("p", 0)],
        {"preemption": "LowerPriority"},
        SchedulerOptions(),
    ),
    ("devices", [pool("p", 0)], {}, SchedulerOptions(accounting="device-safe")),
]


@pytest.mark.parametrize(
    ("story", "pools", "policy", "options"), REFUSALS, ids=[row[0] for row in REFUSALS]
)
def test_every_cluster_has_one_reason(
    story: str,
    pools: list[PoolView],
    policy: dict[str, object],
    options: SchedulerOptions,
) -> None:
    del story
    clusters = [
        cluster("a", *pools),
        cluster("b", *pools, ready=False),
        cluster("c", *pools, taints=["x:NoSchedule"]),
        cluster("d", pool("p", 3, L4)),
        cluster(
            "e",
            *pools,
            queues=(QueueView("q", ("modelplane-ml",), (), 0),),
            observed_at=NOW,
        ),
    ]
    view = deployment(want=2, policy=PlacementPolicy(**policy))  # type: ignore[arg-type]
    diagnosis = decided(fleet(*clusters, options=options), view).diagnosis
    assert (
        sum(group.count for group in diagnosis.groups)
        == diagnosis.clusters
        == len(clusters)
    )


def test_a_quota_rejection_contains_its_numbers() -> None:
    world = fleet(
        cluster("a", 9), options=SchedulerOptions(quotas=(Quota("ml", max_nodes=2),))
    )
    put_replicas(world, deployment(name="other"), "a/0", "a/1")
    assert "1 were over quota (used 2 of 2 nodes, needs 1 more)" in message(
        decided(world, deployment())
    )
    assert (
        details(world, deployment())["a"].detail
        == "were over quota (used 2 of 2 nodes, needs 1 more)"
    )


DEVICES = [
    (
        "one pod",
        engine("main", alone(ask(count=8))),
        4,
        "needs 8 devices on one node, 4 of 4 free guaranteed on a/p",
    ),
    (
        "more pods than fit",
        engine("main", copies=6),
        4,
        "needs 6 pods with 1 gpu each, 4 fit on a/p with 4 gpu free",
    ),
    (
        "another device is short",
        engine(
            "main", alone(ask(), ask('device.driver == "nic.example.com"', name="nic"))
        ),
        4,
        "needs 1 gpu and 1 nic on one node, 4 gpu and 0 nic free on a/p",
    ),
]


@pytest.mark.parametrize(
    ("story", "shape", "free", "told"), DEVICES, ids=[row[0] for row in DEVICES]
)
def test_the_explanation_of_devices_matches_the_rejection(
    story: str, shape: object, free: int, told: str
) -> None:
    """One node has eight GPUs and one NIC; another deployment uses four GPUs and the
    NIC.
    """
    del story
    world = fleet(
        cluster("a", pool("p", 1, gpu(), nic(count=1))),
        options=SchedulerOptions(accounting="device-safe"),
    )
    taken = ask('device.driver == "nic.example.com"', name="nic")
    put_replicas(
        world,
        deployment(engine("main", alone(ask(count=8 - free), taken)), name="other"),
        "a/0",
    )
    assert told in message(decided(world, deployment(shape)))  # type: ignore[arg-type]


def test_a_cluster_that_rejects_nothing_is_counted_too() -> None:
    """The decision's search was cut short before it reached the cluster."""
    view = deployment()
    overlay = FleetOverlay(fleet(cluster("a", 1), cluster("b", 0)), NOW)
    compiled = compile_template(view.engines, overlay.rules.matching)
    placer = ReplicaPlacer(
        overlay, ScheduleRequest("1", view), compiled, (), QuotaGate(overlay, view, 0)
    )
    found = diagnose(overlay, view, compiled, placer)
    assert sorted((group.code, group.count) for group in found.groups) == [
        ("InsufficientNodes", 1),
        ("Undecided", 1),
    ]


def test_unused_classes_are_candidates_for_near_names() -> None:
    world = fleet(unpublished("a", "h20"))
    world.class_names = frozenset({"h200"})
    assert "InferenceClass h20 does not exist, nearest: h200" in message(
        decided(copy_of(world), deployment())
    )


def test_many_absent_labels_cost_a_decision_no_more_than_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def distance(name: str, other: str) -> int:
        compared.append(name)
        return len(other)

    monkeypatch.setattr(near_names, "_distance", distance)
    world = fleet(
        *(
            cluster(f"c{i}", 1, labels={f"{'k' * 50}{n:02d}": "v" for n in range(20)})
            for i in range(3)
        )
    )
    wanted = {f"{'k' * 49}{n:03d}": "v" for n in range(200)}
    assert "(no cluster has " in message(
        decided(world, replace(deployment(), match_labels=wanted))
    )
    assert len(compared) <= 100


def test_only_the_first_of_many_absent_labels_are_listed() -> None:
    wanted = {f"k{n}": "v" for n in range(9)}
    found = details(fleet(cluster("a", 1)), replace(deployment(), match_labels=wanted))[
        "a"
    ]
    assert found.detail == "wants k0=v, k1=v, k2=v, k3=v, k4=v, and 4 more"


def test_too_many_long_names_are_not_searched() -> None:
    names = [f"{'n' * 59}{n:04d}" for n in range(999)]
    assert (nearest(f"{'n' * 62}x", names), nearest(f"{'n' * 62}x", names[:9])) == (
        "",
        names[0],
    )
    # Names of another length are not compared.
    assert nearest("h20x", [*names, "h200"]) == "h200"


def test_missing_devices_are_measured_on_the_first_clusters_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A headline would measure each of ten thousand clusters again."""
    monkeypatch.setattr(near_miss, "_MEASURED_MAX", 2)
    world = fleet(
        *(cluster(f"c-{n}", 1 + n) for n in range(4)),
        options=SchedulerOptions(accounting="device-safe"),
    )
    full = engine("main", alone(ask(count=8)), copies=9)
    assert "2 fit on c-1/p" in message(decided(world, deployment(full)))
