"""Requests with field managers, without Temporal: answers, rights, and stored objects."""

import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from api_types import labels
from api_types.clock import utc_now
from api_types.messages.entities import Replace
from fleet_client.errors import WriteConflict
from fleet_client.refs.targets import Target
from front.audit.log import AuditLog
from front.serving import bodies
from front.serving.writes import managers as managers_of_requests
from front.store.projection import ObjectKey, Tree
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.harness import a_deployment

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/{}/modeldeployments/{}"
MINE, NEW = PATH.format("a", "mine"), PATH.format("a", "new")
KIND: Tree = {
    "apiVersion": "modelplane.ai/v1alpha1",
    "kind": "ModelDeployment",
    "metadata": {},
}


YAML_KIND = b"apiVersion: modelplane.ai/v1alpha1\nkind: ModelDeployment\n"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


def identified(path: str, body: Tree) -> Tree:
    """Return a configuration with the kind and name of its path, unless it has others."""
    metadata = body.get("metadata", {})
    if isinstance(metadata, dict):
        metadata = {"name": path.partition("?")[0].rpartition("/")[2], **metadata}
    return {**KIND, **body, "metadata": metadata}


async def ask(
    fleet: Fleet,
    method: str,
    path: str,
    body: Any,
    kind: str = bodies.APPLY,
    **headers: str,
) -> tuple[int, Tree]:
    if isinstance(body, dict) and kind == bodies.APPLY:
        body = identified(path, body)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    status, answer = await fleet.ask(
        method, path, "ann", data, **{"Content-Type": kind, **headers}
    )
    return status, json.loads(answer)


async def apply(
    fleet: Fleet,
    path: str,
    body: Any,
    manager: str = "m",
    *,
    force: bool = False,
    more: str = "",
) -> tuple[int, Tree]:
    return await ask(
        fleet,
        "PATCH",
        f"{path}?fieldManager={manager}&force={str(force).lower()}{more}",
        body,
    )


def document(name: str, **metadata: Any) -> Tree:
    tree = a_deployment(name, "a")
    tree["metadata"] |= metadata
    return tree


def stored(fleet: Fleet, name: str) -> Tree:
    return fleet.plane.trees[ObjectKey("ModelDeployment", "a", name)]


def managers(tree: Tree) -> list[tuple[str, str]]:
    return [
        (entry["manager"], entry["operation"])
        for entry in tree["metadata"].get("managedFields", ())
    ]


async def test_an_apply_creates_then_changes(fleet: Fleet) -> None:
    status, tree = await apply(fleet, NEW, document("new"), more="&dryRun=All")
    assert (status, managers(tree)) == (201, [("m", "Apply")])
    assert ObjectKey("ModelDeployment", "a", "new") not in fleet.plane.trees
    status, tree = await apply(fleet, NEW, document("new"))
    assert (status, managers(tree)) == (201, [("m", "Apply")])
    assert labels.MANAGED_FIELDS in stored(fleet, "new")["metadata"]["annotations"]
    before = stored(fleet, "new")
    assert (await apply(fleet, NEW, document("new")))[0] == 200
    assert stored(fleet, "new") is before
    # YAML and JSON are treated alike.
    status, tree = await ask(
        fleet,
        "PATCH",
        f"{NEW}?fieldManager=y",
        YAML_KIND + b"metadata: {name: new, labels: {a: b}}",
    )
    assert (status, tree["metadata"]["labels"], managers(tree)) == (
        200,
        {"a": "b"},
        [("m", "Apply"), ("y", "Apply")],
    )
    for path in (NEW, NEW.rpartition("/")[0]):
        _, seen = await fleet.ask("GET", path)
        assert labels.MANAGED_FIELDS.encode() not in seen
        assert b'"managedFields"' in seen


async def test_fields_before_the_first_apply_belong_to_others(
    fleet: Fleet,
) -> None:
    fleet.plane.touched.clear()
    status, tree = await apply(fleet, MINE, {**KIND, "spec": {"replicas": 5}})
    # Reading the object again would not help.
    assert len(fleet.plane.touched) == 1
    assert (status, tree["reason"], tree["details"]["causes"]) == (
        409,
        "Conflict",
        [
            {
                "reason": "FieldManagerConflict",
                "message": 'conflict with "before-first-apply" using modelplane.ai/v1alpha1',
                "field": ".spec.replicas",
            }
        ],
    )
    status, tree = await apply(
        fleet, MINE, {**KIND, "spec": {"replicas": 5}}, force=True
    )
    assert (status, tree["spec"]["replicas"], managers(tree)) == (
        200,
        5,
        [("m", "Apply"), ("before-first-apply", "Update")],
    )


async def test_other_writes_are_tracked_after_the_first_apply(fleet: Fleet) -> None:
    label = {"metadata": {"labels": {"x": "1"}}}
    _, tree = await ask(fleet, "PATCH", MINE, label, bodies.MERGE)
    assert managers(tree) == []
    await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"y": "1"}}})
    _, tree = await ask(
        fleet,
        "PATCH",
        MINE,
        {"metadata": {"labels": {"x": "2"}}},
        bodies.MERGE,
        **{"User-Agent": "kubectl/v1 (linux)"},
    )
    assert managers(tree) == [
        ("m", "Apply"),
        ("before-first-apply", "Update"),
        ("kubectl", "Update"),
    ]
    _, tree = await ask(
        fleet,
        "PUT",
        f"{MINE}?fieldManager=ed",
        {**tree, "spec": {**tree["spec"], "replicas": 7}},
        "application/json",
    )
    assert ("ed", "Update") in managers(tree)
    # A client without support for managers loses none of them.
    without: Tree
    for without in (
        {},
        {"managedFields": []},
        {"managedFields": "x"},
        {"managedFields": [{"manager": "x"}]},
    ):
        metadata = {
            key: value
            for key, value in tree["metadata"].items()
            if key not in ("managedFields", "resourceVersion")
        } | without
        _, after = await ask(
            fleet,
            "PUT",
            f"{MINE}?fieldManager=ed",
            {**tree, "metadata": metadata},
            "application/json",
        )
        assert managers(after) == managers(tree)
    _, tree = await ask(
        fleet, "PATCH", MINE, {"metadata": {"managedFields": [{}]}}, bodies.MERGE
    )
    assert managers(tree) == []
    assert labels.MANAGED_FIELDS not in stored(fleet, "mine")["metadata"].get(
        "annotations", {}
    )


async def test_users_cannot_write_the_annotation(fleet: Fleet) -> None:
    mine = {"annotations": {labels.MANAGED_FIELDS: "mine", "a": "b"}}
    for method, path, kind in (
        ("POST", NEW.rpartition("/")[0], "application/json"),
        ("PATCH", f"{NEW}?fieldManager=m", bodies.APPLY),
    ):
        _, tree = await ask(fleet, method, path, document("new", **mine), kind)
        assert labels.MANAGED_FIELDS not in json.dumps(tree)
        assert (
            stored(fleet, "new")["metadata"]["annotations"].get(labels.MANAGED_FIELDS)
            != "mine"
        )
        await ask(fleet, "PATCH", NEW, {"metadata": mine}, bodies.MERGE)
        assert (
            stored(fleet, "new")["metadata"]["annotations"].get(labels.MANAGED_FIELDS)
            != "mine"
        )
        assert stored(fleet, "new")["metadata"]["annotations"]["a"] == "b"


@pytest.mark.parametrize(
    ("query", "kind", "told"),
    [
        (
            "",
            bodies.APPLY,
            (
                'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: '
                "is required for apply patch"
            ),
        ),
        (
            "?force=true",
            bodies.MERGE,
            (
                'PatchOptions.meta.k8s.io "" is invalid: force: Forbidden: may not be '
                "specified for non-apply patch"
            ),
        ),
        (
            f"?fieldManager={'x' * 129}",
            bodies.APPLY,
            "fieldManager: Too long: may not be more than 128 bytes",
        ),
        (
            "?fieldManager=%00",
            bodies.MERGE,
            "fieldManager: Invalid value: should only contain printable characters",
        ),
    ],
)
async def test_parameters_are_validated(
    fleet: Fleet, query: str, kind: str, told: str
) -> None:
    status, answer = await ask(fleet, "PATCH", MINE + query, {}, kind)
    assert (status, answer["reason"]) == (422, "Invalid")
    assert told in answer["message"]


@pytest.mark.parametrize(
    ("body", "code", "told"),
    [
        (
            {"metadata": {"managedFields": []}},
            400,
            "metadata.managedFields must be nil",
        ),
        ({"metadata": {"name": "other"}}, 400, "does not match the name on the URL"),
        ({"metadata": {"namespace": "b"}}, 400, "does not match the namespace"),
        (
            {"metadata": {}, "kind": "ModelService"},
            400,
            "invalid object type: 'ModelService'; the path is for ModelDeployment",
        ),
        (
            {"metadata": {}, "apiVersion": "modelplane.ai/v2"},
            400,
            "does not match the expected API version (modelplane.ai/v1alpha1)",
        ),
        ({"metadata": "x"}, 400, "metadata: must be an object"),
        ([], 400, "the body must be an object"),
        (
            YAML_KIND + b"metadata: {name: mine}\nspec: {1: 2}",
            400,
            "key 1 is not a string",
        ),
        (
            {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2}},
            409,
            "it was modified since you read it",
        ),
        (
            {"metadata": {"uid": "x"}, "spec": {"replicas": 2}},
            422,
            "metadata.uid: Invalid value",
        ),
        ({"metadata": {}, "spec": {"replicas": "x"}}, 422, "spec.replicas"),
        ({"metadata": {}, "spec": "x"}, 422, "spec"),
        ({"metadata": {"labels": "x", "annotations": ["y"]}}, 422, "metadata"),
        ({"metadata": {}, "spec": {"unknown": 1}}, 422, "unknown"),
        (
            {"metadata": {"labels": {f"{number:0>60}": "x" for number in range(300)}}},
            422,
            "the limit is 16384",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_an_invalid_configuration_changes_nothing(
    fleet: Fleet, body: Any, code: int, told: str
) -> None:
    before = stored(fleet, "mine")
    status, answer = await apply(fleet, MINE, body, force=True)
    assert (status, answer["kind"]) == (code, "Status")
    assert told in answer["message"]
    assert stored(fleet, "mine") is before


async def test_a_missing_object_matches_no_uid_and_no_version(
    fleet: Fleet,
) -> None:
    assert (await apply(fleet, NEW, document("new", uid="x")))[0] == 409
    assert (await apply(fleet, NEW, document("new", resourceVersion="1")))[0] == 400
    assert ObjectKey("ModelDeployment", "a", "new") not in fleet.plane.trees


async def test_a_scale_cannot_be_applied(fleet: Fleet) -> None:
    status, _ = await apply(fleet, f"{MINE}/scale", {"spec": {"replicas": 1}})
    assert status == 415


async def test_creating_needs_the_right_to_create(fleet: Fleet) -> None:
    rules = (fleet.folder / "access.yaml").read_text()
    (fleet.folder / "access.yaml").write_text(
        rules.replace('events"]\n  verbs: ["*"]', 'events"]\n  verbs: [patch]')
    )
    status, answer = await apply(fleet, NEW, document("new"))
    assert status == 403
    assert 'cannot create resource "modeldeployments"' in answer["message"]
    assert (await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"a": "b"}}}))[
        0
    ] == 200


@pytest.mark.parametrize("named", [False, True])
async def test_a_write_is_repeated_if_the_object_changed_meanwhile(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, named: bool
) -> None:
    await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"a": "1"}}})
    replace, versions = fleet.plane.replace, list[str]()

    async def changed_meanwhile(
        target: Target, message: Replace, *, create: bool
    ) -> Tree:
        versions.append(message.resource_version)
        if len(versions) == 1:
            raise WriteConflict("it was modified", next_step="read it again")
        return await replace(target, message, create=create)

    monkeypatch.setattr(fleet.plane, "replace", changed_meanwhile)
    version = (
        {"resourceVersion": stored(fleet, "mine")["metadata"]["resourceVersion"]}
        if named
        else {}
    )
    config = {**KIND, "metadata": {"labels": {"a": "2"}, **version}}
    document = {
        **stored(fleet, "mine"),
        "metadata": {"name": "mine", "labels": {"a": "3"}, **version},
    }
    for method, body, kind in (
        ("PATCH", config, bodies.APPLY),
        ("PUT", document, "application/json"),
    ):
        versions.clear()
        status, answer = await ask(fleet, method, f"{MINE}?fieldManager=m", body, kind)
        assert (status, len(versions)) == ((409, 1) if named else (200, 2)), answer
        assert all(versions)


async def test_kubectl_takes_over_fields_of_its_client_side_apply(fleet: Fleet) -> None:
    last = {
        **KIND,
        "metadata": {"labels": {"a": "1"}},
        "spec": a_deployment("mine", "a", replicas=2)["spec"],
    }
    metadata = {
        "labels": {"a": "1"},
        "annotations": {labels.LAST_APPLIED: json.dumps(last)},
    }
    await ask(
        fleet,
        "PATCH",
        MINE,
        {"metadata": metadata, "spec": {"replicas": 2}},
        bodies.MERGE,
    )
    config = {**KIND, "metadata": {"labels": {"a": "2"}}, "spec": {"replicas": 4}}
    assert (await apply(fleet, MINE, config))[0] == 409
    status, tree = await apply(fleet, MINE, config, "kubectl")
    assert (status, tree["spec"]["replicas"], tree["metadata"]["labels"]["a"]) == (
        200,
        4,
        "2",
    )
    told = json.loads(tree["metadata"]["annotations"][labels.LAST_APPLIED])
    assert told["spec"] == config["spec"]
    # Changes by another manager since then are a conflict for kubectl too.
    await ask(
        fleet,
        "PATCH",
        f"{MINE}?fieldManager=ed",
        {"spec": {"replicas": 6}},
        bodies.MERGE,
    )
    assert (await apply(fleet, MINE, {**config, "spec": {"replicas": 8}}, "kubectl"))[
        0
    ] == 409


async def test_fields_of_a_client_side_apply_belong_to_kubectl(fleet: Fleet) -> None:
    spec = a_deployment("mine", "a", replicas=2)["spec"]
    last = json.dumps({**KIND, "metadata": {"labels": {"a": "1"}}, "spec": spec})
    metadata = {
        "labels": {"a": "1", "b": "2"},
        "annotations": {labels.LAST_APPLIED: last},
    }
    await ask(fleet, "PATCH", MINE, {"metadata": metadata}, bodies.MERGE)
    _, tree = await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"c": "3"}}})
    owned = {
        (entry["manager"], entry["operation"]): set(
            entry["fieldsV1"]["f:metadata"]["f:labels"]
        )
        for entry in tree["metadata"]["managedFields"]
    }
    assert owned == {
        ("m", "Apply"): {"f:c"},
        ("before-first-apply", "Update"): {".", "f:b", "f:tier"},
        ("kubectl-client-side-apply", "Update"): {"f:a"},
    }


async def test_an_unusable_kubectl_annotation_gives_kubectl_no_fields(
    fleet: Fleet,
) -> None:
    metadata = {
        "labels": {"b": "2"},
        "annotations": {labels.LAST_APPLIED: "unreadable"},
    }
    await ask(fleet, "PATCH", MINE, {"metadata": metadata}, bodies.MERGE)
    _, tree = await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"c": "3"}}})
    entries = {
        entry["manager"]: entry["fieldsV1"]
        for entry in tree["metadata"]["managedFields"]
    }
    own: Tree = {"f:annotations": {f"f:{labels.LAST_APPLIED}": {}}}
    assert entries["kubectl-client-side-apply"] == {"f:metadata": own}


async def test_several_conflicts_are_listed_by_manager(fleet: Fleet) -> None:
    await apply(
        fleet, MINE, {**KIND, "metadata": {"labels": {"a": "1", "b": "1"}}}, "one"
    )
    await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"c": "1"}}}, "two")
    wanted = {"a": "2", "b": "2", "c": "2"}
    status, answer = await apply(fleet, MINE, {**KIND, "metadata": {"labels": wanted}})
    assert (status, answer["message"].splitlines()) == (
        409,
        [
            'Apply failed with 3 conflicts: conflicts with "one":',
            "- .metadata.labels.a",
            "- .metadata.labels.b",
            'conflicts with "two":',
            "- .metadata.labels.c",
        ],
    )


async def test_a_forced_count_overrides_the_autoscalers_count(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    await apply(fleet, MINE, {**KIND, "spec": {"replicas": 2}})
    replace = fleet.plane.replace

    async def keeps_its_count(
        target: Target, message: Replace, *, create: bool
    ) -> Tree:
        spec = {**message.manifest["spec"], "replicas": 9}
        return await replace(
            target,
            message.model_copy(update={"manifest": {**message.manifest, "spec": spec}}),
            create=create,
        )

    monkeypatch.setattr(fleet.plane, "replace", keeps_its_count)
    status, tree = await apply(
        fleet, MINE, {**KIND, "spec": {"replicas": 3}}, force=True
    )
    assert (status, tree["spec"]["replicas"]) == (200, 3)
    assert managers(tree) == [("m", "Apply"), ("before-first-apply", "Update")]
    # A configuration without a count does not set it.
    status, tree = await apply(
        fleet, MINE, {**KIND, "metadata": {"labels": {"a": "b"}}}, "other"
    )
    assert (status, tree["spec"]["replicas"]) == (200, 9)


async def test_a_flat_deployment_is_owned_in_its_stored_form(fleet: Fleet) -> None:
    flat = document("new")
    flat["spec"] = {"replicas": 1, **flat["spec"]["template"]["spec"]}
    status, tree = await apply(fleet, NEW, flat)
    assert status == 201
    (entry,) = tree["metadata"]["managedFields"]
    assert set(entry["fieldsV1"]["f:spec"]) == {"f:replicas", "f:template"}
    assert (await apply(fleet, NEW, flat))[0] == 200


async def test_the_audit_log_has_changes_and_managers_without_their_fields(
    tmp_path: Path,
) -> None:
    file = tmp_path / "audit"
    async with a_fleet(tmp_path, audit_log=AuditLog(str(file))) as fleet:
        await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"a": "1"}}})
        await ask(
            fleet,
            "PATCH",
            f"{MINE}?fieldManager=m",
            {"metadata": {"labels": {"b": "1"}}},
            bodies.MERGE,
        )
        await ask(
            fleet, "PATCH", MINE, {"metadata": {"managedFields": [{}]}}, bodies.MERGE
        )
    lines = [json.loads(text) for text in file.read_text().splitlines()]
    assert {line["verb"] for line in lines} == {"patch"}
    assert {"path": "metadata.labels.a", "new": "1"} in lines[0]["changes"]
    others = {"path": "metadata.managedFields.before-first-apply"}
    managed = [
        [change for change in line["changes"] if "managed" in change["path"]]
        for line in lines
    ]
    assert managed == [
        [
            {**others, "new": "Update"},
            {"path": "metadata.managedFields.m", "new": "Apply"},
        ],
        [{"path": "metadata.managedFields.m", "old": "Apply", "new": "Apply, Update"}],
        [
            {**others, "old": "Update"},
            {"path": "metadata.managedFields.m", "old": "Apply, Update"},
        ],
    ]


async def test_a_dry_run_shows_removed_fields(fleet: Fleet) -> None:
    await apply(fleet, MINE, {**KIND, "metadata": {"labels": {"a": "1"}}})
    wanted: Tree = {"metadata": {"labels": None, "managedFields": [{}]}}
    _, tree = await ask(fleet, "PATCH", f"{MINE}?dryRun=All", wanted, bodies.MERGE)
    assert not {"labels", "managedFields"} & set(tree["metadata"])
    assert "labels" in stored(fleet, "mine")["metadata"]


async def test_fields_of_other_control_planes_have_no_owner(fleet: Fleet) -> None:
    status, tree = await apply(
        fleet,
        MINE,
        {
            **KIND,
            "spec": {"crossplane": {"compositionRef": {}}, "rollout": {"paused": True}},
        },
    )
    assert status == 200
    entry = next(
        entry for entry in tree["metadata"]["managedFields"] if entry["manager"] == "m"
    )
    assert entry["fieldsV1"] == {"f:spec": {"f:rollout": {"f:paused": {}}}}


async def test_the_time_of_a_manager_is_its_last_change(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**KIND, "metadata": {"labels": {"a": "1"}}}
    merge = (
        f"{MINE}?fieldManager=ed",
        {"metadata": {"labels": {"b": "1"}}},
        bodies.MERGE,
    )
    await apply(fleet, MINE, config)
    _, before = await ask(fleet, "PATCH", *merge)
    monkeypatch.setattr(
        managers_of_requests, "utc_now", lambda: utc_now() + timedelta(hours=1)
    )
    await ask(fleet, "PATCH", *merge)
    # Another manager's write does not change these times.
    await ask(
        fleet,
        "PATCH",
        f"{MINE}?fieldManager=eve",
        {"metadata": {"labels": {"c": "1"}}},
        bodies.MERGE,
    )
    _, after = await apply(fleet, MINE, config)
    times = [
        {entry["manager"]: entry["time"] for entry in tree["metadata"]["managedFields"]}
        for tree in (before, after)
    ]
    assert times[0] == {
        manager: time for manager, time in times[1].items() if manager != "eve"
    }
