"""The fleet's policy document: read strictly, written in full."""

from typing import Any

import pytest

from scheduler.model.policy import Quota, SchedulerOptions
from scheduler.placement.policy_document import (
    InvalidPolicyError,
    read_policy,
    write_policy,
)

WHOLE = {
    "profile": "dense",
    "accounting": "device-safe",
    "priorityClasses": {"high": 100},
    "quotas": [
        {
            "namespace": "ml",
            "maxNodes": 8,
            "matchLabels": {"region": "us"},
            "priorityFloor": 1,
        }
    ],
    "maxCost": 1000,
}


def test_a_policy_is_read() -> None:
    assert read_policy(WHOLE) == SchedulerOptions(
        profile="dense",
        accounting="device-safe",
        priority_classes={"high": 100},
        quotas=(Quota("ml", 8, match_labels={"region": "us"}, priority_floor=1),),
        max_cost=1000,
    )


@pytest.mark.parametrize(
    "options", [SchedulerOptions(), read_policy(WHOLE)], ids=["defaults", "a whole one"]
)
def test_a_written_policy_is_complete_and_reads_back(options: SchedulerOptions) -> None:
    document = write_policy(options)
    assert {
        "profile",
        "accounting",
        "priorityClasses",
        "quotas",
        "lenientCalls",
        "maxCost",
    } <= set(document)
    assert read_policy(document) == options


PROBLEMS: list[tuple[dict[str, Any], str]] = [
    ({"profil": "dense"}, "profil: unknown field, did you mean profile?"),
    ({"profile": "fancy"}, "profile: must be one of 'default'"),
    (
        {"accounting": "gpu"},
        "accounting: must be one of 'node', 'device-safe', 'device-packed', got 'gpu'",
    ),
    ({"profile": "weighted"}, "weights: is required by the profile 'weighted'"),
    (
        {"weights": {"speed": 1}},
        "weights.speed: unknown; known names are spread, free,",
    ),
    (
        {"weights": {"cost": 0}},
        "weights.cost: must be a whole number between 1 and 1000, got 0",
    ),
    ({"weights": 3}, "weights: must be a map, got 3"),
    (
        {"classAccounting": {"h100": "gpu"}},
        "classAccounting.h100: must be one of 'node', 'device-safe', 'device-packed', got 'gpu'",
    ),
    (
        {"queueOrder": "Fifo"},
        "queueOrder: must be one of 'BestEffort', 'StrictOrder', got 'Fifo'",
    ),
    (
        {"reservationTtlSeconds": 1 << 40},
        "reservationTtlSeconds: must be a whole number between 1 and 1000000000, got 1099511627776",
    ),
    (
        {"rolloutMaxUnavailable": "²%"},
        "rolloutMaxUnavailable: must be a whole number or a percentage such as 25%, got '²%'",
    ),
    (
        {"priorityClasses": {"a": 1 << 64}},
        "priorityClasses.a: must be a whole number of 64 bits, got 18446744073709551616",
    ),
    (
        {"holdForSeconds": -1},
        "holdForSeconds: must be a whole number between 0 and 1000000000, got -1",
    ),
    (
        {"maxCost": 2_000_000},
        "maxCost: must be a whole number between 1 and 1000000, got 2000000",
    ),
    ({"lenientCalls": "yes"}, "lenientCalls: must be true or false, got 'yes'"),
    (
        {"rolloutMaxUnavailable": "many"},
        "rolloutMaxUnavailable: must be a whole number or a percentage",
    ),
    (
        {"priorityClasses": {"high": "100"}},
        "priorityClasses.high: must be a whole number of 64 bits, got '100'",
    ),
    ({"priorityClasses": ["high"]}, "priorityClasses: must map names to whole numbers"),
    ({"quotas": {"ml": 3}}, "quotas: must be a list"),
    ({"quotas": [3]}, "quotas[0]: must be a map, got 3"),
    ({"quotas": [{"maxNodes": 3}]}, "quotas[0].namespace: is required"),
    (
        {"quotas": [{"namespace": "ml", "maxNodes": -1}]},
        "quotas[0].maxNodes: must be a whole number at least 0, got -1",
    ),
    (
        {"quotas": [{"namespace": "ml", "maxNode": 1}]},
        "quotas[0].maxNode: unknown field, did you mean maxNodes?",
    ),
    (
        {"quotas": [{"namespace": "ml", "deviceSelector": "device."}]},
        "quotas[0].deviceSelector:",
    ),
    (
        {"quotas": [{"namespace": "ml", "deviceSelector": ["x"]}]},
        "quotas[0].deviceSelector: must be text, got ['x']",
    ),
    (
        {"quotas": [{"namespace": "ml", "className": 5}]},
        "quotas[0].className: must be text, got 5",
    ),
    (
        {"quotas": [{"namespace": "ml", "matchLabels": {"a": 1}}]},
        "quotas[0].matchLabels: must map label keys to text",
    ),
    (
        {"quotas": [{"namespace": "ml", "priorityFloor": "x"}]},
        "quotas[0].priorityFloor: must be a whole number of 64 bits, got 'x'",
    ),
]


@pytest.mark.parametrize(
    ("document", "problem"), PROBLEMS, ids=[row[1].split(":")[0] for row in PROBLEMS]
)
def test_a_mistake_names_field_value_and_remedy(
    document: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read_policy(document)
    assert [text for text in caught.value.problems if text.startswith(problem)] == list(
        caught.value.problems
    )


def test_all_mistakes_are_reported_at_once() -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read_policy({"profile": "x", "accounting": "y", "quotas": [{}]})
    assert len(caught.value.problems) == 3


@pytest.mark.parametrize("key", [1, None, True], ids=repr)
@pytest.mark.parametrize("field", ["priorityClasses", "classAccounting", "weights"])
def test_names_of_a_policy_are_text(field: str, key: object) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read_policy({field: {key: 1}})
    assert caught.value.problems == (f"{field}: names must be text, got {key!r}",)


def test_a_class_without_a_name_applies_to_no_deployment() -> None:
    assert read_policy({"priorityClasses": {"": 5, "high": 7}}).priority_of("") == 0


def test_keys_of_labels_are_text() -> None:
    with pytest.raises(
        InvalidPolicyError, match="matchLabels: must map label keys to text"
    ):
        read_policy({"quotas": [{"namespace": "ml", "matchLabels": {1: "a"}}]})


_NESTED: list[Any] = []
for _ in range(5_000):
    _NESTED = [_NESTED]
HUGE: list[dict[str, Any]] = [
    {"quotas": [{"x": 0}] * 5_000},
    {f"profil{i}": 0 for i in range(4_000)},
    {"profil" + "e" * 60_000: 0},
    {"priorityClasses": {f"{i}{'p' * 10_000}": "x" for i in range(6)}},
    {"profile": "x" * 60_000},
    {
        "quotas": [
            {"namespace": "ml", "matchLabels": {f"k{i}": i for i in range(5_000)}}
        ]
    },
    {"profile": _NESTED},
]


@pytest.mark.parametrize(
    "document", HUGE, ids=lambda document: next(iter(document))[:10]
)
def test_the_problems_of_a_policy_are_bounded(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidPolicyError) as caught:
        read_policy(document)
    assert len(caught.value.problems) <= 21
    assert len(str(caught.value)) < 8_000
