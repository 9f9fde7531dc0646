"""Caches of a fleet do not grow while clusters, classes and labels are edited
repeatedly.
"""

from typing import Any

import pytest

from scheduler.cel.bounded_cache import remember
from scheduler.fleet.caches import full_clusters
from scheduler.fleet.fleet import Fleet
from scheduler.hardware import device_matching, template
from scheduler.hardware.template import compile_template
from scheduler.model.rules import MatchRules
from tests.scheduler.builders import (
    alone,
    ask,
    at_least,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    places,
    pool,
)

EDITS = 60


def sizes(made: object) -> dict[str, int]:
    """Return the number of items in each collection of an object."""
    names: Any = getattr(type(made), "__slots__", None) or vars(made)
    return {
        name: len(value)
        for name in names
        if isinstance(value := getattr(made, name), dict | list)
    }


def edited(world: Fleet, number: int) -> None:
    """Change the class and a label of one of two clusters."""
    devices = pool("p", 2, gpu(f"{150 + number}Gi"))
    world.put_cluster(
        cluster(
            "a",
            devices,
            labels={"round": str(number), f"key-{number}": "x", "region": "eu"},
        )
    )


def test_a_cluster_that_is_edited_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(full_clusters, "_CHANGED_MAX", 20)
    world = fleet(cluster("a", 2), cluster("b", 2, labels={"region": "eu"}))
    seen = []
    for number in range(EDITS):
        edited(world, number)
        assert places(decided(world, deployment(want=4))) == [
            "a/0",
            "a/1",
            "b/0",
            "b/1",
        ]
        assert places(
            decided(world, deployment(want=1, match_labels={"round": str(number)}))
        ) == ["a/0"]
        assert (
            places(
                decided(
                    world, deployment(want=1, match_labels={"round": str(number - 1)})
                )
            )
            == []
        )
        found = sizes(world.index)
        assert found.pop("changed_layouts") <= 21
        seen.append(found)
    assert seen[1:] == [seen[1]] * (EDITS - 1)


def test_a_class_that_comes_back_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_clusters, "_CHANGED_MAX", 3)
    world = fleet(cluster("a", pool("p", 2, gpu("141Gi"))), cluster("b", 0))
    for memory in ("24Gi", "141Gi") * 5:
        world.put_cluster(cluster("a", pool("p", 2, gpu(memory))))
        assert len(places(decided(world, deployment(want=2)))) == (
            2 if memory == "141Gi" else 0
        )


def test_a_template_caches_a_limited_number_of_pools(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(template, "_KEPT", 5)
    monkeypatch.setattr(template, "_LAYOUTS_KEPT", 5)
    monkeypatch.setattr(device_matching, "_SETS_KEPT", 5)
    view = deployment(engine("main", alone(ask(at_least("77Gi")))))
    compiled = compile_template(view.engines, MatchRules())
    for number in range(EDITS):
        world = fleet(cluster("a", pool(f"p-{number}", 1, gpu(f"{100 + number}Gi"))))
        assert places(decided(world, view)) == ["a/0"]
    assert max(sizes(compiled).values()) <= 5
    assert [len(codes) <= 5 for codes in compiled._codes] == [True]
    assert [len(fits) <= 5 for fits in compiled._engine_fits] == [True]
    assert len(compiled.needs[0][0]._fits) <= 5


def test_caches_are_bounded_and_recomputed() -> None:
    known: dict[int, str] = {}
    for number in range(10):
        assert remember(known, number, str(number), 4) == str(number)
        assert len(known) <= 4
