"""`compat: reference` gives the reference's decisions where this scheduler deviates."""

from dataclasses import dataclass
from typing import Any

import pytest

from scheduler.fleet.fleet import Fleet
from scheduler.model.inputs import CacheView, DeploymentView
from scheduler.model.policy import SchedulerOptions
from tests.scheduler.builders import (
    IS_GPU,
    IS_NIC,
    alone,
    ask,
    at_least,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    nic,
    places,
    pool,
    put_replicas,
)

REFERENCE = SchedulerOptions(compat="reference")


@dataclass(frozen=True)
class Case:
    """A world made from options, the scheduled deployment, and its places: here, and in
    the reference.
    """

    story: str
    clusters: list[Any]
    asking: DeploymentView
    ours: list[str]
    reference: list[str]
    existing: DeploymentView | None = None
    at: tuple[str, ...] = ()
    fields: tuple[tuple[str, Any], ...] = ()
    edit: Any = None


BIG_AND_SMALL = pool("p", 1, gpu("141Gi", 1, name="big"), gpu("40Gi", 1, name="small"))
TWO_HALVES = pool("p", 1, gpu(count=4, name="left"), gpu(count=4, name="right"))
MANY = tuple(ask(count=11, name=f"r{i}") for i in range(3))

CASES = [
    Case(
        "relabelled cluster",
        [cluster("a", 2, labels={"region": "us"})],
        deployment(match_labels={"region": "us"}),
        ["a/0"],
        [],
        deployment(match_labels={"region": "us"}),
        ("a/0",),
        edit=cluster("a", 2, labels={"region": "eu"}),
    ),
    Case(
        "class edit",
        [cluster("a", 2), cluster("b", 2)],
        deployment(),
        ["a/0"],
        ["b/0"],
        deployment(),
        ("a/0",),
        edit=cluster("a", pool("p", 2, gpu("140Gi"))),
    ),
    Case(
        "no successor",
        [cluster("a", 2)],
        deployment(engine("main", alone(ask(at_least("999Gi")))), template="v2"),
        ["a/0"],
        [],
        deployment(),
        ("a/0",),
    ),
    Case(
        "held fill",
        [cluster("a", 2)],
        deployment(engine("renamed"), cache=CacheView("Unresolved", "w")),
        ["a/0"],
        [],
        deployment(),
        ("a/0",),
    ),
    Case(
        "greedy devices",
        [cluster("a", BIG_AND_SMALL)],
        deployment(engine("main", alone(ask(IS_GPU, name="any"), ask(name="big")))),
        ["a/0"],
        [],
    ),
    Case(
        "greedy engines",
        [cluster("a", pool("p141", 1), pool("p40", 1, gpu("40Gi")))],
        deployment(engine("flex", alone(ask(IS_GPU))), engine("big")),
        ["a/0"],
        [],
    ),
    Case(
        "one entry per request",
        [cluster("a", TWO_HALVES)],
        deployment(engine("main", alone(ask(count=8)))),
        ["a/0"],
        [],
    ),
    Case(
        "scale-down ignores health",
        [cluster("a", 2), cluster("b", 2)],
        deployment(want=1),
        ["b/0"],
        ["a/0"],
        deployment(want=2),
        ("a/0", "b/0"),
        edit=cluster("a", 2, ready=False),
    ),
    Case(
        "deleting cluster",
        [cluster("a", 1, deleting=True)],
        deployment(),
        [],
        ["a/0"],
    ),
    Case(
        "terminating replica",
        [cluster("a", 4)],
        deployment(),
        ["a/1"],
        ["a/0"],
        deployment(),
        ("a/0",),
        (("state", "Releasing"),),
    ),
    Case(
        "cache-incapable cluster",
        [cluster("a", 1)],
        deployment(cache=CacheView("Present", "w")),
        [],
        ["a/0"],
    ),
    Case(
        "more devices than a claim holds",
        [cluster("a", pool("p", 1, gpu(count=64)))],
        deployment(engine("main", alone(*MANY))),
        [],
        ["a/0"],
    ),
]


def world(case: Case, options: SchedulerOptions) -> Fleet:
    built = fleet(*case.clusters, options=options)
    if case.existing is not None:
        put_replicas(built, case.existing, *case.at, **dict(case.fields))
    if case.edit is not None:
        built.put_cluster(case.edit)
    return built


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.story)
def test_each_deviation_can_be_turned_off(case: Case) -> None:
    assert places(decided(world(case, SchedulerOptions()), case.asking)) == case.ours
    assert places(decided(world(case, REFERENCE), case.asking)) == case.reference


def test_the_first_matching_entry_wins_even_if_synthetic() -> None:
    shadow = pool("p", 1, gpu(claim="Synthetic", name="shadow"), gpu(), nic())
    view = deployment(engine("main", alone(ask(), ask(IS_NIC, name="nic"))))
    resolved = [
        [
            r.name
            for r in decided(fleet(cluster("a", shadow), options=options), view)
            .placements[0]
            .engines[0]
            .members[0]
            .requests
        ]
        for options in (SchedulerOptions(), REFERENCE)
    ]
    assert resolved == [["gpu", "nic"], ["nic"]]


def test_some_rules_cannot_be_turned_off() -> None:
    """Namespaces, growth, the ledger, and selectors that do not compile."""
    built = fleet(cluster("a", 1), options=REFERENCE)
    put_replicas(built, deployment(namespace="other"), "a/0")
    assert places(decided(built, deployment(namespace="ours"))) == []
    grown = fleet(cluster("a", 2), options=REFERENCE)
    put_replicas(grown, deployment(), "a/0")
    placed = (
        decided(grown, deployment(engine(copies=8), template="v2"))
        .placements[0]
        .engines[0]
    )
    assert placed.copies == 1
    broken = deployment(engine("main", alone(ask("device."))), template="v2")
    assert places(decided(grown, broken)) == ["a/0"]


def test_nodes_of_a_terminating_kept_replica_are_not_used_twice() -> None:
    built = fleet(cluster("a", 1), options=REFERENCE)
    put_replicas(built, deployment(), "a/0", state="Releasing")
    assert places(decided(built, deployment(want=2))) == ["a/0"]
