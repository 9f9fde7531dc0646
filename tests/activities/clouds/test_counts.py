"""Sizes of pools: fixed without a maximum, and each cloud's default minimum."""

from dataclasses import astuple
from typing import Any

import pytest

from activities.clouds.desired.counts import pool_counts
from api_types.resources.inference_cluster import NodePool
from api_types.sections.clouds import GkeSettings
from tests.activities.clouds.builders import (
    a_pool,
    an_eks_pool,
    call_of,
    eks,
    gke,
    object_of,
    warned,
)

# nodeCount, minNodeCount, maxNodeCount, then start, least, most, autoscaled with the
# default minimum 0 and 1.
CASES = [
    (
        "fixed without a maximum",
        (2, None, None),
        (2, 2, 2, False),
        (2, 2, 2, False),
    ),
    ("fixed at none", (0, None, None), (0, 0, 0, False), (0, 0, 0, False)),
    (
        "a minimum alone scales nothing",
        (2, 1, None),
        (2, 2, 2, False),
        (2, 2, 2, False),
    ),
    ("the default minimum", (2, None, 4), (2, 0, 4, True), (2, 1, 4, True)),
    ("starts with the minimum", (0, None, 4), (0, 0, 4, True), (1, 1, 4, True)),
    (
        "a minimum of none is honoured",
        (1, 0, 4),
        (1, 0, 4, True),
        (1, 0, 4, True),
    ),
    ("clamped to the maximum", (9, 1, 4), (4, 1, 4, True), (4, 1, 4, True)),
    ("clamped to the minimum", (1, 2, 4), (2, 2, 4, True), (2, 2, 4, True)),
]


@pytest.mark.parametrize(
    ("written", "zero", "one"),
    [row[1:] for row in CASES],
    ids=[row[0] for row in CASES],
)
def test_counts(
    written: tuple[int, int | None, int | None],
    zero: tuple[Any, ...],
    one: tuple[Any, ...],
) -> None:
    pool = NodePool(
        name="p",
        class_name="c",
        node_count=written[0],
        min_node_count=written[1],
        max_node_count=written[2],
    )
    assert (astuple(pool_counts(pool, 0)), astuple(pool_counts(pool, 1))) == (zero, one)


def test_a_fixed_pool_of_gke_is_not_scaled() -> None:
    pool = call_of(gke(a_pool(nodeCount=2)), "pool/gpu", "create_node_pool")[
        "node_pool"
    ]
    assert (pool["initial_node_count"], pool["autoscaling"]) == (2, {"enabled": False})


def test_a_fixed_pool_of_eks_has_three_equal_sizes() -> None:
    made = eks(an_eks_pool(nodeCount=2))
    assert call_of(made, "pool/gpu", "create_nodegroup")["scalingConfig"] == {
        "minSize": 2,
        "maxSize": 2,
        "desiredSize": 2,
    }


def test_a_pool_of_eks_that_is_fixed_at_zero_has_a_valid_maximum() -> None:
    made = eks(an_eks_pool(nodeCount=0))
    assert call_of(made, "pool/gpu", "create_nodegroup")["scalingConfig"] == {
        "minSize": 0,
        "maxSize": 1,
        "desiredSize": 0,
    }
    assert warned(made) == []


def test_a_pool_of_eks_has_a_default_minimum_of_one_node() -> None:
    made = eks(an_eks_pool(nodeCount=9, maxNodeCount=4))
    assert call_of(made, "pool/gpu", "create_nodegroup")["scalingConfig"] == {
        "minSize": 1,
        "maxSize": 4,
        "desiredSize": 4,
    }
    assert warned(made) == [("CountClamped", "pool gpu")]


def test_a_minimum_of_zero_on_eks_is_honoured_with_a_warning() -> None:
    made = eks(an_eks_pool(nodeCount=0, minNodeCount=0, maxNodeCount=4))
    assert call_of(made, "pool/gpu", "create_nodegroup")["scalingConfig"] == {
        "minSize": 0,
        "maxSize": 4,
        "desiredSize": 0,
    }
    assert warned(made) == [("ScaleFromZeroUnsupported", "pool gpu")]


def test_a_minimum_of_zero_on_gke_needs_no_warning() -> None:
    assert warned(gke(a_pool(nodeCount=0, minNodeCount=0, maxNodeCount=4))) == []


def test_a_minimum_without_a_maximum_is_warned_about() -> None:
    assert warned(gke(a_pool(nodeCount=2, minNodeCount=1))) == [
        ("FixedSize", "pool gpu")
    ]


def test_a_pool_of_gke_in_two_zones_says_how_many_nodes_it_really_has() -> None:
    made = gke(
        a_pool(
            nodeCount=1,
            minNodeCount=0,
            maxNodeCount=2,
            zones=["europe-west4-a", "europe-west4-b"],
        )
    )
    assert warned(made) == [("NodesPerZone", "pool gpu")]
    assert made.warnings[0].text == (
        "GKE counts nodes per zone: 2 zones start 2 nodes and have at "
        "most 4; the scheduler counts 2"
    )
    machines = object_of(made, "pool/gpu").machines
    assert machines is not None
    assert (machines.start, machines.most) == (2, 4)


def test_counts_of_all_zones_together_are_a_setting() -> None:
    pool = a_pool(
        nodeCount=3,
        minNodeCount=1,
        maxNodeCount=5,
        zones=["europe-west4-a", "europe-west4-b"],
    )
    made = gke(pool, settings=GkeSettings(count_scope="total"))
    given = call_of(made, "pool/gpu", "create_node_pool")["node_pool"]
    assert given["autoscaling"] == {
        "enabled": True,
        "total_min_node_count": 1,
        "total_max_node_count": 5,
    }
    assert given["initial_node_count"] == 2
    assert [problem.text for problem in made.warnings] == [
        (
            "GKE counts nodes per zone: 2 zones start 4 nodes and have at "
            "most 5; the scheduler counts 5"
        )
    ]


def test_a_fixed_pool_is_rounded_up_to_equal_zones() -> None:
    pool = a_pool(nodeCount=3, zones=["europe-west4-a", "europe-west4-b"])
    made = gke(pool, settings=GkeSettings(count_scope="total"))
    machines = object_of(made, "pool/gpu").machines
    assert machines is not None
    assert (machines.start, machines.most) == (4, 4)
    assert made.warnings[0].text == (
        "GKE counts nodes per zone: 2 zones start 4 nodes and have at "
        "most 4; the scheduler counts 3"
    )
