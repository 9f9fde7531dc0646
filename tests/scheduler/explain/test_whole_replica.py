"""The nodes that a whole replica lacks, and the nearest name of a mistyped one."""

import pytest

from scheduler.explain.near_names import nearest
from scheduler.explain.whole_replica import PoolNeed, choose_pools, engine_order
from scheduler.hardware.template import EngineFit


@pytest.mark.parametrize(
    ("need", "gap", "text"),
    [
        (PoolNeed("p", 7, 3, (("main", 7),)), 4, "needs 7, 3 free on a/p"),
        (PoolNeed("p", 7, 7, (("main", 7),)), 0, "needs 7, 7 free on a/p"),
        (PoolNeed("p", 7, 9, (("main", 7),)), 0, "needs 7, 9 free on a/p"),
        (
            PoolNeed("p", 7, 3, (("x", 2), ("y", 5))),
            4,
            "needs 7 nodes of a/p together (x 2, y 5), 3 free",
        ),
    ],
)
def test_the_text_of_a_need_states_the_missing_nodes(
    need: PoolNeed, gap: int, text: str
) -> None:
    assert (need.gap, need.text("a")) == (gap, text)


def on(positions: tuple[int, ...], cost: int) -> EngineFit:
    return EngineFit(positions, cost, (True,))


@pytest.mark.parametrize(
    ("fits", "free", "limit", "found"),
    [
        ([on((0, 1), 3)], [2, 1], -1, (1, {0: 0})),
        ([on((0, 1), 3)], [1, 2], -1, (1, {0: 1})),
        ([on((0, 1), 3)], [5, 7], -1, (0, {0: 1})),
        ([on((0, 1), 3)], [7, 5], -1, (0, {0: 0})),
        ([on((0, 1), 3)], [3, 2], -1, (0, {0: 0})),
        ([on((0, 1), 3)], [0, 0], -1, (3, {0: 0})),
        ([on((0, 1), 3)], [-5, 0], -1, (3, {0: 1})),
        ([on((1,), 3)], [9, 1], -1, (2, {0: 1})),
        ([on((0,), 3), on((0,), 2)], [5], -1, (0, {0: 0, 1: 0})),
        ([on((0,), 3), on((0,), 2)], [4], -1, (1, {0: 0, 1: 0})),
        ([on((0,), 3), on((0,), 2)], [3], -1, (2, {0: 0, 1: 0})),
        ([on((0,), 3), on((0,), 2)], [2], -1, (3, {0: 0, 1: 0})),
        ([on((0,), 3), on((0,), 2)], [2], 2, (3, {0: 0, 1: 0})),
        ([on((0,), 3), on((0,), 2)], [2], 1, (1, {0: 0})),
        ([on((0,), 3), on((0,), 2)], [3], 0, (0, {0: 0})),
        ([on((0, 1), 5), on((0, 1), 3)], [7, 4], -1, (0, {0: 0, 1: 1})),
    ],
)
def test_each_engine_goes_where_it_lacks_the_fewest_nodes(
    fits: list[EngineFit],
    free: list[int],
    limit: int,
    found: tuple[int, dict[int, int]],
) -> None:
    assert choose_pools(fits, range(len(fits)), free, limit) == found


def test_the_engines_with_the_fewest_pools_and_the_most_nodes_choose_first() -> None:
    fits = [on((0,), 2), on((0, 1), 5), on((), 9), on((0,), 7), on((1,), 2)]
    assert engine_order(fits) == [3, 0, 4, 1]


@pytest.mark.parametrize(
    ("name", "other", "near"),
    [
        ("abcdef", "abcdxy", True),
        ("abcdef", "abcxyz", False),
        ("abcdef", "abdcfe", True),
        ("abcdef", "badcfe", False),
        ("abcdef", "ABCDEF", True),
        ("abcdef", "xabcdefy", True),
        ("abc", "xxxxabcxxxx", True),
        ("ab", "xxxxabxxxx", False),
        ("ab", "abc", True),
        ("ab", "abcd", False),
        ("abcd", "abxcxd", True),
        ("abc", "axbxc", False),
        ("abcdef", "abcdef", False),
    ],
)  # fmt: skip
def test_a_name_is_near_if_every_third_character_differs_at_most(
    name: str, other: str, near: bool
) -> None:
    assert nearest(name, [other]) == (other if near else "")


def test_more_than_a_thousand_names_are_not_searched() -> None:
    others = [f"{number:020}" for number in range(999)]
    assert nearest("abcdef", [*others, "abcdeg"]) == "abcdeg"
    assert nearest("abcdef", [*others, "x", "abcdeg"]) == ""
