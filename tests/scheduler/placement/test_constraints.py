"""The clusters that each rule allows, the rule in a refusal, and the weight of
preferences.
"""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.fleet.overlay import FleetOverlay
from scheduler.model.inputs import CacheView
from scheduler.model.policy import AffinityTerm, PlacementPolicy, SpreadConstraint
from scheduler.placement.constraints import Constraints
from tests.random_cases import random_cases
from tests.scheduler.builders import NOW, cluster, deployment, fleet, put_replicas

ZONES = {"a": "z1", "b": "z1", "c": "z2", "d": ""}
X, OWN = {"app": "x"}, {"app": "m"}
CACHE = CacheView(
    "Present", "w", phases={"a": "Ready", "b": "Pending", "gone": "Ready"}
)


def constraints(avoids: Any = (), **policy: Any) -> tuple[FleetOverlay, Constraints]:
    """Return the rules of a deployment; a replica with the label app=x runs on `b`."""
    views = [
        cluster(name, 9, labels={"zone": zone} if zone else {})
        for name, zone in ZONES.items()
    ]
    world = fleet(*views)
    put_replicas(
        world, deployment(name="x"), "b/0", labels=tuple(X.items()), avoids=avoids
    )
    overlay = FleetOverlay(world, NOW)
    view = deployment(labels=OWN, cache=CACHE, policy=PlacementPolicy(**policy))
    return overlay, Constraints(overlay, view, overlay.index.everything)


def spread(
    skew: int, least: int = 0, unsatisfiable: str = "DoNotSchedule"
) -> dict[str, Any]:
    return {"topology_spread": (SpreadConstraint("zone", skew, unsatisfiable, least),)}


def near(key: str, labels: dict[str, str], weight: int = 0) -> dict[str, Any]:
    return {"affinity": (AffinityTerm(labels, key, weight=weight),)}


def apart(key: str, labels: dict[str, str], weight: int = 0) -> dict[str, Any]:
    return {"anti_affinity": (AffinityTerm(labels, key, weight=weight),)}


SPREAD, SELF = "topology spread over zone", "another deployment's anti-affinity"


@pytest.mark.parametrize(
    ("policy", "own", "allowed", "says"),
    [
        ({}, {"a": 2}, "abcd", ""),
        (spread(1), {}, "abc", SPREAD),
        (spread(1), {"a": 1}, "c", SPREAD),
        (spread(2), {"a": 1}, "abc", SPREAD),
        (spread(1), {"a": 1, "c": 1}, "abc", SPREAD),
        (spread(1), {"a": 2, "c": 1}, "c", SPREAD),
        (spread(1), {"a": 1, "b": 1, "c": 1}, "c", SPREAD),
        (spread(2), {"a": 2, "c": 1}, "abc", SPREAD),
        (spread(1, 2), {"a": 2, "c": 1}, "c", SPREAD),
        (spread(1, 3), {"a": 2, "c": 1}, "", SPREAD),
        (spread(2, 3), {"a": 2, "c": 1}, "c", SPREAD),
        (spread(1, 0, "ScheduleAnyway"), {"a": 9}, "abcd", ""),
        (apart("zone", X), {}, "cd", "anti-affinity to app=x per zone"),
        (apart("", X), {}, "acd", "anti-affinity to app=x per cluster"),
        (apart("", OWN), {"a": 2, "c": 0}, "bcd", "anti-affinity to app=m per cluster"),
        (apart("zone", OWN), {"a": 2}, "cd", "anti-affinity to app=m per zone"),
        (apart("zone", X, 5), {}, "abcd", ""),
        (near("zone", X), {}, "ab", "affinity to app=x per zone"),
        (near("", X), {}, "b", "affinity to app=x per cluster"),
        (near("zone", OWN), {}, "abcd", ""),
        (near("zone", OWN), {"c": 1}, "c", "affinity to app=m per zone"),
        (near("zone", {"app": "none"}), {}, "", "affinity to app=none per zone"),
        (near("zone", X, 5), {}, "abcd", ""),
        ({"avoids": (("zone", (), (("app", "m"),)),)}, {}, "cd", SELF),
        ({"avoids": (("", (), (("app", "m"),)),)}, {}, "acd", SELF),
        ({"avoids": (("zone", (), (("app", "y"),)),)}, {}, "abcd", ""),
        ({"avoids": (("zone", ("other",), (("app", "m"),)),)}, {}, "abcd", ""),
        ({"avoids": (("zone", ("other", "ml"), (("app", "m"),)),)}, {}, "cd", SELF),
        (
            {"cache_required": "Ready"},
            {},
            "a",
            "cacheRequired: ModelCache w is not Ready",
        ),
    ],
)
def test_a_rule_allows_some_clusters_and_is_named_on_the_others(
    policy: dict[str, Any], own: dict[str, int], allowed: str, says: str
) -> None:
    overlay, rules = constraints(**policy)
    found = rules.allowed(own)
    assert "".join(info.name for info in overlay.index.each(found)) == allowed
    refused = [info for info in overlay.index.ranked if info.name not in allowed]
    assert {rules.violated(info, own) for info in refused} == (
        {says} if refused else set()
    )


@pytest.mark.parametrize(
    ("policy", "penalties", "order"),
    [
        ({}, [0, 0, 0, 0], ["abcd"]),
        (spread(1, 0, "ScheduleAnyway"), [2, 2, 1, 0], ["d", "c", "ab"]),
        (near("zone", X, 7), [-7, -7, 0, 0], ["ab", "cd"]),
        (near("", X, 7), [0, -7, 0, 0], ["b", "acd"]),
        (apart("zone", X, 5), [5, 5, 0, 0], ["cd", "ab"]),
        (apart("", OWN, 11), [11, 0, 11, 0], ["bd", "ac"]),
        (
            {
                **spread(1, 0, "ScheduleAnyway"),
                **near("zone", X, 7),
                **apart("", OWN, 11),
            },
            [6, -5, 12, 0],
            ["b", "d", "a", "c"],
        ),
    ],
)
def test_preferences_add_up(
    policy: dict[str, Any], penalties: list[int], order: list[str]
) -> None:
    overlay, rules = constraints(**policy)
    own = {"a": 2, "c": 1, "gone": 3}
    penalty = rules.penalties(own)
    assert [penalty(info) for info in overlay.index.ranked] == penalties
    groups = rules.by_preference(overlay.index.everything, own)
    assert [
        "".join(info.name for info in overlay.index.each(group)) for group in groups
    ] == order


@random_cases(50)
@given(seed=st.integers(0, 1_000_000))
def test_rules_that_follow_replicas_one_by_one_equal_new_rules(seed: int) -> None:
    dice = random.Random(seed)  # noqa: S311 - repeatable on purpose
    policy = {
        "topology_spread": (
            SpreadConstraint(
                "zone", 1, dice.choice(["DoNotSchedule", "ScheduleAnyway"])
            ),
            SpreadConstraint("zone", 2, "ScheduleAnyway"),
        ),
        **near(dice.choice(["", "zone"]), OWN, dice.randint(0, 9)),
        **apart(dice.choice(["", "zone"]), OWN, dice.randint(0, 9)),
    }
    overlay, rules = constraints(**policy)
    everything = overlay.index.everything
    own: dict[str, int] = {}
    for _ in range(9):
        name = dice.choice([*ZONES, "gone"])
        own[name] = max(0, own.get(name, 0) + dice.choice([-1, 1, 2]))
        _, new = constraints(**policy)
        assert rules.allowed(own) == new.allowed(own)
        assert list(rules.by_preference(everything, own)) == list(
            new.by_preference(everything, own)
        )
