"""The changes that the audit log records, and the values that it hides."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from front.audit.changes import CHANGES_MAX, HIDDEN_BELOW, differences
from tests.random_cases import random_cases
from tests.workflows.environment.harness import a_deployment

PLANTED = "planted-secret"
CASES: list[tuple[str, Any, Any, list[dict[str, Any]]]] = [
    ("nothing", {"replicas": 1}, {"replicas": 1}, []),
    (
        "a value",
        {"replicas": 1},
        {"replicas": 3},
        [{"path": "spec.replicas", "old": 1, "new": 3}],
    ),
    (
        "an added field",
        {},
        {"drain": {"maxUnavailable": 1}},
        [{"path": "spec.drain.maxUnavailable", "new": 1}],
    ),
    ("a removed field", {"a": "x", "b": 1}, {"b": 1}, [{"path": "spec.a", "old": "x"}]),
    (
        "true is not 1",
        {"a": True},
        {"a": 1},
        [{"path": "spec.a", "old": True, "new": 1}],
    ),
    (
        "an item",
        {"l": [1, 2]},
        {"l": [1, 3, 4]},
        [{"path": "spec.l[1]", "old": 2, "new": 3}, {"path": "spec.l[2]", "new": 4}],
    ),
    ("an emptied list", {"l": [1]}, {"l": []}, [{"path": "spec.l[0]", "old": 1}]),
    (
        "an empty object",
        {},
        {"a": {}, "b": []},
        [{"path": "spec.a", "new": {}}, {"path": "spec.b", "new": []}],
    ),
    (
        "another type",
        {"a": {"b": 1}},
        {"a": [1]},
        [{"path": "spec.a", "old": {"b": 1}, "new": [1]}],
    ),
    (
        "a key with a dot",
        {},
        {"modelplane.ai/x y": 1},
        [{"path": 'spec["modelplane.ai/x y"]', "new": 1}],
    ),
    (
        "a long value",
        {},
        {"a": "x" * 1000},
        [{"path": "spec.a", "new": "(a value of 1002 characters)"}],
    ),
    (
        "env",
        {"env": [{"name": "A", "value": "x"}]},
        {"env": [{"name": "A", "value": "y"}]},
        [{"path": "spec.env[0].value"}],
    ),
    (
        "args",
        {"args": ["--api-key", "x"]},
        {"args": ["--api-key", "y"]},
        [{"path": "spec.args[1]"}],
    ),
    ("hidden in another type", {"a": 1}, {"a": [{"env": "x"}]}, [{"path": "spec.a"}]),
    (
        "credentials of an address",
        {"url": "https://a"},
        {"url": "https://u:p@a"},
        [{"path": "spec.url"}],
    ),
    ("a query of an address", {"url": "https://a?token=x"}, {}, [{"path": "spec.url"}]),
    (
        "a reference",
        {},
        {"secretRef": {"name": "kube", "key": "k"}},
        [
            {"path": "spec.secretRef.name", "new": "kube"},
            {"path": "spec.secretRef.key", "new": "k"},
        ],
    ),
]


@pytest.mark.parametrize(
    ("story", "before", "after", "expected"), CASES, ids=[case[0] for case in CASES]
)
def test_changes_are_paths_with_the_old_and_the_new_value(
    story: str, before: Any, after: Any, expected: list[dict[str, Any]]
) -> None:
    assert differences({"spec": before}, {"spec": after}) == (expected, 0), story


def test_labels_are_shown_but_only_names_of_annotations() -> None:
    before = {
        "metadata": {"labels": {"tier": "tin"}, "annotations": {"last": "x"}},
        "status": {"a": 1},
    }
    after = {
        "metadata": {"labels": {"tier": "gold"}, "annotations": {"last": "y"}},
        "status": {"a": 2},
    }
    assert differences(before, after)[0] == [
        {"path": "metadata.labels.tier", "old": "tin", "new": "gold"},
        {"path": "metadata.annotations.last"},
    ]


def test_the_first_changes_are_shown_and_the_others_counted() -> None:
    first, omitted = differences(None, {"spec": {"l": list(range(1000))}})
    assert (len(first), omitted) == (CHANGES_MAX, 1000 - CHANGES_MAX)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["a", "b", *sorted(HIDDEN_BELOW)]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


def planted(value: Any, *, hidden: bool = False) -> Any:
    """Put the secret into every text below a hidden field."""
    if isinstance(value, dict):
        return {
            key: planted(held, hidden=hidden or key in HIDDEN_BELOW)
            for key, held in value.items()
        }
    if isinstance(value, list):
        return [planted(held, hidden=hidden) for held in value]
    return PLANTED if hidden else value


@random_cases(200)
@given(values, values)
def test_values_below_a_hidden_field_are_never_shown(before: Any, after: Any) -> None:
    shown, _ = differences({"spec": planted(before)}, {"spec": planted(after)})
    assert PLANTED not in json.dumps(shown)
    changed = {"spec": planted(before)} != {"spec": planted(after)}
    assert bool(shown) >= (changed and before is not None and after is not None)


def test_arguments_and_variables_of_a_deployment_are_never_shown() -> None:
    document = a_deployment("qwen", "a")
    (container,) = document["spec"]["template"]["spec"]["engines"][0]["members"][0][
        "template"
    ]["spec"]["containers"]
    container |= {
        "args": [PLANTED],
        "command": [PLANTED],
        "env": [{"name": "TOKEN", "value": PLANTED}],
    }
    shown, omitted = differences(None, document)
    paths = [each["path"] for each in shown]
    assert omitted == 0
    assert any(path.endswith(".env[0].value") for path in paths)
    assert "spec.replicas" in paths
    assert PLANTED not in json.dumps(shown)
