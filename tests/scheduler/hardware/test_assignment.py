"""The entries that the requests of a pod draw on, compared with brute force."""

import itertools
import random
from collections.abc import Iterator, Sequence

import pytest

from scheduler.hardware import assignment
from scheduler.hardware.assignment import assign_exactly, assign_greedily
from scheduler.hardware.device_matching import MemberFit, MemberNeed
from scheduler.model.devices import DeviceEntry
from scheduler.model.inputs import RequestView
from scheduler.model.policy import SchedulerOptions
from scheduler.model.rules import MatchRules, PlacementRules
from tests.random_cases import SEED, cases
from tests.scheduler.builders import DRIVER, IS_GPU, IS_NIC, ask, gpu, nic, pool

GPUS = ask(IS_GPU, count=8)
ONE_NIC = ask(IS_NIC, name="nic")


def fit(
    entries: Sequence[DeviceEntry],
    *requests: RequestView,
    rules: MatchRules | None = None,
) -> MemberFit:
    return MemberNeed(requests, rules or MatchRules()).fit(
        pool("p", 1, *entries).device_set
    )


def claimed(found: MemberFit) -> list[tuple[str, str]]:
    return [
        (request.name, request.device_class or request.resource_name)
        for request in found.resolved
    ]


SPLIT = (
    gpu(count=8, claim="Synthetic", name="fake"),
    gpu(count=4, name="gpu-a"),
    gpu(count=4, name="gpu-b"),
    nic(count=1),
)


def test_several_claimable_entries_are_preferred_to_a_synthetic_one() -> None:
    found = fit(SPLIT, GPUS, ONE_NIC)
    assert claimed(found) == [("gpu", DRIVER), ("nic", "nic.example.com")]
    assert dict(found.draw) == {"gpu-a": 4, "gpu-b": 4, "nic": 1}


def test_several_claimable_entries_are_preferred_to_a_device_plugin() -> None:
    entries = (
        gpu(count=8, claim="DevicePlugin", name="plugin"),
        gpu(count=4, name="gpu-a"),
        gpu(count=4, name="gpu-b"),
    )
    assert claimed(fit(entries, GPUS)) == [("gpu", DRIVER)]
    plugin_or_synthetic = (
        gpu(count=8, claim="Synthetic", name="fake"),
        *entries[:1],
        gpu(count=4, name="gpu-a"),
    )
    assert claimed(fit(plugin_or_synthetic, GPUS)) == [("gpu", "nvidia.com/gpu")]


def test_as_few_devices_as_possible_are_synthetic() -> None:
    """The first request accepts either entry; the DRA devices would then be missing for
    the larger one.
    """
    entries = (gpu(count=4, claim="Synthetic", name="fake"), gpu(count=4))
    first, second = ask(IS_GPU, name="first"), ask(IS_GPU, count=4, name="second")
    assert claimed(fit(entries, first, second)) == [("second", DRIVER)]


def test_with_the_rules_of_the_reference_the_first_entry_that_fits_is_taken() -> None:
    rules = PlacementRules.of(SchedulerOptions(compat="reference")).matching
    assert claimed(fit(SPLIT, GPUS, ONE_NIC, rules=rules)) == [
        ("nic", "nic.example.com")
    ]


# Brute force


def possible(
    matrix: Sequence[Sequence[bool]],
    counts: Sequence[int],
    left: Sequence[int],
    groups: Sequence[str],
) -> Iterator[list[str]]:
    """Every choice of a group per request for which the entries suffice."""
    for chosen in itertools.product(dict.fromkeys(groups), repeat=len(counts)):
        accepted = [
            [j for j, group in enumerate(groups) if group == wanted and row[j]]
            for row, wanted in zip(matrix, chosen, strict=True)
        ]
        if all(accepted) and fills(accepted, counts, left):
            yield list(chosen)


def fills(
    accepted: Sequence[Sequence[int]], counts: Sequence[int], left: Sequence[int]
) -> bool:
    """Return whether the entries can be divided among the requests that accept them."""
    if not accepted:
        return True
    for parts in itertools.product(
        *(range(min(left[j], counts[0]) + 1) for j in accepted[0])
    ):
        rest = list(left)
        for j, count in zip(accepted[0], parts, strict=True):
            rest[j] -= count
        if sum(parts) == counts[0] and fills(accepted[1:], counts[1:], rest):
            return True
    return False


@pytest.mark.parametrize("seed", range(SEED, SEED + cases(300)))
@pytest.mark.random
def test_the_assignment_is_the_least_doubtful_of_all(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    doubt_of = {f"g{k}": dice.choice((0, 0, 1, 2)) for k in range(3)}
    groups = [dice.choice(list(doubt_of)) for _ in range(dice.randint(1, 5))]
    doubts = [doubt_of[group] for group in groups]
    left = [dice.randint(0, 4) for _ in groups]
    counts = [dice.choice((0, 1, 1, 2, 2, 3)) for _ in range(dice.randint(1, 4))]
    matrix = [[dice.random() < 0.7 for _ in groups] for _ in counts]
    order = sorted(range(len(groups)), key=lambda j: (doubts[j], j))
    greedy = assign_greedily(matrix, counts, left, order)
    taken, steps = assign_exactly(matrix, counts, left, groups, doubts, known=greedy)
    assert steps < 1_000

    def cost(chosen: Sequence[str]) -> list[int]:
        return [
            sum(
                count
                for group, count in zip(chosen, counts, strict=True)
                if doubt_of[group] == level
            )
            for level in (2, 1)
        ]

    def rank(chosen: Sequence[str]) -> list[int]:
        return [
            list(dict.fromkeys(groups[j] for j in order)).index(group)
            for group in chosen
        ]

    choices = list(possible(matrix, counts, left, groups))
    if taken is None:
        assert not choices
        return
    drawn = [0] * len(left)
    for row, count, parts in zip(matrix, counts, taken, strict=True):
        assert sum(n for _, n in parts) == count
        assert len({groups[j] for j, _ in parts}) == 1
        assert all(row[j] for j, _ in parts)
        for j, n in parts:
            drawn[j] += n
    assert all(a <= b for a, b in zip(drawn, left, strict=True))
    found = [groups[parts[0][0]] for parts in taken]
    best = min(cost(chosen) for chosen in choices)
    assert cost(found) == best
    if greedy is not None and cost([groups[parts[0][0]] for parts in greedy]) == best:
        assert taken == greedy
    else:
        assert found == min(
            (chosen for chosen in choices if cost(chosen) == best), key=rank
        )


@pytest.mark.parametrize("count", [2, 3], ids=["solvable", "not solvable"])
def test_the_search_gives_up_on_a_hostile_class(count: int) -> None:
    """Sixteen different requests on sixteen entries that are claimed in sixteen ways
    are too many choices to try.
    """
    dice = random.Random(7)  # noqa: S311  # not for secrets
    matrix = [[dice.random() < 0.8 for _ in range(16)] for _ in range(16)]
    groups = [f"g{j}" for j in range(16)]
    doubts = [j % 3 for j in range(16)]
    counts = [2] * 15 + [count]
    taken, steps = assign_exactly(matrix, counts, [2] * 16, groups, doubts)
    assert steps <= assignment._STEPS_MAX + 16
    assert (taken is None) == (count > 2)


def test_the_search_for_a_better_assignment_is_bounded() -> None:
    dice = random.Random(3)  # noqa: S311  # not for secrets
    most = 0
    for _ in range(50):
        matrix = [[dice.random() < 0.6 for _ in range(16)] for _ in range(16)]
        counts = [dice.randint(1, 4) for _ in range(16)]
        left = [dice.randint(2, 4) for _ in range(16)]
        doubts = [dice.randint(0, 2) for _ in range(16)]
        known = assign_greedily(
            matrix, counts, left, sorted(range(16), key=lambda j: (doubts[j], j))
        )
        if known is not None:
            taken, steps = assign_exactly(
                matrix, counts, left, list(range(16)), doubts, known=known
            )
            assert taken is not None
            most = max(most, steps)
    assert 500 < most <= assignment._BETTER_STEPS_MAX + 17


SAME = [True] * 3


@pytest.mark.parametrize(
    ("matrix", "counts", "left", "most"),
    [
        ([[True, False, False], [False, False, True]], [1, 1], [8, 0, 1], 2),
        ([SAME] * 16, [1] * 16, [5, 5, 16], 16),
        ([SAME] * 16, [1] * 16, [5, 5, 5], 400),
        ([SAME, SAME, *[[False, False, True]] * 6], [2, 3, *[1] * 6], [2, 3, 6], 10),
        ([SAME] * 6, [3, 2, 3, 2, 3, 2], [4, 4, 20], 80),
        (
            [*[[True, True, True]] * 3, *[[False, False, True]] * 3],
            [3, 4, 5, 2, 3, 4],
            [4, 4, 30],
            30,
        ),
    ],
    ids=[
        "one has to be synthetic",
        "most have to be",
        "too few of all",
        "what is left",
        "in pairs",
        "the last ones too",
    ],
)
def test_few_steps_are_tried_if_little_can_improve(
    matrix: list[list[bool]], counts: list[int], left: list[int], most: int
) -> None:
    known = assign_greedily(matrix, counts, left, range(3))
    _, steps = assign_exactly(
        matrix, counts, left, ["a", "b", "c"], [0, 1, 2], known=known
    )
    assert steps <= most


def test_a_certain_assignment_needs_no_search() -> None:
    assert assign_exactly([[True]], [1], [1], ["g"], [0], known=[[(0, 1)]]) == (
        [[(0, 1)]],
        0,
    )
