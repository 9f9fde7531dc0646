"""Single writes: the message that is sent, early rejections, and the answer."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types.messages.entities import Delete, Replace
from fleet_client.errors import CommandFailed, NoAnswer, WriteConflict
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import Target
from fleet_client.requests import Requested
from front.serving.writes import object_workflows, turns
from front.store.projection import ObjectKey, Tree
from tests.api_types.builders import a_cluster
from tests.front.fleet_of_tenants import START, Fleet, a_fleet

COLLECTION = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments"
PATH = f"{COLLECTION}/mine"
KNOWN = ObjectKey("ModelDeployment", "a", "mine")
MERGE, APPLY = (
    {"Content-Type": "application/merge-patch+json"},
    {"Content-Type": "application/apply-patch+yaml"},
)
LABELLED = json.dumps({"metadata": {"labels": {"w": "x"}}}).encode()


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


# Deletions


@pytest.mark.parametrize(
    ("preconditions", "code"),
    [
        ({"uid": "another"}, 409),
        ({"resourceVersion": "1"}, 409),
        ({"uid": "a-mine", "resourceVersion": str(START + 1)}, 200),
        ({"uid": None, "resourceVersion": ""}, 200),
    ],
    ids=["another object", "an older state", "this one", "none"],
)
async def test_deletions_respect_preconditions(
    fleet: Fleet, preconditions: Tree, code: int
) -> None:
    status, told = await fleet.ask(
        "DELETE", PATH, "ann", json.dumps({"preconditions": preconditions}).encode()
    )
    assert (status, "deletionTimestamp" in fleet.plane.trees[KNOWN]["metadata"]) == (
        code,
        code == 200,
    ), told


@pytest.mark.parametrize(
    "options",
    [{"propagationPolicy": "Orphan"}, {"orphanDependents": True}],
    ids=["policy", "of before"],
)
async def test_orphaning_dependents_is_rejected(fleet: Fleet, options: Tree) -> None:
    assert (await fleet.ask("DELETE", PATH, "ann", json.dumps(options).encode()))[
        0
    ] == 400
    assert fleet.plane.by == []


async def test_a_deletion_is_sent_once_for_the_object_that_was_read(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, signal = list[Delete](), fleet.plane.signal

    async def noted(target: Target, kind: Any, message: Delete) -> None:
        sent.append(message)
        await signal(target, kind, message)

    monkeypatch.setattr(fleet.plane, "signal", noted)
    assert [(await fleet.ask("DELETE", PATH))[0] for _ in range(2)] == [200, 200]
    assert [message.uid for message in sent] == ["a-mine"]


async def test_deleting_an_object_that_is_already_gone_succeeds(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def gone(target: Target, *_: Any) -> None:
        raise not_found(target)

    monkeypatch.setattr(fleet.plane, "signal", gone)
    status, told = await fleet.ask("DELETE", PATH)
    assert (status, json.loads(told)["kind"], json.loads(told)["status"]) == (
        200,
        "Status",
        "Success",
    )


@pytest.mark.parametrize(
    ("method", "headers"),
    [("PATCH", MERGE), ("PUT", {}), ("PATCH", APPLY)],
    ids=["patch", "update", "apply"],
)
async def test_a_write_for_another_object_of_the_name_is_rejected(
    fleet: Fleet, method: str, headers: dict[str, str]
) -> None:
    """The uid of an update is a precondition; others would change it."""
    tree = fleet.plane.trees[KNOWN]
    body = json.dumps(
        {**tree, "metadata": {"name": "mine", "uid": "another", "labels": {"w": "x"}}}
    ).encode()
    status, told = await fleet.ask(
        method, f"{PATH}?fieldManager=m", "ann", body, **headers
    )
    expected = (409, "Conflict") if method == "PUT" else (422, "Invalid")
    assert (status, json.loads(told)["reason"]) == expected
    assert fleet.plane.trees[KNOWN] == tree


async def test_deleting_a_collection_deletes_only_listed_objects(fleet: Fleet) -> None:
    tree = fleet.plane.trees[KNOWN]
    for name in ("gone", "replaced"):
        listed = {**tree, "metadata": {**tree["metadata"], "name": name, "uid": name}}
        fleet.projection.put(KNOWN._replace(name=name), listed)
    # Another object has the name since the listing.
    fleet.plane.trees[KNOWN._replace(name="replaced")] = {
        **listed,
        "metadata": {**listed["metadata"], "uid": "another"},
    }
    assert (await fleet.ask("DELETE", COLLECTION))[0] == 200
    assert {
        name: "deletionTimestamp" in tree["metadata"]
        for (kind, namespace, name), tree in fleet.plane.trees.items()
        if (kind, namespace) == (KNOWN.kind, "a")
    } == {"mine": True, "replaced": False}


@pytest.mark.parametrize(
    ("query", "options", "code"),
    [
        ("?dryRun=All", {}, 200),
        ("", {"dryRun": ["All"]}, 200),
        ("?dryRun=All&dryRun=All", {}, 200),
    ],
    ids=["in the query", "in the body", "twice"],
)
async def test_a_dry_run_of_a_deletion_deletes_nothing(
    fleet: Fleet, query: str, options: Tree, code: int
) -> None:
    assert (
        await fleet.ask("DELETE", PATH + query, "ann", json.dumps(options).encode())
    )[0] == code
    assert fleet.plane.by == []


# Scales


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        ({"uid": "another"}, (409, "Conflict")),
        ({"name": "another"}, (400, "BadRequest")),
        ({"namespace": "another"}, (409, "Conflict")),
    ],
    ids=str,
)
async def test_the_scale_of_another_object_is_rejected(
    fleet: Fleet, metadata: Tree, expected: tuple[int, str]
) -> None:
    body = json.dumps({"metadata": metadata, "spec": {"replicas": 4}}).encode()
    status, told = await fleet.ask("PUT", f"{PATH}/scale", "ann", body)
    assert (status, json.loads(told)["reason"], fleet.plane.by) == (*expected, [])


@pytest.mark.parametrize(
    ("method", "headers"), [("PUT", {}), ("PATCH", MERGE)], ids=["PUT", "PATCH"]
)
async def test_a_dry_run_of_a_scale_scales_nothing(
    fleet: Fleet, method: str, headers: dict[str, str]
) -> None:
    body = json.dumps({"metadata": {}, "spec": {"replicas": 4}}).encode()
    status, told = await fleet.ask(
        method, f"{PATH}/scale?dryRun=All", "ann", body, **headers
    )
    assert (status, json.loads(told)["spec"], fleet.plane.by) == (
        200,
        {"replicas": 4},
        [],
    )


async def test_a_scale_that_no_worker_carries_out_is_not_reported_as_done(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waited(_: Any, target: Target, request_id: str) -> Requested:
        return Requested(target, request_id)

    monkeypatch.setattr(object_workflows, "until_applied", waited)
    body = json.dumps({"metadata": {}, "spec": {"replicas": 4}}).encode()
    status, told, headers = await fleet.answer("PUT", f"{PATH}/scale", "ann", body)
    assert (
        status,
        "no worker has carried it out yet" in json.loads(told)["message"],
        "Retry-After" in headers,
    ) == (503, True, False)


@pytest.mark.parametrize("is_replaced", [False, True])
async def test_a_scale_is_visible_at_once_and_displaces_no_newer_object(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, is_replaced: bool
) -> None:
    signal, tree = fleet.plane.signal, fleet.plane.trees[KNOWN]

    async def overtaken(target: Target, kind: Any, message: Any) -> None:
        await signal(target, kind, message)
        if is_replaced:
            fleet.projection.put(
                KNOWN,
                {
                    **tree,
                    "metadata": {
                        **tree["metadata"],
                        "uid": "another",
                        "resourceVersion": str(START + 9),
                    },
                },
            )

    monkeypatch.setattr(fleet.plane, "signal", overtaken)
    assert (
        await fleet.ask(
            "PATCH", f"{PATH}/scale", "ann", b'{"spec":{"replicas":4}}', **MERGE
        )
    )[0] == 200
    stored = fleet.projection.get(KNOWN)
    assert stored
    assert (stored.uid, stored.tree["spec"]["replicas"]) == (
        ("another", 2) if is_replaced else ("a-mine", 4)
    )


async def test_a_scale_of_the_current_state_needs_one_query(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, signal = list[int](), fleet.plane.signal

    async def noted(target: Target, kind: Any, message: Any) -> None:
        asked.append(len(fleet.plane.touched))
        await signal(target, kind, message)

    monkeypatch.setattr(fleet.plane, "signal", noted)
    fleet.plane.touched.clear()
    assert (
        await fleet.ask(
            "PATCH", f"{PATH}/scale", "ann", b'{"spec":{"replicas":4}}', **MERGE
        )
    )[0] == 200
    assert asked == [1]


async def test_a_scale_has_the_selector_of_the_replicas(fleet: Fleet) -> None:
    tree = fleet.plane.trees[KNOWN]
    status = {"replicas": {"total": 2}, "selector": "modelplane.ai/deployment=mine"}
    fleet.projection.put(KNOWN, {**tree, "status": status})
    _, body = await fleet.ask("GET", f"{PATH}/scale", "ann")
    assert json.loads(body)["status"] == {
        "replicas": 2,
        "selector": "modelplane.ai/deployment=mine",
    }


# Other writes


async def test_finishing_a_creation_needs_the_right_to_create(fleet: Fleet) -> None:
    tree = fleet.plane.trees[KNOWN]
    kept = {
        field: value
        for field, value in tree["metadata"].items()
        if field not in ("generation", "labels")
    }
    fleet.plane.trees[KNOWN] = {**tree, "metadata": kept, "spec": {}}
    body = json.dumps(
        {
            "apiVersion": tree["apiVersion"],
            "kind": tree["kind"],
            "metadata": {"name": "mine"},
            "spec": tree["spec"],
        }
    ).encode()
    rules = (fleet.folder / "access.yaml").read_text()
    (fleet.folder / "access.yaml").write_text(
        rules.replace('events"]\n  verbs: ["*"]', 'events"]\n  verbs: [patch]')
    )
    assert (await fleet.ask("PATCH", f"{PATH}?fieldManager=m", "ann", body, **APPLY))[
        0
    ] == 403
    (fleet.folder / "access.yaml").write_text(rules + "# as before\n")
    assert (await fleet.ask("PATCH", f"{PATH}?fieldManager=m", "ann", body, **APPLY))[
        0
    ] == 201


@pytest.mark.parametrize("query", ["", "?dryRun=All"], ids=["written", "tried"])
async def test_immutable_changes_are_rejected_before_anything_is_sent(
    fleet: Fleet, query: str
) -> None:
    key, path = (
        ObjectKey("InferenceCluster", "", "mine"),
        "/apis/modelplane.ai/v1alpha1/inferenceclusters/mine",
    )
    before = a_cluster(source="GKE")
    metadata = {**fleet.plane.trees[key]["metadata"], "resourceVersion": str(START + 9)}
    fleet.plane.trees[key] = {**before, "metadata": metadata, "status": {}}
    fleet.projection.put(key, fleet.plane.trees[key])
    body = json.dumps(
        {**a_cluster(source="EKS"), "metadata": {"name": "mine"}}
    ).encode()
    status, told = await fleet.ask("PUT", path + query, "root", body)
    assert (status, fleet.plane.by) == (422, [])
    assert "cannot change from GKE to EKS" in json.loads(told)["message"]


async def test_a_write_is_not_repeated_for_ever(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stale(_target: Target, _message: Replace, *, create: bool) -> Tree:
        raise WriteConflict(
            "it was modified", next_step="read it again" if not create else ""
        )

    monkeypatch.setattr(fleet.plane, "replace", stale)
    monkeypatch.setattr(turns, "_REPEATED_SECONDS", 0.1)
    status, told = await fleet.ask("PATCH", PATH, "ann", LABELLED, **MERGE)
    assert (status, json.loads(told)["reason"]) == (409, "Conflict")


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (NoAnswer("x", next_step="x"), "no worker answers"),
        (CommandFailed("x", next_step="x"), "Temporal does not answer"),
    ],
    ids=["no worker", "no Temporal"],
)
async def test_the_error_of_a_write_tells_who_does_not_answer(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, failure: CommandFailed, told: str
) -> None:
    async def silent(_: Target) -> Tree:
        raise failure

    monkeypatch.setattr(fleet.plane, "describe", silent)
    status, answer = await fleet.ask(
        "PATCH", f"{PATH}/scale", "ann", b'{"spec":{"replicas":4}}', **MERGE
    )
    assert (status, json.loads(answer)["message"]) == (503, told)
