"""Concurrent writes of several managers and a busy workflow, without Temporal.

No write is lost, and no client gives up early.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types import labels
from api_types.resources.kinds import BY_KIND
from fleet_client.refs.targets import Target
from front.applying.annotation import TEXT_BYTES_MAX
from front.serving import bodies
from front.store.projection import ObjectKey, Tree
from tests.front.fleet_of_tenants import Fleet, a_fleet, have_other_fronts

MINE = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine"
KEY = ObjectKey("ModelDeployment", "a", "mine")
KIND: Tree = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {"name": "mine"},
}
NAMED = {"name": "mine", "resourceVersion": "VERSION"}
APPLIES, MERGES = (bodies.APPLY, bodies.MERGE)


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


async def write(
    fleet: Fleet,
    body: Any,
    kind: str = APPLIES,
    query: str = "fieldManager=m",
    method: str = "PATCH",
) -> tuple[int, Tree]:
    status, answer = await fleet.ask(
        method,
        f"{MINE}?{query}",
        "ann",
        json.dumps(body).encode(),
        **{"Content-Type": kind},
    )
    return status, json.loads(answer)


def labelled(**texts: str) -> Tree:
    return {**KIND, "metadata": {"name": "mine", "labels": texts}}


def change_status_after_each_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """Change status and version after each read, like a workflow whose replicas start."""
    describe, left = fleet.plane.describe, [times]

    async def then_changed(target: Target) -> Tree:
        tree = await describe(target)
        if left[0]:
            left[0] -= 1
            version = str(int(tree["metadata"]["resourceVersion"]) + 1)
            fleet.plane.trees[KEY] = {
                **tree,
                "metadata": {**tree["metadata"], "resourceVersion": version},
            }
        return tree

    monkeypatch.setattr(fleet.plane, "describe", then_changed)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (labelled(a="2"), APPLIES),
        (labelled(a="2"), MERGES),
        (
            [{"op": "replace", "path": "/metadata/labels/a", "value": "2"}],
            bodies.JSON_PATCH,
        ),
    ],
    ids=["apply", "merge", "json"],
)
async def test_permanent_status_changes_cause_no_conflict(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, body: Any, kind: str
) -> None:
    await write(fleet, labelled(a="1"))
    change_status_after_each_read(fleet, monkeypatch, 1_000_000)
    status, tree = await write(fleet, body, kind)
    assert (status, tree["metadata"]["labels"]["a"]) == (200, "2")


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({**KIND, "metadata": {**NAMED, "labels": {"a": "2"}}}, APPLIES),
        ({"metadata": {**NAMED, "labels": {"a": "2"}}}, MERGES),
        (
            [
                {
                    "op": "replace",
                    "path": "/metadata/resourceVersion",
                    "value": "VERSION",
                },
                {"op": "replace", "path": "/metadata/labels/a", "value": "2"},
            ],
            bodies.JSON_PATCH,
        ),
    ],
    ids=["apply", "merge", "json"],
)
@pytest.mark.parametrize("by", ["status", "other"])
async def test_a_named_version_refers_to_its_manifest(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, body: Any, kind: str, by: str
) -> None:
    await write(fleet, labelled(a="1"))
    named = json.loads(
        json.dumps(body).replace(
            "VERSION", fleet.plane.trees[KEY]["metadata"]["resourceVersion"]
        )
    )
    if by == "status":
        change_status_after_each_read(fleet, monkeypatch, 1_000_000)
        await fleet.plane.describe(Target(BY_KIND["ModelDeployment"], "a", "mine"))
        status, tree = await write(fleet, named, kind)
        assert (status, tree["metadata"]["labels"]["a"]) == (200, "2")
        return
    await write(fleet, labelled(b="1"), query="fieldManager=other")
    status, tree = await asyncio.wait_for(write(fleet, named, kind), 5)
    assert (status, tree["reason"]) == (409, "Conflict")
    assert fleet.plane.trees[KEY]["metadata"]["labels"]["a"] == "1"


@pytest.mark.parametrize("version", ["x", "\ud800", "9" * 300, 7, "1", "9" * 20])
async def test_an_invalid_version_is_a_conflict(fleet: Fleet, version: Any) -> None:
    await write(fleet, labelled(a="1"))
    before = fleet.plane.trees[KEY]
    metadata = {"name": "mine", "labels": {"a": "2"}, "resourceVersion": version}
    body = {**KIND, "metadata": metadata, "spec": before["spec"]}
    ways = (
        (APPLIES, "PATCH", "fieldManager=m"),
        (MERGES, "PATCH", ""),
        (bodies.JSON, "PUT", ""),
        (MERGES, "PATCH", "dryRun=All"),
    )
    for kind, method, query in ways:
        status, tree = await asyncio.wait_for(
            write(fleet, body, kind, query, method), 5
        )
        assert status in ({400} if version == "\ud800" else {409, 422}), tree
    assert fleet.plane.trees[KEY] is before


async def test_after_a_conflict_a_client_reads_the_current_state(fleet: Fleet) -> None:
    await write(fleet, labelled(a="1"))
    tree = fleet.plane.trees[KEY]
    version = tree["metadata"]["resourceVersion"]
    # Another front has written it, and this one does not know yet.
    later = str(int(version) + 5)
    fleet.plane.trees[KEY] = {
        **tree,
        "metadata": {**tree["metadata"], "resourceVersion": later},
    }
    fleet.plane.changed[KEY] = int(later)
    status, _ = await write(
        fleet,
        {"metadata": {"labels": {"a": "2"}, "resourceVersion": version}},
        MERGES,
        "",
    )
    _, seen = await fleet.ask("GET", MINE)
    assert (status, json.loads(seen)["metadata"]["resourceVersion"]) == (409, later)


async def test_eight_concurrent_managers_all_succeed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = fleet.plane.describe

    async def slowly(target: Target) -> Tree:
        tree = await describe(target)
        await asyncio.sleep(0)
        return tree

    monkeypatch.setattr(fleet.plane, "describe", slowly)
    names = [f"m{number}" for number in range(8)]
    answers = await asyncio.gather(
        *(
            write(fleet, labelled(**{name: "1"}), query=f"fieldManager={name}")
            for name in names
        )
    )
    assert [status for status, _ in answers] == [200] * 8
    _, seen = await fleet.ask("GET", MINE)
    tree = json.loads(seen)
    assert set(names) <= set(tree["metadata"]["labels"])
    assert {
        entry["manager"]
        for entry in tree["metadata"]["managedFields"]
        if entry["operation"] == "Apply"
    } == set(names)


async def test_of_concurrent_creating_managers_one_creates_and_the_others_change(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = fleet.plane.exists

    async def slowly(target: Target) -> bool:
        found = await exists(target)
        await asyncio.sleep(0.01)
        return found

    monkeypatch.setattr(fleet.plane, "exists", slowly)
    spec = fleet.plane.trees[KEY]["spec"]
    body = json.dumps({**KIND, "metadata": {"name": "new"}, "spec": spec}).encode()
    path, sent = MINE.replace("mine", "new"), {"Content-Type": APPLIES}
    answers = await asyncio.gather(
        *(
            fleet.ask("PATCH", f"{path}?fieldManager=m{number}", "ann", body, **sent)
            for number in range(4)
        )
    )
    assert sorted(status for status, _ in answers) == [200, 200, 200, 201]


async def test_an_apply_creates_an_object_that_was_deleted_meanwhile(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, spec = fleet.plane.describe, fleet.plane.trees[KEY]["spec"]

    async def then_gone(target: Target) -> Tree:
        tree = await describe(target)
        monkeypatch.setattr(fleet.plane, "describe", describe)
        del fleet.plane.trees[KEY]
        return tree

    monkeypatch.setattr(fleet.plane, "describe", then_gone)
    status, tree = await write(
        fleet,
        {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}, "spec": spec},
    )
    assert (status, tree["metadata"]["labels"]) == (201, {"a": "1"})


async def test_a_count_that_is_set_between_reading_and_writing_is_not_reset(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(fleet, labelled(a="1"))
    describe, scaled = fleet.plane.describe, list[int]()

    async def scaled_meanwhile(target: Target) -> Tree:
        tree = await describe(target)
        if not scaled:
            scaled.append(9)
            monkeypatch.setattr(fleet.plane, "describe", describe)
            content = json.dumps({"spec": {"replicas": 9}}).encode()
            status, answer = await fleet.ask(
                "PATCH", f"{MINE}/scale", "ann", content, **{"Content-Type": MERGES}
            )
            assert status == 200, answer
        return tree

    monkeypatch.setattr(fleet.plane, "describe", scaled_meanwhile)
    have_other_fronts(monkeypatch)
    status, tree = await write(fleet, labelled(a="2"))
    assert (status, tree["spec"]["replicas"]) == (200, 9)


@pytest.mark.parametrize(
    ("body", "kind", "keeps"),
    [
        (labelled(a="2"), APPLIES, True),
        (labelled(a="2"), MERGES, True),
        ({**labelled(a="2"), "spec": {"replicas": 2}}, APPLIES, False),
        ({"spec": {"replicas": 5}}, MERGES, False),
    ],
    ids=["apply", "merge", "apply-with-count", "merge-with-count"],
)
async def test_a_configuration_without_a_count_does_not_set_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, body: Tree, kind: str, *, keeps: bool
) -> None:
    replace, sent = fleet.plane.replace, list[bool]()

    async def noted(target: Target, message: Any, *, create: bool) -> Tree:
        sent.append(message.keeps_replicas)
        return await replace(target, message, create=create)

    monkeypatch.setattr(fleet.plane, "replace", noted)
    assert (await write(fleet, body, kind))[0] == 200
    assert sent == [keeps]


@pytest.mark.parametrize("dry", ["", "&dryRun=All"])
@pytest.mark.parametrize(
    ("kind", "method"), [(APPLIES, "PATCH"), (MERGES, "PATCH"), (bodies.JSON, "PUT")]
)
async def test_an_object_that_is_being_deleted_is_not_changed(
    fleet: Fleet, kind: str, method: str, dry: str
) -> None:
    await write(fleet, labelled(a="1"))
    await fleet.ask("DELETE", MINE)
    before = fleet.plane.trees[KEY]
    body = labelled(a="2") | (
        {"metadata": {"name": "mine"}, "spec": before["spec"]}
        if method == "PUT"
        else {}
    )
    status, tree = await asyncio.wait_for(
        write(fleet, body, kind, f"fieldManager=m{dry}", method), 5
    )
    assert status == 409
    assert "is being deleted" in tree["message"]
    assert fleet.plane.trees[KEY] is before


async def test_the_annotation_in_a_body_has_no_owner(fleet: Fleet) -> None:
    await write(fleet, labelled(a="1"))
    for kind, method in ((APPLIES, "PATCH"), (MERGES, "PATCH"), (bodies.JSON, "PUT")):
        tree = fleet.plane.trees[KEY] if method == "PUT" else KIND
        metadata = {
            "name": "mine",
            "labels": {"a": "1"},
            "annotations": {labels.MANAGED_FIELDS: "mine", "note": kind},
        }
        status, answer = await write(
            fleet,
            {**tree, "metadata": metadata},
            kind,
            "fieldManager=m&force=true" if kind == APPLIES else "",
            method,
        )
        assert status == 200, answer
        assert "managed-fields" not in json.dumps(answer)
    # A JSON patch cannot reach it.
    pointer = f"/metadata/annotations/{labels.MANAGED_FIELDS.replace('/', '~1')}"
    assert (
        await write(fleet, [{"op": "remove", "path": pointer}], bodies.JSON_PATCH, "")
    )[0] == 422
    status, answer = await write(
        fleet, [{"op": "add", "path": pointer, "value": "mine"}], bodies.JSON_PATCH, ""
    )
    assert (status, "managed-fields" in json.dumps(answer)) == (200, False)


@pytest.mark.parametrize("name", ["\x1b[31m", "a\u202eb", "x" * 129, ""])
async def test_unprintable_manager_names_are_replaced(fleet: Fleet, name: str) -> None:
    entry = {
        "manager": name,
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": {"f:spec": {"f:replicas": {}}},
    }
    await write(fleet, labelled(a="1"))
    status, tree = await write(
        fleet,
        {"metadata": {"managedFields": [entry], "labels": {"b": "1"}}},
        MERGES,
        "fieldManager=ed",
    )
    names = {entry["manager"] for entry in tree["metadata"]["managedFields"]}
    assert (status, names) == (
        200,
        {"m", "ed", "before-first-apply"} if name else {"", "ed"},
    )


async def test_a_user_with_an_unprintable_name_may_scale(fleet: Fleet) -> None:
    await write(fleet, labelled(a="1"))
    tree = fleet.plane.trees[KEY]
    scale = {"replicas": 7, "by": "\x1b[31m\ud800hpa", "at": "2026-01-01T00:00:00Z"}
    fleet.plane.trees[KEY] = {
        **tree,
        "spec": {**tree["spec"], "replicas": 7},
        "status": {"lastScale": scale},
    }
    status, tree = await write(fleet, labelled(a="2"))
    assert status == 200
    assert "[31mhpa" in {
        entry["manager"] for entry in tree["metadata"]["managedFields"]
    }


@pytest.mark.slow
async def test_ten_thousand_fields_are_rejected_in_time(fleet: Fleet) -> None:
    await write(fleet, labelled(a="1"))
    before = fleet.plane.trees[KEY]
    many = {f"l{number}": "x" for number in range(10_000)}
    for body in (
        labelled(**many),
        {**KIND, "metadata": {"name": "mine", "annotations": many}},
    ):
        for kind in (APPLIES, MERGES):
            status, tree = await asyncio.wait_for(write(fleet, body, kind), 60)
            assert status == 422
            assert len(json.dumps(tree)) < 64 * 1024
    assert fleet.plane.trees[KEY] is before
    assert TEXT_BYTES_MAX < 64 * 1024


async def test_a_conflict_does_not_reveal_values(fleet: Fleet) -> None:
    await write(
        fleet,
        {**KIND, "metadata": {"name": "mine", "annotations": {"note": "secret-of-m"}}},
    )
    status, tree = await write(
        fleet,
        {**KIND, "metadata": {"name": "mine", "annotations": {"note": "other"}}},
        query="fieldManager=n",
    )
    assert (status, tree["details"]["causes"][0]["field"]) == (
        409,
        ".metadata.annotations.note",
    )
    assert "secret-of-m" not in json.dumps(tree)


async def test_objects_of_another_tenant_are_not_reachable(fleet: Fleet) -> None:
    other = MINE.replace("/a/", "/b/").replace("mine", "other")
    for name in (other, other.replace("other", "none")):
        status, answer = await fleet.ask(
            "PATCH",
            f"{name}?fieldManager=m",
            "ann",
            json.dumps(KIND).encode(),
            **{"Content-Type": APPLIES},
        )
        assert status == 403
        assert b"before-first-apply" not in answer
    assert all(target.namespace != "b" for target in fleet.plane.touched)


@pytest.mark.parametrize("below", ["/status", "/scale"])
async def test_subresources_cannot_be_applied(fleet: Fleet, below: str) -> None:
    data = json.dumps({**KIND, "spec": {"replicas": 5}, "status": {}}).encode()
    status, _ = await fleet.ask(
        "PATCH",
        f"{MINE}{below}?fieldManager=m",
        "ann",
        data,
        **{"Content-Type": APPLIES},
    )
    assert status in {405, 415}
    assert fleet.plane.trees[KEY]["spec"]["replicas"] == 2
