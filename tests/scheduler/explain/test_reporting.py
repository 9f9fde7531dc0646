"""The conditions, headlines and events of a decision."""

import json
import random

import pytest

from api_types.names import replica_name
from scheduler.decide import apply, decide
from scheduler.explain.diagnosis import headline, joined, named
from scheduler.fleet.snapshots import snapshot
from scheduler.fleet.snapshots.snapshot import (
    CLUSTERS_PER_PART,
    REPLICAS_PER_PART,
    SnapshotReader,
)
from scheduler.model.decision import Decision, Diagnosis, ReasonGroup
from scheduler.model.inputs import ScheduleRequest
from scheduler.model.policy import PlacementPolicy, SchedulerOptions
from scheduler.model.wire import from_wire, to_wire
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    NOW,
    actions,
    alone,
    ask,
    at_least,
    bind_all,
    cluster,
    condition,
    decided,
    deployment,
    engine,
    fleet,
    gang,
    gpu,
    message,
    places,
    pool,
    put_replicas,
    settled,
)


def test_a_first_placement_is_scheduling_until_a_replica_is_observed() -> None:
    decision = decided(fleet(cluster("b", 2), cluster("a", 2)), deployment(want=3))
    assert (condition(decision), message(decision)) == (
        ("False", "Scheduling"),
        "3 of 3 replicas scheduled",
    )
    assert {placement.cluster for placement in decision.placements} == {"a", "b"}


def test_an_observed_replica_counts_as_created() -> None:
    world = fleet(cluster("a", 1))
    settled(world, deployment())
    bind_all(world, ready=False)
    decision = decided(world, deployment(), request_id="2")
    assert (condition(decision), message(decision)) == (
        ("True", "ReplicasCreated"),
        "Scheduled 1 of 1 replicas",
    )


def test_a_placement_carries_the_clusters_address() -> None:
    assert (
        decided(fleet(cluster("a", 1)), deployment()).placements[0].gateway_address
        == "a.example"
    )


PRIORITIES: list[tuple[str, dict[str, int], str]] = [
    ("hight", {"high": 100, "low": -1}, "nearest: high"),
    ("urgent", {"high": 100, "low": -1}, "it has high, low"),
    ("urgent", {}, "it has none"),
]


@pytest.mark.parametrize(("name", "classes", "other"), PRIORITIES)
def test_an_unknown_priority_class_sets_a_condition(
    name: str, classes: dict[str, int], other: str
) -> None:
    world = fleet(cluster("a", 1), options=SchedulerOptions(priority_classes=classes))
    decision = decided(world, deployment(policy=PlacementPolicy(priority_class=name)))
    assert condition(decision, "PriorityClassUnknown") == (
        "True",
        "PriorityClassNotFound",
    )
    assert message(decision, "PriorityClassUnknown") == (
        "spec.scheduling.priorityClassName: the fleet's policy has no priority class "
        f"{name}, so the priority is 0; {other}"
    )


def test_a_known_priority_class_sets_no_condition() -> None:
    world = fleet(
        cluster("a", 1), options=SchedulerOptions(priority_classes={"high": 100})
    )
    for name in ("high", ""):
        assert condition(
            decided(world, deployment(policy=PlacementPolicy(priority_class=name))),
            "PriorityClassUnknown",
        ) == ("", "")


def test_nothing_fits() -> None:
    decision = decided(fleet(cluster("a", 0)), deployment())
    assert condition(decision) == ("False", "InsufficientCapacity")
    assert message(decision) == (
        "0 of 1 replicas scheduled (checked 1 clusters). "
        "0/1 clusters are available: 1 had too few free nodes for engine main (best: "
        "needs 1, 0 free on a/p). "
        "One more replica would fit with one more node in a/p."
    )


def test_only_some_replicas_fit() -> None:
    decision = decided(
        fleet(cluster("a", 2), cluster("b", 1), cluster("c", 9, ready=False)),
        deployment(want=5),
    )
    assert condition(decision) == ("False", "InsufficientCapacity")
    assert message(decision).startswith(
        "3 of 5 replicas scheduled (checked 3 clusters). 0/3 clusters are available: 2 had too few"
    )
    assert condition(decision, "FullyScheduled") == ("False", "InsufficientNodes")


def test_scaling_to_zero_is_reported() -> None:
    assert condition(decided(fleet(), deployment(want=0))) == ("True", "ScaledToZero")


def test_every_cluster_is_counted_once_and_the_largest_group_leads() -> None:
    us = {"region": "us"}
    world = fleet(
        *(cluster(f"l{i}", 1, labels={"region": "eu"}) for i in range(5)),
        *(cluster(f"n{i}", 1, labels=us, ready=False) for i in range(3)),
        *(
            cluster(f"t{i}", 1, labels=us, taints=["gpu=x:NoSchedule"])
            for i in range(2)
        ),
        *(cluster(f"f{i}", i, labels=us) for i in range(2)),
    )
    decision = decided(world, deployment(engine(copies=4), match_labels=us))
    assert headline(decision.diagnosis) == (
        "0/12 clusters are available: 5 didn't match clusterSelector, 3 aren't Ready, "
        "2 had too few free nodes for engine main (best: needs 4, 1 free on f1/p), 2 "
        "had untolerated taint {gpu=x:NoSchedule}. "
        "One more replica would fit with 3 more nodes in f1/p."
    )


def test_the_headline_names_the_engine_that_finds_no_pool() -> None:
    world = fleet(cluster("a", pool("p", 4, gpu("80Gi"))))
    assert "1 had no pool for engine big" in message(
        decided(
            world,
            deployment(engine("small", alone(ask(at_least("1Gi")))), engine("big")),
        )
    )


def test_the_nearest_miss_is_the_smallest_gap_then_the_first_name() -> None:
    world = fleet(cluster("b", 3), cluster("c", 3), cluster("a", 1))
    assert "(best: needs 4, 3 free on b/p)" in message(
        decided(world, deployment(gang(3)))
    )


def test_a_long_headline_is_cut_between_reasons() -> None:
    groups = tuple(
        ReasonGroup(
            "Tainted", f"had untolerated taint {{{'k' * 50}-{i}:NoSchedule}}", 1
        )
        for i in range(100)
    )
    text = headline(Diagnosis(100, groups))
    assert len(text) <= 2000
    assert text.endswith(" more.")
    assert int(text.split(" and ")[-1].split()[0]) + text.count("untolerated") == 100


def test_a_long_suggestion_leaves_room_for_the_reasons() -> None:
    text = headline(
        Diagnosis(
            1,
            (ReasonGroup("Tainted", "had untolerated taint {x}", 1),),
            suggestion="one more " + "x" * 5000,
        )
    )
    assert len(text) <= 2000
    assert text.startswith(
        "0/1 clusters are available: 1 had untolerated taint {x}. One more xx"
    )
    assert text.endswith("x...")


@pytest.mark.parametrize(
    ("limit", "text"),
    [
        (100, "one, two, three, four"),
        (21, "one, two, three, four"),
        (20, "one, two, and 2 more"),
        (19, "one, and 3 more"),
        (10, "one"),
    ],
)
def test_texts_are_joined_as_far_as_they_fit(limit: int, text: str) -> None:
    assert joined(["one", "two", "three", "four"], limit) == text


def test_at_most_ten_names_are_listed() -> None:
    assert named(f"r{i:02}" for i in range(12)).endswith("r09 and 2 more")


@pytest.mark.random
def test_the_order_of_inputs_changes_nothing() -> None:
    view = deployment(want=5)
    digests = set()
    for seed in range(SEED, SEED + cases(100)):
        shuffled = random.Random(seed)  # noqa: S311  # not for secrets
        clusters = [
            cluster(name, nodes, labels=dict(shuffled.sample(list(LABELS.items()), 2)))
            for name, nodes in NODES
        ]
        shuffled.shuffle(clusters)
        world = fleet(*clusters)
        existing = ["a/0", "b/1", "c/4"]
        shuffled.shuffle(existing)
        put_replicas(world, view, *existing)
        digests.add(decided(world, view).digest)
    assert len(digests) == 1


LABELS = {"region": "us", "tier": "gpu"}
NODES = [("a", 2), ("b", 3), ("c", 1), ("d", 4)]


@pytest.mark.random
def test_deciding_again_keeps_everything() -> None:
    world = fleet(*(cluster(name, nodes) for name, nodes in NODES))
    settled(world, deployment(want=7))
    again = decided(world, deployment(want=7), request_id="2")
    assert set(actions(again).values()) == {"Keep"}
    assert (again.evictions, again.victims) == ((), ())


def test_other_clusters_and_deployments_change_nothing_for_kept_replicas() -> None:
    world = fleet(cluster("b", 2))
    settled(world, deployment())
    world.put_cluster(cluster("a", 9))
    settled(world, deployment(name="other"), request_id="2")
    assert actions(decided(world, deployment(), request_id="3")) == {"b/0": "Keep"}


def test_names_of_any_deployment_are_labels() -> None:
    names = {
        replica_name("ml", text, "a", 0) for text in ("a.b", "9x", "x" * 70, "x" * 253)
    }
    assert len(names) == 4
    assert all(
        len(name) <= 63 and name[0].isalpha() and "." not in name for name in names
    )


def test_parts_of_an_identity_are_delimited_in_uids() -> None:
    stem = "m" * 57
    assert replica_name("ml", f"{stem}-a", "b", 0) != replica_name("ml", stem, "a-b", 0)
    assert replica_name("ml", "m-a", "b", 0) != replica_name("ml", "m", "a-b", 0)


def test_a_name_in_use_by_another_identity_is_changed() -> None:
    world = fleet(cluster("a", 4))
    taken = replica_name("ml", "m", "a", 0)
    put_replicas(world, deployment(name="other"), "a/0", name=taken)
    decision = settled(world, deployment())
    placement = decision.placements[0]
    assert (placement.name_counter, placement.replica_name) == (
        1,
        replica_name("ml", "m", "a", 0, 1),
    )
    assert (
        decided(world, deployment(), request_id="2").placements[0].replica_name
        == placement.replica_name
    )


def test_a_decision_survives_the_wire() -> None:
    world = fleet(cluster("a", 2), cluster("b", 1, ready=False))
    decision = decided(world, deployment(gang(1), want=4))
    assert from_wire(Decision, json.loads(json.dumps(to_wire(decision)))) == decision


def test_a_malformed_message_names_the_expected_type() -> None:
    with pytest.raises(ValueError, match="invalid ScheduleRequest"):
        from_wire(ScheduleRequest, {"requestId": "1"})


def test_a_batch_equals_single_decisions_in_order() -> None:
    requests = [
        ScheduleRequest(str(i), deployment(name=f"d{i}", want=2)) for i in range(6)
    ]
    whole = fleet(*(cluster(name, nodes) for name, nodes in NODES))
    single = fleet(*(cluster(name, nodes) for name, nodes in NODES))
    batch = decide(whole, requests, NOW)
    one_by_one = []
    for request in requests:
        one_by_one += decide(single, [request], NOW)
        apply(single, one_by_one[-1])
    assert batch == one_by_one


def test_a_dry_run_charges_nothing_in_its_batch() -> None:
    world = fleet(cluster("a", 1))
    dry, real = decide(
        world,
        [
            ScheduleRequest("1", deployment(name="x"), dry_run=True),
            ScheduleRequest("2", deployment(name="y")),
        ],
        NOW,
    )
    assert (places(dry), places(real)) == (["a/0"], ["a/0"])
    version = world.version
    apply(world, dry)
    assert world.version == version


def test_a_fleet_survives_its_packing() -> None:
    world = fleet(
        cluster("a", 4, taints=["x:NoExecute"]),
        cluster("b", pool("q", 2, gpu(), network_domain="ib-1")),
    )
    world.set_options(SchedulerOptions(priority_classes={"high": 10}))
    settled(world, deployment(want=2))
    put_replicas(world, deployment(name="other"), "b/0", pools="q", name="odd-name")
    copy = snapshot.load(snapshot.dump(world))
    assert snapshot.dump(copy) == snapshot.dump(world)
    assert {e.uid: e for e in copy.entries()} == {e.uid: e for e in world.entries()}
    assert (copy.version, copy.options, copy.free("a")) == (
        world.version,
        world.options,
        world.free("a"),
    )
    assert [info.view for info in copy.clusters.values()] == [
        info.view for info in world.clusters.values()
    ]
    assert copy.audit() == []


@pytest.mark.slow
def test_a_large_fleet_is_packed_in_parts_that_are_read_one_at_a_time() -> None:
    one = pool("p", 6_000)
    world = fleet(*(cluster(f"c{i:05}", one) for i in range(CLUSTERS_PER_PART + 1)))
    settled(
        world, deployment(want=REPLICAS_PER_PART + 1, uid="6a1f"), request_id="6a1f/1/1"
    )
    bind_all(world)
    parts = snapshot.dump(world)
    assert len(parts) == 5
    reading = SnapshotReader(parts)
    while reading.left:
        reading.read_next()
    assert snapshot.dump(reading.fleet) == parts
    assert {e.uid: e for e in reading.fleet.entries()} == {
        e.uid: e for e in world.entries()
    }
    # Values that can be derived are not written, so a replica takes a handful of bytes.
    assert sum(len(part) for part in parts[3:]) < 5 * REPLICAS_PER_PART


def test_rubbish_is_rejected_as_a_snapshot() -> None:
    with pytest.raises(ValueError, match="invalid fleet snapshot"):
        snapshot.load([b"rubbish"])
    for parts in ([], snapshot.dump(fleet(cluster("a", 1)))[1:]):
        with pytest.raises(ValueError, match="invalid fleet snapshot"):
            snapshot.load(parts)
