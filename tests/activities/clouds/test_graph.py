"""The graph of objects: laws for every cluster, and the computation of orders."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    Token,
    arguments,
    creation_order,
    deletion_order,
)
from activities.clouds.desired.plan import Desired
from activities.clouds.eks.wanted.inputs import EksFacts
from tests.activities.clouds.builders import BLOCK, ROLE, a_pool, an_eks_pool, eks, gke
from tests.random_cases import cases, generator

LETTERS = "abcdef"


def an_object(key: str, *needs: str) -> DesiredObject:
    return DesiredObject(key, "Thing", key, needs, (), "there")


def random_pools(
    source: Random, region: str, make: Any, class_name: str
) -> Iterator[dict[str, Any]]:
    """Return pools of every kind, sometimes with an invalid one."""
    for number in range(source.randint(0, 8)):
        pool = make(
            f"{source.choice(['gpu', 'GPU', 'p_x', 'a' * 30])}-{number}",
            className=source.choice([class_name] * 4 + ["gone", "l4", "g6"]),
        )
        pool["zones"] = [
            f"{region}{letter}" for letter in source.sample("abc", source.randint(1, 3))
        ]
        pool["nodeCount"] = source.randint(0, 9)
        if source.random() < 0.5:
            pool["maxNodeCount"] = source.randint(1, 9)
            pool["minNodeCount"] = source.randint(0, pool["maxNodeCount"])
        if source.random() < 0.3:
            pool["fabric"] = {"type": "EFA"}
        if source.random() < 0.3:
            pool["capacityBlock"] = {"capacityReservationId": BLOCK}
        yield pool
    if source.random() < 0.1:
        yield make("system")


def random_clusters() -> Iterator[Desired]:
    source = generator()
    for _ in range(cases(150)):
        name = (
            "".join(source.choices("ab-9.", k=source.randint(1, 60))).strip("-.") or "x"
        )
        yield gke(
            *list(random_pools(source, "europe-west4-", a_pool, "l4"))[:8], name=name
        )
        usable = tuple(
            f"us-east-2{letter}"
            for letter in sorted({*"abc", *source.sample(LETTERS, 2)})
        )
        facts = EksFacts(zones=usable, principal=ROLE)
        yield eks(
            *list(
                random_pools(
                    source, "us-east-2", an_eks_pool, source.choice(["g6", "p5en"])
                )
            )[:8],
            name=name,
            facts=facts,
        )


@pytest.fixture(scope="module")
def clusters() -> list[Desired]:
    """The objects of many clusters."""
    return list(random_clusters())


@pytest.mark.slow
@pytest.mark.random
def test_random_clusters_can_be_created(clusters: list[Desired]) -> None:
    assert all(made.objects for made in clusters)
    assert any(made.refused for made in clusters)


@pytest.mark.random
def test_each_object_comes_after_all_that_it_needs(clusters: list[Desired]) -> None:
    for made in clusters:
        done: set[str] = set()
        for each in made.objects:
            assert done.issuperset(each.needs), each.key
            done.add(each.key)


@pytest.mark.random
def test_each_object_is_deleted_before_its_dependencies_and_after_its_dependents(
    clusters: list[Desired],
) -> None:
    for made in clusters:
        order = deletion_order(made.objects)
        assert sorted(each.key for each in order) == sorted(
            each.key for each in made.objects
        )
        kept = order[[each.key for each in order].index("cluster") + 1 :]
        assert all(
            each.key.startswith(("net/", "iam/", "sg/", "efs", "api/")) for each in kept
        )
        gone: set[str] = set()
        for each in order:
            assert gone.isdisjoint(each.needs), each.key
            gone.add(each.key)


@pytest.mark.random
def test_no_two_objects_have_a_key_or_a_kind_and_a_name_in_common(
    clusters: list[Desired],
) -> None:
    for made in clusters:
        assert len({each.key for each in made.objects}) == len(made.objects)
        # A binding has the name of its role.
        named = [
            (each.kind, each.name)
            for each in made.objects
            if each.kind != "IAM binding"
        ]
        assert len(set(named)) == len(named)


@pytest.mark.slow
@pytest.mark.random
def test_equal_input_gives_equal_objects(clusters: list[Desired]) -> None:
    assert list(random_clusters()) == clusters


def test_every_pool_is_built_or_refused() -> None:
    pools = [
        a_pool("a"),
        a_pool("b", className="gone"),
        a_pool("system"),
        a_pool("c", className="g6"),
    ]
    made = gke(*pools)
    built = [f"pool {each.name}" for each in made.objects if each.kind == "NodePool"]
    assert sorted([*built, *(problem.at for problem in made.refused)]) == [
        "pool a",
        "pool b",
        "pool c",
        "pool system",
    ]


def test_an_object_that_is_ready_comes_in_the_order_given() -> None:
    order = creation_order(
        [an_object("c", "b"), an_object("a"), an_object("b", "a"), an_object("d")]
    )
    assert [each.key for each in order] == ["a", "b", "c", "d"]


BROKEN = [
    (
        "a circle",
        [an_object("a", "b"), an_object("b", "a")],
        "objects need each other: a, b",
    ),
    ("itself", [an_object("a", "a")], "objects need each other: a"),
    ("a key that is missing", [an_object("a", "b")], "no such object: a needs b"),
    ("a key twice", [an_object("a"), an_object("a")], "two objects have the same key"),
]


@pytest.mark.parametrize(
    ("objects", "text"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_an_invalid_graph_has_no_order(objects: list[DesiredObject], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        creation_order(objects)


def test_facts_and_the_token_are_filled_in_at_any_depth() -> None:
    call = CloudCall(
        "s",
        "o",
        {"a": [{"b": Fact("x")}, "c"], "d": {"e": Token()}, "f": ("g", True, 3)},
    )
    assert arguments(call, lambda fact: f"{fact.key}.{fact.name}", "t") == {
        "a": [{"b": "x.id"}, "c"],
        "d": {"e": "t"},
        "f": ["g", True, 3],
    }
