"""Concurrent writes keep a chosen count and all owners, and stale versions are
rejected.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types import labels
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import Target
from front.applying.annotation import WITH_WRITE
from front.audit.log import AuditLog
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


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path, audit_log=AuditLog(str(tmp_path / "audit"))) as fleet:
        yield fleet


async def write(
    fleet: Fleet,
    body: Any,
    kind: str = bodies.MERGE,
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


def keep_count(fleet: Fleet, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Keep an autoscaler's count, as a workflow does if the applied count is unchanged."""
    replace = fleet.plane.replace

    async def kept(target: Target, message: Any, *, create: bool) -> Tree:
        manifest = {
            **message.manifest,
            "spec": {**message.manifest["spec"], "replicas": count},
        }
        return await replace(
            target, message.model_copy(update={"manifest": manifest}), create=create
        )

    monkeypatch.setattr(fleet.plane, "replace", kept)


def replaced(fleet: Fleet, count: int, **more: Any) -> Tree:
    tree = fleet.plane.trees[KEY]
    return {
        **KIND,
        "metadata": {"name": "mine", **more},
        "spec": {**tree["spec"], "replicas": count},
    }


@pytest.mark.parametrize("kind", [bodies.MERGE, bodies.JSON_PATCH])
async def test_a_patched_count_overrides_the_autoscalers_count(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    keep_count(fleet, monkeypatch, 5)
    patch: Any = {"spec": {"replicas": 3}}
    patch = (
        patch
        if kind == bodies.MERGE
        else [{"op": "replace", "path": "/spec/replicas", "value": 3}]
    )
    status, tree = await write(fleet, patch, kind, "fieldManager=kubectl-patch")
    assert (status, tree["spec"]["replicas"]) == (200, 3)
    # The audit log has both messages, each with its changes.
    lines = [
        json.loads(text) for text in (fleet.folder / "audit").read_text().splitlines()
    ]
    assert {"path": "spec.replicas", "old": 2, "new": 5} in lines[0]["changes"]
    assert lines[1]["changes"] == [{"path": "spec.replicas", "old": 5, "new": 3}]
    assert [line["requestId"].startswith(WITH_WRITE) for line in lines] == [False, True]


LAST_APPLIED = {"metadata": {"annotations": {labels.LAST_APPLIED: "{}"}}}


@pytest.mark.parametrize(
    ("query", "patch"),
    [
        ("fieldManager=kubectl-client-side-apply", {}),
        ("fieldManager=argocd-controller", {}),
        ("fieldManager=another", LAST_APPLIED),
        ("dryRun=All", {}),
    ],
    ids=["kubectl", "Argo CD", "kubectl under another name", "dry run"],
)
async def test_a_write_without_a_count_does_not_scale(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, query: str, patch: Tree
) -> None:
    keep_count(fleet, monkeypatch, 5)
    assert (await write(fleet, {"spec": {"replicas": 3}, **patch}, query=query))[
        0
    ] == 200
    assert fleet.plane.trees[KEY]["spec"]["replicas"] == (2 if "dry" in query else 5)


async def test_a_count_that_the_workflow_accepted_is_not_set_again(
    fleet: Fleet,
) -> None:
    status, tree = await write(fleet, {"spec": {"replicas": 3}})
    assert (status, tree["spec"]["replicas"], len(fleet.plane.by)) == (200, 3, 1)


async def test_a_write_succeeds_if_the_object_is_deleted_before_its_count_is_set(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(target: Target, *_: Any) -> None:
        raise not_found(target)

    keep_count(fleet, monkeypatch, 5)
    monkeypatch.setattr(fleet.plane, "signal", gone)
    status, tree = await write(fleet, {"spec": {"replicas": 3}})
    assert (status, tree["spec"]["replicas"]) == (200, 5)


@pytest.mark.parametrize(("named", "count"), [(True, 3), (False, 5)])
async def test_a_replacement_with_a_version_sets_the_count(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, named: bool, count: int
) -> None:
    keep_count(fleet, monkeypatch, 5)
    version = (
        {"resourceVersion": fleet.plane.trees[KEY]["metadata"]["resourceVersion"]}
        if named
        else {}
    )
    status, tree = await write(
        fleet, replaced(fleet, 3, **version), bodies.JSON, method="PUT"
    )
    assert (status, tree["spec"]["replicas"]) == (200, count)


async def test_a_replacement_without_owners_keeps_those_of_a_first_apply(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace, meanwhile = fleet.plane.replace, [True]

    async def applied_meanwhile(target: Target, message: Any, *, create: bool) -> Tree:
        if meanwhile.pop() if meanwhile else False:
            assert (
                await write(
                    fleet,
                    {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}},
                    bodies.APPLY,
                )
            )[0] == 200
        return await replace(target, message, create=create)

    monkeypatch.setattr(fleet.plane, "replace", applied_meanwhile)
    have_other_fronts(monkeypatch)
    body = replaced(fleet, 2, labels={"a": "1", "b": "1"})
    status, tree = await write(fleet, body, bodies.JSON, "fieldManager=ed", "PUT")
    managers = {
        (entry["manager"], entry["operation"])
        for entry in tree["metadata"].get("managedFields", ())
    }
    assert (status, ("m", "Apply") in managers, ("ed", "Update") in managers) == (
        200,
        True,
        True,
    )


@pytest.mark.parametrize(
    ("method", "query", "codes"),
    [("POST", "", {409}), ("PATCH", "fieldManager=m", {200})],
)
async def test_one_of_two_concurrent_creates_succeeds(
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    query: str,
    codes: set[int],
) -> None:
    whole = fleet.plane.trees[KEY]
    metadata = {
        field: value
        for field, value in whole["metadata"].items()
        if field not in ("generation", "labels")
    }
    fleet.plane.trees[KEY] = {**whole, "metadata": metadata, "spec": {}}
    replace = fleet.plane.replace

    async def created_meanwhile(target: Target, message: Any, *, create: bool) -> Tree:
        monkeypatch.setattr(fleet.plane, "replace", replace)
        await replace(
            target, message.model_copy(update={"resource_version": ""}), create=create
        )
        return await replace(target, message, create=create)

    monkeypatch.setattr(fleet.plane, "replace", created_meanwhile)
    body = json.dumps(
        {**KIND, "metadata": {"name": "mine"}, "spec": whole["spec"]}
    ).encode()
    path, kind = (
        (MINE.rpartition("/")[0], bodies.JSON)
        if method == "POST"
        else (f"{MINE}?{query}", bodies.APPLY)
    )
    status, answer = await fleet.ask(
        method, path, "ann", body, **{"Content-Type": kind}
    )
    assert status in codes, answer
    if method == "POST":
        assert json.loads(answer)["reason"] == "AlreadyExists"


async def test_an_unchanged_apply_of_a_stale_version_is_a_conflict(
    fleet: Fleet,
) -> None:
    config = {**KIND, "metadata": {"name": "mine", "labels": {"a": "1"}}}
    await write(fleet, config, bodies.APPLY)
    version = fleet.plane.trees[KEY]["metadata"]["resourceVersion"]
    await write(fleet, {"metadata": {"labels": {"b": "1"}}})
    named = {
        **KIND,
        "metadata": {"name": "mine", "labels": {"a": "1"}, "resourceVersion": version},
    }
    status, answer = await write(fleet, named, bodies.APPLY)
    assert (status, answer["reason"]) == (409, "Conflict")
    assert (await write(fleet, config, bodies.APPLY))[0] == 200


def change_status(fleet: Fleet) -> str:
    """Change the status like a workflow whose replicas become Ready; return the old
    version.
    """
    tree = fleet.plane.trees[KEY]
    version = tree["metadata"]["resourceVersion"]
    fleet.plane.changed.setdefault(KEY, int(version))
    fleet.plane.trees[KEY] = {
        **tree,
        "metadata": {**tree["metadata"], "resourceVersion": str(int(version) + 1)},
    }
    return str(version)


NAMES_VERSION = {
    "PUT of a Scale": ("PUT", "/scale?", bodies.JSON, {"spec": {"replicas": 3}}),
    "patch of a Scale": ("PATCH", "/scale?", bodies.MERGE, {"spec": {"replicas": 3}}),
    "dry PUT of a Scale": (
        "PUT",
        "/scale?dryRun=All",
        bodies.JSON,
        {"spec": {"replicas": 3}},
    ),
    "dry patch": ("PATCH", "?dryRun=All", bodies.MERGE, {"spec": {"replicas": 3}}),
    "dry apply": (
        "PATCH",
        "?dryRun=All&fieldManager=m&force=true",
        bodies.APPLY,
        {**KIND, "spec": {"replicas": 3}},
    ),
    "patch": ("PATCH", "?", bodies.MERGE, {"spec": {"replicas": 3}}),
}


@pytest.mark.parametrize(
    ("method", "path", "kind", "body"), NAMES_VERSION.values(), ids=NAMES_VERSION
)
async def test_a_named_version_conflicts_with_manifest_but_not_status_changes(
    fleet: Fleet, method: str, path: str, kind: str, body: Tree
) -> None:
    async def write_at(version: str) -> int:
        named = json.dumps(
            {**body, "metadata": {"name": "mine", "resourceVersion": version}}
        ).encode()
        return (
            await fleet.ask(
                method, f"{MINE}{path}", "ann", named, **{"Content-Type": kind}
            )
        )[0]

    change_status(fleet)
    version = change_status(fleet)
    assert await write_at(str(int(version) + 2)) == 409, "it never was one"
    assert await write_at(version) == 200
    assert (await write(fleet, {"metadata": {"labels": {"b": "1"}}}))[0] == 200
    assert await write_at(version) == 409


async def test_workers_of_earlier_releases_do_not_report_manifest_versions(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe = fleet.plane.describe

    async def silent(target: Target) -> Tree:
        return {
            field: value
            for field, value in (await describe(target)).items()
            if field != "manifestVersion"
        }

    monkeypatch.setattr(fleet.plane, "describe", silent)
    named = {
        "metadata": {"name": "mine", "resourceVersion": change_status(fleet)},
        "spec": {"replicas": 3},
    }
    assert (await fleet.ask("PUT", f"{MINE}/scale", "ann", json.dumps(named).encode()))[
        0
    ] == 409
