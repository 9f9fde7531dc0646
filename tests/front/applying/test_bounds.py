"""Large sets of field owners are rejected or parsed in bounded time.

Requests of other users do not wait for them.
"""

import json
import threading
from collections.abc import AsyncIterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from api_types import labels
from api_types.payloads.limits import MANIFEST_BYTES_MAX
from front.applying import last_applied
from front.applying.annotation import TEXT_BYTES_MAX
from front.applying.fields import from_tree, to_tree
from front.applying.owners import Owners
from front.applying.shapes import shape_of
from front.serving import bodies
from front.serving.writes import managers, manifests
from front.serving.writes.managers import with_owners
from front.store.projection import ObjectKey, Tree
from tests.front.fleet_of_tenants import Fleet, a_fleet

MINE = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine"
KEY = ObjectKey("ModelDeployment", "a", "mine")
KIND: Tree = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "mine"},
}


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


async def write(
    fleet: Fleet, body: Any, kind: str = bodies.MERGE, query: str = "fieldManager=m"
) -> tuple[int, Tree]:
    status, answer = await fleet.ask(
        "PATCH",
        f"{MINE}?{query}",
        "ann",
        json.dumps(body).encode(),
        **{"Content-Type": kind},
    )
    return status, json.loads(answer)


def entry(fields: Tree) -> Tree:
    return {
        "manager": "ed",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }


@pytest.mark.parametrize("dry", ["", "&dryRun=All"])
async def test_owners_above_the_limit_are_not_parsed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, dry: str
) -> None:
    await write(
        fleet,
        {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}},
        bodies.APPLY,
    )
    of_entries, before = Owners.of_entries, fleet.plane.trees[KEY]

    def of_few(entries: Any) -> Owners:
        assert len(json.dumps(entries)) <= TEXT_BYTES_MAX
        return of_entries(entries)

    monkeypatch.setattr(Owners, "of_entries", staticmethod(of_few))
    many: Tree = {f"f:l{number}": {} for number in range(3_000)}
    status, answer = await write(
        fleet,
        {"metadata": {"managedFields": [entry({"f:spec": many})]}},
        query=f"fieldManager=m{dry}",
    )
    assert (status, f"the limit is {TEXT_BYTES_MAX}" in answer["message"]) == (
        422,
        True,
    )
    assert fleet.plane.trees[KEY] is before


async def test_owners_are_encoded_outside_the_event_loop(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = set[int]()

    def noted(manifest: Tree, owners: Owners) -> Tree:
        threads.add(threading.get_ident())
        return with_owners(manifest, owners)

    monkeypatch.setattr(manifests, "with_owners", noted)
    config = {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}}
    assert (await write(fleet, config, bodies.APPLY))[0] == 200
    assert (await write(fleet, {"metadata": {"labels": {"a": "2"}}}))[0] == 200
    put = json.dumps(
        {**KIND, "metadata": {"name": "mine"}, "spec": fleet.plane.trees[KEY]["spec"]}
    ).encode()
    assert (await fleet.ask("PUT", MINE, "ann", put))[0] == 200
    made = put.replace(b'"mine"', b'"new"')
    assert (await fleet.ask("POST", MINE.rpartition("/")[0], "ann", made))[0] == 201
    assert threads
    assert threading.get_ident() not in threads


def test_a_set_of_long_paths_is_encoded_without_all_prefixes() -> None:
    hashed = [0]

    class Counted(str):
        __slots__ = ()

        def __hash__(self) -> int:
            hashed[0] += 1
            return super().__hash__()

    depth, leaves = 50, 200
    start = tuple(Counted(f"f:{number}") for number in range(depth))
    fields = [(*start, Counted(f"f:leaf{number}")) for number in range(leaves)]
    assert from_tree(to_tree(fields)) == set(fields)
    # A few operations per level. An algorithm with all prefixes of each path would need
    # half of `depth` times as many.
    assert hashed[0] < 8 * depth * leaves


def test_every_small_set_survives_a_round_trip() -> None:
    paths = [
        ("f:a",),
        ("f:a", "f:b"),
        ("f:a", "f:b", "f:c"),
        ("f:a", "f:d"),
        ("f:b", "f:c"),
        ("f:b",),
    ]
    for chosen in product([False, True], repeat=len(paths)):
        fields = {path for path, is_in in zip(paths, chosen, strict=True) if is_in}
        assert from_tree(to_tree(fields)) == fields
    assert to_tree(paths) == {
        "f:a": {".": {}, "f:b": {".": {}, "f:c": {}}, "f:d": {}},
        "f:b": {".": {}, "f:c": {}},
    }


@pytest.mark.parametrize(
    "keys",
    [
        '{"name":"\\ud800"}',
        '{"\\udfff":1}',
        '{"name":NaN}',
        '{"name":-Infinity}',
        '{"name":1e999}',
        "[1]",
    ],
)
async def test_keys_with_invalid_text_are_rejected(fleet: Fleet, keys: str) -> None:
    await write(
        fleet,
        {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}},
        bodies.APPLY,
    )
    with pytest.raises(ValueError, match=r"no valid keys|JSON compliant"):
        from_tree({"f:spec": {f"k:{keys}": {}}})
    given = [entry({"f:spec": {"f:template": {f"k:{keys}": {}}}})]
    status, tree = await write(
        fleet, {"metadata": {"managedFields": given, "labels": {"b": "1"}}}
    )
    assert (
        status,
        "ed" in {each["manager"] for each in tree["metadata"]["managedFields"]},
    ) == (200, False)


def nested(levels: int, leaf: Any) -> Any:
    for _ in range(levels):
        leaf = {"a": leaf}
    return leaf


def annotated(spec: Any) -> Tree:
    return {
        "metadata": {
            "name": "mine",
            "annotations": {
                labels.LAST_APPLIED: json.dumps({"metadata": {}, "spec": spec})
            },
        },
        "spec": {},
    }


@pytest.mark.parametrize(
    "spec",
    [nested(900, 1), nested(70, 1), {"a": [0] * 60_000}],
    ids=["900-levels", "70-levels", "60000-values"],
)
def test_an_invalid_last_applied_annotation_is_ignored(
    spec: Any,
) -> None:
    def never(_: Tree) -> Tree:
        raise AssertionError

    assert (
        last_applied.unchanged(shape_of("ModelDeployment"), annotated(spec), never)
        == frozenset()
    )


def test_a_last_applied_manifest_that_is_not_admitted_is_ignored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(last_applied, "compared", None)
    assert (
        last_applied.unchanged(
            shape_of("ModelDeployment"), annotated({"unknown": 1}), lambda _: None
        )
        == frozenset()
    )


@pytest.mark.parametrize(
    ("kept", "known"),
    [({"crossplane": nested(50, 1)}, 0), ({"replicas": 1, "crossplane": {}}, 1)],
)
def test_fields_of_other_control_planes_are_not_last_applied(
    kept: Tree, known: int
) -> None:
    found = last_applied.unchanged(
        shape_of("ModelDeployment"),
        {**annotated(kept), "spec": {"replicas": 1}},
        lambda tree: tree,
    )
    assert (
        len([path for path in found if path[0] == "f:spec" and len(path) > 1]) == known
    )


@pytest.mark.parametrize(
    ("metadata", "spec", "told"),
    [
        ({"annotations": ["y"]}, {}, "metadata.annotations"),
        ({"annotations": "y"}, {}, "metadata.annotations"),
        ({}, {"unknown": nested(54, [0] * 1_000)}, "unknown"),
        ({}, {"replicas": "x"}, "spec.replicas"),
        ({}, [], "spec"),
        (
            {"annotations": {"note": "x" * MANIFEST_BYTES_MAX}},
            {},
            "at most 256 KiB are stored",
        ),
        (
            {"labels": {f"{number:0>60}": "x" for number in range(300)}},
            {},
            f"the limit is {TEXT_BYTES_MAX}",
        ),
    ],
    ids=["list", "text", "unknown", "type", "spec", "size", "fields"],
)
async def test_a_configuration_that_no_object_accepts_is_not_merged(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, metadata: Tree, spec: Any, told: str
) -> None:
    monkeypatch.setattr(managers, "applied", None)
    for path in (
        f"{MINE}?fieldManager=kubectl",
        f"{MINE}?fieldManager=m&force=true",
        f"{MINE.replace('mine', 'new')}?fieldManager=m",
    ):
        name = path.partition("?")[0].rpartition("/")[2]
        named = {**KIND, "metadata": {"name": name, **metadata}, "spec": spec}
        status, answer = await fleet.ask(
            "PATCH",
            path,
            "ann",
            json.dumps(named).encode(),
            **{"Content-Type": bodies.APPLY},
        )
        assert (status, told in json.loads(answer)["message"]) == (422, True), answer[
            :512
        ]


async def test_a_partial_configuration_is_applied(
    fleet: Fleet,
) -> None:
    engine = fleet.plane.trees[KEY]["spec"]["template"]["spec"]["engines"][0]
    part = (
        {"name": engine["name"], "copies": 1}
        if "copies" in engine
        else {"name": engine["name"]}
    )
    status, answer = await write(
        fleet,
        {**KIND, "spec": {"template": {"spec": {"engines": [part]}}}},
        bodies.APPLY,
    )
    assert status == 200, answer
