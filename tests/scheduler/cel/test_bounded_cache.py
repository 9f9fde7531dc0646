"""A cache drops results that were not used lately when its texts are too long together."""

import threading
from typing import Any

import pytest

from scheduler.cel import bounded_cache as module
from scheduler.cel import compile_selector
from scheduler.cel.selector import _compile
from scheduler.fleet.caches import full_clusters
from scheduler.hardware.device_matching import member_need, need_digest
from scheduler.hardware.template import compile_template
from tests.scheduler.builders import (
    alone,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    forget,
)

CACHES = (_compile, member_need, need_digest, compile_template)


def characters(cache: module.BoundedCache[Any, Any]) -> int:
    """Return the length of the texts whose results are cached."""
    return sum(cache._characters)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for cache in CACHES:
        forget(cache)
    monkeypatch.setattr(module, "CHARACTERS_MAX", 1_000)


def test_the_least_recently_used_entries_are_evicted(small: None) -> None:  # noqa: ARG001
    made: list[str] = []

    @module.bounded_cache(len)
    def double(text: str) -> str:
        made.append(text)
        return 2 * text

    # "a" is used again each time, so it is made once. "b" is dropped after twice 500
    # characters.
    for name in "abacadaeafab":
        text = name * 200
        assert double(text) == 2 * text
        assert characters(double) <= 1_200
    assert [text[0] for text in made] == list("abcdefb")


def test_a_cache_keeps_a_limited_number_of_short_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ENTRIES_MAX", 10)
    cached = module.bounded_cache(lambda _: 1)(str)
    for number in range(100):
        cached(number)
    assert len(cached._young) + len(cached._old) <= 11


def test_threads_get_one_result(small: None) -> None:  # noqa: ARG001
    barrier = threading.Barrier(4)

    @module.bounded_cache(len)
    def make(text: str) -> object:
        barrier.wait()
        return [text]

    found: list[object] = []
    threads = [
        threading.Thread(target=lambda: found.append(make("x"))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in found}) == 1
    assert characters(make) == 1


def test_caches_evict_selectors_of_old_deployments(small: None) -> None:  # noqa: ARG001
    world = fleet(cluster("a", 4))
    for number in range(100):
        decided(
            world,
            deployment(engine("main", alone(ask(f'device.driver == "{number:0100}"')))),
        )
    for cache in CACHES:
        assert 0 < characters(cache) <= 1_400, cache


def test_a_refused_selector_counts_as_well(small: None) -> None:  # noqa: ARG001
    for number in range(100):
        with pytest.raises(ValueError, match="unknown name"):
            compile_selector(f"x{number:0100}")
    assert characters(_compile) <= 1_400


def test_full_clusters_are_remembered_for_a_limited_number_of_templates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(full_clusters, "_TEMPLATES_MAX", 10)
    world = fleet(cluster("a", 1))
    for number in range(50):
        decided(world, deployment(engine("main", copies=number + 2)))
    assert len(world.full_clusters._blocked) <= 10
    assert len(world.full_clusters._full) <= 10
