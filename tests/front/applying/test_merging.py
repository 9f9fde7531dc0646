"""Owners and result of a write.

test_against_api_server.py compares the same cases with a real API server.
"""

import json
from typing import Any

import pytest

from api_types.resources.kinds import SERVED
from front.applying.fields import FieldSet, from_tree, text_of, to_tree
from front.applying.merging import Conflicts, Fields, Terms, applied, updated
from front.applying.owners import (
    APPLY,
    OLDEST,
    UPDATE,
    UPDATERS_MAX,
    FieldManager,
    Owners,
)
from front.applying.shapes import Shape, of_schema, shape_of

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
ITEM = {
    "type": "object",
    "properties": {"name": TEXT, "port": {"default": "tcp"}, "value": TEXT},
}
MAP = {"type": "object", "additionalProperties": TEXT}
SCHEMA: Json = {
    "type": "object",
    "properties": {
        "metadata": {"type": "object", "properties": {"name": TEXT, "labels": MAP}},
        "spec": {
            "type": "object",
            "properties": {
                "count": {"type": "integer"},
                "plain": {"type": "array", "items": TEXT},
                "items": {
                    "type": "array",
                    "items": ITEM,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["name", "port"],
                },
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                },
            },
        },
    },
}
SHAPE: Shape = of_schema(SCHEMA)
ANN, BEN, ED = (
    FieldManager("ann", APPLY, "v1"),
    FieldManager("ben", APPLY, "v1"),
    FieldManager("ed", UPDATE, "v1"),
)
LABELS = ("f:metadata", "f:labels")


def spec(**fields: Any) -> Json:
    return {"metadata": {"name": "one"}, "spec": fields}


def apply(
    live: Json,
    config: Json,
    fields: Fields,
    owner: FieldManager = ANN,
    *,
    force: bool = False,
) -> tuple[Json, Fields]:
    return applied(SHAPE, live, config, fields, owner, terms=Terms(force))


def paths(*texts: str) -> FieldSet:
    return frozenset(tuple(text.split("/")) for text in texts)


def test_a_manager_owns_applied_fields_and_dropped_fields_are_removed() -> None:
    live, fields = apply({"metadata": {"name": "one"}}, spec(count=1, plain=["a"]), {})
    assert live["spec"] == {"count": 1, "plain": ["a"]}
    assert fields[ANN] == paths("f:spec/f:count", "f:spec/f:plain")
    live, fields = apply(live, spec(plain=["a"]), fields)
    assert live["spec"] == {"plain": ["a"]}
    assert fields[ANN] == paths("f:spec/f:plain")


def test_fields_of_others_and_fields_without_owner_stay() -> None:
    live, fields = apply(spec(free={"x": 1}), spec(count=1, plain=["a"]), {})
    live, fields = apply(live, spec(count=1), fields, BEN)
    live, fields = apply(live, spec(plain=["a"]), fields)
    assert live["spec"] == {"count": 1, "plain": ["a"], "free": {"x": 1}}
    assert fields[BEN] == paths("f:spec/f:count")


def test_changing_a_field_of_another_manager_is_a_conflict_unless_forced() -> None:
    live, fields = apply(spec(), spec(count=1, plain=["a"]), {})
    with pytest.raises(Conflicts) as raised:
        apply(live, spec(count=2, plain=["a"]), fields, BEN)
    assert [(each.owner, each.field) for each in raised.value.conflicts] == [
        (ANN, ".spec.count")
    ]
    live, fields = apply(live, spec(count=2, plain=["a"]), fields, BEN, force=True)
    assert (live["spec"]["count"], fields[ANN]) == (2, paths("f:spec/f:plain"))


def test_a_value_with_an_unchanged_stored_form_takes_no_ownership() -> None:
    def with_default(tree: Json) -> Json:
        return {
            **tree,
            "spec": {
                **tree["spec"],
                "plain": [{"role": "main", **item} for item in tree["spec"]["plain"]],
            },
        }

    live, fields = (
        spec(plain=[{"role": "main", "image": "x"}]),
        {ANN: paths("f:spec/f:plain")},
    )
    terms = Terms(stored=with_default)
    _, after = applied(
        SHAPE, live, spec(plain=[{"image": "x"}]), fields, BEN, terms=terms
    )
    assert after[ANN] == after[BEN] == paths("f:spec/f:plain")
    with pytest.raises(Conflicts):
        applied(SHAPE, live, spec(plain=[{"image": "y"}]), fields, BEN, terms=terms)


def test_keyed_lists_are_owned_by_item_in_the_order_of_the_applier() -> None:
    a, b, c = ({"name": name} for name in "abc")
    live, fields = apply(spec(), spec(items=[a, b]), {})
    live, fields = apply(live, spec(items=[c, {**a, "value": "1"}]), fields, BEN)
    assert [item["name"] for item in live["spec"]["items"]] == ["c", "a", "b"]
    item = 'k:{"name":"a","port":"tcp"}'
    assert ("f:spec", "f:items", item, "f:value") in fields[BEN]
    assert text_of(("f:spec", "f:items", item)) == '.spec.items[name="a",port="tcp"]'
    live, fields = apply(live, spec(items=[b]), fields)
    assert [item["name"] for item in live["spec"]["items"]] == ["c", "a", "b"]
    live, fields = apply(live, spec(items=[c]), fields, BEN)
    assert [item["name"] for item in live["spec"]["items"]] == ["c", "b"]


def test_lists_with_duplicate_keys_are_owned_as_a_whole() -> None:
    for items in (
        [{"name": "a"}, {"name": "a"}],
        [{"value": "1"}],
        ["a"],
        [{"name": ["a"]}],
    ):
        live, fields = apply(spec(items=[{"name": "b"}]), spec(items=items), {})
        assert (live["spec"]["items"], fields[ANN]) == (items, paths("f:spec/f:items"))


def test_other_writes_take_ownership_of_changed_fields() -> None:
    live, fields = apply(
        spec(), {**spec(count=1), "metadata": {"name": "one", "labels": {"a": "1"}}}, {}
    )
    after = {**live, "metadata": {"name": "one", "labels": {"a": "2", "b": "1"}}}
    fields, changed = updated(SHAPE, live, after, fields, ED)
    assert changed
    assert fields[ED] == {(*LABELS, "f:a"), (*LABELS, "f:b")}
    assert fields[ANN] == paths("f:spec/f:count")
    fields, changed = updated(
        SHAPE, after, {**after, "metadata": {"name": "one"}}, fields, BEN
    )
    assert (changed, fields[ED]) == (False, frozenset())


@pytest.mark.parametrize("kind", [info.kind for info in SERVED])
def test_fields_in_the_schema_are_owned_one_by_one(kind: str) -> None:
    shape = shape_of(kind)
    assert set(shape.fields) == {"metadata", "spec"}
    assert shape.of("f:spec").fields
    assert shape.of("f:metadata").of("f:labels").of("f:a").form == "leaf"


def test_keyed_lists_of_our_kinds_are_recognized() -> None:
    spec = shape_of("InferenceCluster").of("f:spec")
    assert spec.of("f:taints").keys == ("key", "effect")
    assert shape_of("ModelDeployment").of("f:spec").of("f:template").of("f:spec").of(
        "f:engines"
    ).keys == ("name",)


def test_true_differs_from_one() -> None:
    fields, _ = updated(SHAPE, spec(free={"x": 1}), spec(free={"x": True}), {}, ED)
    assert fields[ED] == paths("f:spec/f:free/f:x")


def test_sets_are_encoded_as_fields_v1() -> None:
    held = paths("f:a", "f:a/f:b", "f:c/f:d")
    assert to_tree(held) == {"f:a": {".": {}, "f:b": {}}, "f:c": {"f:d": {}}}
    assert from_tree(to_tree(held)) == held
    assert from_tree({'k:{"b":1, "a":2}': {}}) == {('k:{"a":2,"b":1}',)}
    wrong: Any
    for wrong in (
        [],
        {"f:a": 1},
        {"a": {}},
        {"k:1": {}},
        {"k:{": {}},
        {"f:\ud800": {}},
        {'k:{"\ud800":1}': {}},
    ):
        with pytest.raises(ValueError):  # noqa: PT011 - any
            from_tree(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        [1],
        [{}],
        [{"manager": "a", "operation": "Delete", "apiVersion": "v1"}],
        [{"manager": "\ud800", "operation": APPLY, "apiVersion": "v1"}],
        [{"manager": "a", "operation": APPLY, "apiVersion": "v1", "time": "soon"}],
        [{"manager": "a", "operation": APPLY, "apiVersion": "v1", "time": 1}],
        [
            {
                "manager": "a",
                "operation": APPLY,
                "apiVersion": "v1",
                "time": "0001-01-01T00:00:00+14:00",
            }
        ],
        [
            {
                "manager": "a",
                "operation": APPLY,
                "apiVersion": "v1",
                "fieldsV1": json.loads('{"f:a":' * 65 + "{}" + "}" * 65),
            }
        ],
        [{"manager": 1, "operation": APPLY, "apiVersion": "v1"}],
        [{"manager": "a" * 129, "operation": APPLY, "apiVersion": "v1"}],
        [
            {
                "manager": "a",
                "operation": APPLY,
                "apiVersion": "v1",
                "fieldsType": "FieldsV2",
            }
        ],
        [
            {
                "manager": "a",
                "operation": APPLY,
                "apiVersion": "v1",
                "fieldsV1": {"f:a": []},
            }
        ],
    ],
    ids=repr,
)
def test_invalid_entries_are_rejected(wrong: Any) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any
        Owners.of_entries(wrong)


def test_managers_without_fields_are_dropped() -> None:
    entry = {"manager": "a", "operation": APPLY, "apiVersion": "v1", "fieldsV1": {}}
    assert not Owners.of_entries([entry])


def test_the_oldest_of_many_updating_managers_are_merged() -> None:
    owners = Owners().written({ANN: paths("f:z")}, ANN, "2026-01-01T00:00:00Z")
    for number in range(UPDATERS_MAX + 5):
        owner = FieldManager(f"m{number}", UPDATE, "v1")
        owners = owners.written(
            {**owners.fields, owner: paths(f"f:x{number}")},
            owner,
            f"2026-01-01T00:00:{number:02}Z",
        )
    updaters = [owner for owner in owners.fields if owner.operation == UPDATE]
    assert len(updaters) == UPDATERS_MAX
    assert owners.fields[FieldManager(OLDEST, UPDATE, "v1")] == paths(
        *(f"f:x{number}" for number in range(6))
    )
    assert owners.fields[ANN] == paths("f:z")
    assert Owners.of_entries(owners.entries()) == owners
