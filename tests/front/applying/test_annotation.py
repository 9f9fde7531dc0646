"""The annotation with the field owners: users neither see it nor write it."""

import json
from typing import Any

import pytest

from api_types import labels
from front.applying.annotation import (
    TEXT_BYTES_MAX,
    WITH_WRITE,
    TooMuch,
    kept,
    revealed,
)
from front.applying.owners import APPLY, UPDATE, FieldManager, Owners
from front.store.projection import shown

ANN = FieldManager("ann", APPLY, "v1")
OWNERS = Owners(
    {ANN: frozenset({("f:spec", "f:replicas"), ("f:spec", "f:x")})},
    {ANN: "2026-01-01T00:00:00Z"},
)
MANIFEST: dict[str, Any] = {
    "metadata": {"name": "one", "annotations": {"a": "b"}},
    "spec": {"replicas": 1},
}


def annotated(text: str, **more: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "one", "annotations": {labels.MANAGED_FIELDS: text}},
        "spec": {"replicas": 1},
        **more,
    }


def test_owners_are_stored_and_shown_as_managed_fields() -> None:
    written = kept(MANIFEST, OWNERS)
    assert set(written["metadata"]["annotations"]) == {"a", labels.MANAGED_FIELDS}
    seen = shown({**written, "appliedRequestIds": []})
    assert seen == {
        "metadata": {**MANIFEST["metadata"], "managedFields": OWNERS.entries()},
        "spec": {"replicas": 1},
    }
    assert shown(seen) == seen
    assert kept(written, Owners()) == MANIFEST
    assert kept({"metadata": {"name": "one"}, "spec": {}}, Owners())["metadata"] == {
        "name": "one"
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "1",
        '{"managers":1}',
        '{"managers":[{}]}',
        "[" * 5_000,
        "x" * (TEXT_BYTES_MAX + 1),
    ],
)
def test_a_foreign_annotation_is_ignored_and_hidden(text: str) -> None:
    assert revealed(annotated(text)) == {
        "metadata": {"name": "one"},
        "spec": {"replicas": 1},
    }


def test_owners_above_the_size_limit_are_rejected() -> None:
    many = Owners(
        {ANN: frozenset({("f:spec", f"f:{number:0>50}") for number in range(400)})}
    )
    with pytest.raises(TooMuch, match=f"the limit is {TEXT_BYTES_MAX}"):
        kept(MANIFEST, many)


def test_a_different_count_belongs_to_the_last_scaler() -> None:
    text = kept(MANIFEST, OWNERS)["metadata"]["annotations"][labels.MANAGED_FIELDS]
    last = {"replicas": 3, "by": "hpa", "at": "2026-02-01T00:00:00Z"}
    seen = revealed(annotated(text, spec={"replicas": 3}, status={"lastScale": last}))
    owners = Owners.of_entries(seen["metadata"]["managedFields"])
    scaler = FieldManager("hpa", UPDATE, "v1", "scale")
    assert owners.fields == {
        ANN: {("f:spec", "f:x")},
        scaler: {("f:spec", "f:replicas")},
    }
    assert owners.times[scaler] == last["at"]
    for status in ({}, {"lastScale": {**last, "replicas": 2}}):
        seen = revealed(annotated(text, spec={"replicas": 3}, status=status))
        assert "unknown" in json.dumps(seen["metadata"]["managedFields"])
    assert (
        revealed(annotated(text, status={"lastScale": last}))["metadata"][
            "managedFields"
        ]
        == OWNERS.entries()
    )


@pytest.mark.parametrize(
    ("last", "name"),
    [
        ({}, "hpa"),
        ({"by": "apply"}, "ann"),
        ({"by": ""}, "ann"),
        ({"replicas": 2}, "ann"),
        ({"at": "2025-12-31T23:59:59Z"}, "ann"),
        ({"at": "2026-01-01T00:00:00Z"}, "ann"),
        ({"requestId": f"{WITH_WRITE}1"}, "ann"),
    ],
    ids=str,
)
def test_an_equal_count_that_was_set_later_belongs_to_its_scaler(
    last: dict[str, Any], name: str
) -> None:
    text = kept(MANIFEST, OWNERS)["metadata"]["annotations"][labels.MANAGED_FIELDS]
    scale = {
        "replicas": 1,
        "by": "hpa",
        "at": "2026-02-01T00:00:00Z",
        "requestId": "1",
    } | last
    owners = Owners.of_entries(
        revealed(annotated(text, status={"lastScale": scale}))["metadata"][
            "managedFields"
        ]
    )
    assert [
        owner.name
        for owner, held in owners.fields.items()
        if ("f:spec", "f:replicas") in held
    ] == [name]


def test_a_long_annotation_is_ignored() -> None:
    text = kept(MANIFEST, OWNERS)["metadata"]["annotations"][labels.MANAGED_FIELDS]
    assert "managedFields" in revealed(annotated(text))["metadata"]
    assert (
        "managedFields"
        not in revealed(annotated(text + " " * TEXT_BYTES_MAX))["metadata"]
    )
