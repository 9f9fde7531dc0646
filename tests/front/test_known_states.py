"""Writes based on a stale state end as if the object had been queried first.

Another front changes the object in between.
"""

import json
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api_types.clock import timestamp, utc_now
from api_types.messages.entities import Replace
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import WriteConflict
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import deleting
from front.audit.log import AuditLog
from front.serving import bodies
from front.serving.writes import managers
from front.store.projection import ObjectKey, Tree, shown
from tests.front import fleet_of_tenants
from tests.front.fleet_of_tenants import (
    START,
    Fleet,
    TreesOfTenants,
    a_fleet,
    an_object,
)
from tests.random_cases import SEED, cases

MINE = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine"
KEY = ObjectKey("ModelDeployment", "a", "mine")
INFO, BEGUN = BY_KIND["ModelDeployment"], datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
LABEL = {"metadata": {"labels": {"w": "x"}}}


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


def lines_of(fleet: Fleet) -> list[Tree]:
    return [
        json.loads(text) for text in (fleet.folder / "audit").read_text().splitlines()
    ]


def change(
    fleet: Fleet,
    *,
    written: bool = True,
    later: int = 5,
    metadata: Tree | None = None,
    **fields: Any,
) -> Tree:
    """Change an object through another front.

    `written` means its labels, annotations or spec, not only its status.
    """
    tree = fleet.plane.trees[KEY]
    version = int(tree["metadata"]["resourceVersion"]) + later
    fleet.plane.changed.setdefault(KEY, int(tree["metadata"]["resourceVersion"]))
    if written:
        fleet.plane.changed[KEY] = version
    fleet.plane.trees[KEY] = {
        **tree,
        **fields,
        "metadata": {
            **tree["metadata"],
            **(metadata or {}),
            "resourceVersion": str(version),
        },
    }
    return fleet.plane.trees[KEY]


def scale(fleet: Fleet, count: int, at: str = "2099-01-01T00:00:00Z") -> None:
    """Set the count through another front, as an autoscaler does."""
    tree = fleet.plane.trees[KEY]
    last = {"lastScale": {"replicas": count, "by": "hpa", "at": at, "requestId": "1"}}
    change(
        fleet,
        written=count != tree["spec"]["replicas"],
        spec={**tree["spec"], "replicas": count},
        status=last,
    )


@pytest.mark.parametrize("method", ["PATCH", "PUT"])
async def test_a_deleted_object_is_not_found_and_nothing_is_sent(
    fleet: Fleet, method: str
) -> None:
    tree = shown(fleet.plane.trees.pop(KEY))
    body = LABEL if method == "PATCH" else {**tree, "metadata": {"name": "mine"}}
    status, told = await write(
        fleet, body, bodies.MERGE if method == "PATCH" else bodies.JSON, method=method
    )
    assert (status, told["reason"]) == (404, "NotFound")
    (line,) = lines_of(fleet)
    assert (
        line["code"],
        line.keys() & {"requestId", "before", "after", "changes"},
    ) == (404, set())


@pytest.mark.parametrize(("uid", "code"), [("", 200), ("a-mine", 422), ("new", 200)])
async def test_a_recreated_object_is_changed_unless_the_client_names_the_old_uid(
    fleet: Fleet, uid: str, code: int
) -> None:
    change(fleet, metadata={"uid": "new", "labels": {"born": "again"}, "generation": 1})
    meant = {"uid": uid} if uid else {}
    status, told = await write(fleet, {"metadata": {**LABEL["metadata"], **meant}})
    assert status == code
    if code == 200:
        assert (told["metadata"]["uid"], told["metadata"]["labels"]) == (
            "new",
            {"born": "again", "w": "x"},
        )
        stored = fleet.projection.get(KEY)
        assert stored
        assert stored.uid == "new"
    else:
        assert fleet.plane.trees[KEY]["metadata"]["labels"] == {"born": "again"}


async def test_an_object_with_a_requested_deletion_is_not_changed(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(fleet, written=False, metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"})

    async def refused(_target: Target, _message: Replace, *, create: bool) -> Tree:
        raise WriteConflict(
            "it is being deleted; apply it again when it is gone",
            next_step="wait" if not create else "",
        )

    monkeypatch.setattr(fleet.plane, "replace", refused)
    status, told = await write(fleet, LABEL)
    assert (status, "is being deleted" in told["message"]) == (409, True)
    stored = fleet.projection.get(KEY)
    assert stored


@pytest.mark.parametrize(
    ("patch", "count"),
    [(LABEL, 5), ({"spec": {"replicas": 2}}, 2), ({"spec": {"replicas": 3}}, 3)],
)
async def test_only_a_chosen_count_overrides_an_autoscalers_count(
    fleet: Fleet, patch: Tree, count: int
) -> None:
    scale(fleet, 5)
    status, told = await write(fleet, patch)
    assert (
        status,
        told["spec"]["replicas"],
        fleet.plane.trees[KEY]["spec"]["replicas"],
    ) == (200, count, count)


async def test_a_scaler_to_the_same_count_owns_it_after_another_write(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = utc_now()
    monkeypatch.setattr(managers, "utc_now", lambda: begun)
    config = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "mine"},
        "spec": {"replicas": 2},
    }
    assert (await write(fleet, config, bodies.APPLY))[0] == 200
    assert (await write(fleet, {"spec": {"replicas": 3}}))[0] == 200
    scale(fleet, 3, timestamp(begun + timedelta(seconds=10)))
    monkeypatch.setattr(managers, "utc_now", lambda: begun + timedelta(seconds=20))
    status, told = await write(fleet, LABEL)
    owns = {
        entry["manager"]
        for entry in told["metadata"]["managedFields"]
        if "f:replicas" in json.dumps(entry)
    }
    assert (status, owns) == (200, {"hpa"})


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ({"op": "test", "path": "/status/phase", "value": "Pending"}, 422),
        ({"op": "test", "path": "/status/phase", "value": "Ready"}, 200),
        ({"op": "test", "path": "/status", "value": {"phase": "Pending"}}, 422),
        (
            {"op": "copy", "from": "/status/phase", "path": "/metadata/labels/phase"},
            200,
        ),
        (
            {"op": "move", "from": "/status/phase", "path": "/metadata/labels/phase"},
            200,
        ),
    ],
)
async def test_a_patch_that_reads_the_status_uses_the_current_one(
    fleet: Fleet, operation: Tree, code: int
) -> None:
    change(fleet, written=False, status={"phase": "Pending"})
    fleet.projection.put(KEY, shown(fleet.plane.trees[KEY]))
    change(fleet, written=False, status={"phase": "Ready"})
    status, told = await write(
        fleet,
        [operation, {"op": "add", "path": "/metadata/labels/w", "value": "x"}],
        bodies.JSON_PATCH,
    )
    assert status == code
    if "from" in operation:
        assert told["metadata"]["labels"]["phase"] == "Ready"


async def test_the_audit_log_has_one_line_with_the_actual_change(
    fleet: Fleet,
) -> None:
    before = change(fleet, metadata={"labels": {"tier": "tin"}})
    status, told = await write(fleet, {"metadata": {"labels": {"tier": "iron"}}})
    (line,) = lines_of(fleet)
    assert (status, line["before"], line["after"]) == (
        200,
        before["metadata"]["resourceVersion"],
        told["metadata"]["resourceVersion"],
    )
    assert {"path": "metadata.labels.tier", "old": "tin", "new": "iron"} in line[
        "changes"
    ]


async def test_a_warning_is_returned_once(fleet: Fleet) -> None:
    change(fleet, metadata={"labels": {"tier": "tin"}})
    body = json.dumps({**LABEL, "nothing": 1}).encode()
    status, _, headers = await fleet.answer(
        "PATCH",
        f"{MINE}?fieldValidation=Warn",
        "ann",
        body,
        **{"Content-Type": bodies.MERGE},
    )
    assert (status, headers.getall("Warning")) == (  # type: ignore[attr-defined]
        200,
        ['299 - "unknown field \\"nothing\\""'],
    )


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (bodies.MERGE, {"spec": {"template": {"spec": {"engines": None}}}}),
        (bodies.JSON_PATCH, [{"op": "remove", "path": "/spec/template"}]),
        (bodies.MERGE, {"metadata": {"labels": None}, "spec": {"crossplane": {}}}),
    ],
)
async def test_a_write_does_not_modify_the_known_object(
    fleet: Fleet, kind: str, body: Any
) -> None:
    stored = fleet.projection.get(KEY)
    assert stored
    held = json.dumps(stored.tree)
    await write(fleet, body, kind)
    assert json.dumps(stored.tree) == held


# Any order of changes

SEQUENCES, STEPS = 12, 14


def elsewhere(fleet: Fleet, step: int, choose: random.Random) -> None:
    """Change, scale, delete or recreate the object through another front.

    This front learns of the changes from time to time.
    """
    tree = fleet.plane.trees.get(KEY)
    what = choose.choice(
        ["status", "labels", "scale", "deletion", "end", "new", "told"]
    )
    if tree is None:
        fleet.plane.trees[KEY] = {
            **an_object(INFO, "a", "mine", START + 1000 * step),
            "status": {},
        }
        fleet.plane.trees[KEY]["metadata"]["uid"] = f"uid-{step}"
        fleet.plane.changed[KEY] = START + 1000 * step
    elif what == "told":
        fleet.projection.put(KEY, shown(tree))
    elif what == "status":
        change(
            fleet, written=False, status={"phase": choose.choice(["Pending", "Ready"])}
        )
    elif what == "labels":
        change(
            fleet,
            metadata={
                "labels": {"tier": choose.choice(["tin", "gold"]), f"e{step}": "x"}
            },
        )
    elif what == "scale":
        scale(
            fleet,
            choose.choice([2, 5]),
            timestamp(BEGUN + timedelta(seconds=10 * step + 5)),
        )
    elif what == "deletion":
        change(fleet, written=False, metadata={"deletionTimestamp": timestamp(BEGUN)})
    elif what == "end":
        del fleet.plane.trees[KEY]
    else:
        change(
            fleet,
            later=1000,
            metadata={"uid": f"uid-{step}", "labels": {}, "annotations": {}},
        )


def drawn(step: int, choose: random.Random) -> tuple[str, Any, str]:
    """Draw a write: its method, body and media type."""
    count, label = (
        {"spec": {"replicas": choose.choice([2, 3, 5])}},
        {"metadata": {"labels": {f"w{step}": "x"}}},
    )
    tests = [
        {"op": "test", "path": path, "value": value}
        for path, value in (
            ("/metadata/labels/tier", "gold"),
            ("/status/phase", "Ready"),
        )
    ]
    named = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelDeployment",
        "metadata": {"name": "mine", **label["metadata"]},
    }
    whole = {
        **named,
        "spec": {
            **an_object(INFO, "a", "mine", START)["spec"],
            **choose.choice([{}, count["spec"]]),
        },
    }
    return choose.choice(
        [
            ("PATCH", label, bodies.MERGE),
            ("PATCH", count, bodies.MERGE),
            (
                "PATCH",
                {"metadata": {**label["metadata"], "uid": "a-mine"}},
                bodies.MERGE,
            ),
            (
                "PATCH",
                [
                    choose.choice(tests),
                    {"op": "add", "path": f"/metadata/labels/w{step}", "value": "x"},
                ],
                bodies.JSON_PATCH,
            ),
            ("PATCH", {**named, **choose.choice([{}, count])}, bodies.APPLY),
            ("PUT", whole, bodies.JSON),
        ]
    )


class Refusing(TreesOfTenants):
    """Workflows reject changes while they are being deleted."""

    async def replace(self, target: Target, message: Replace, *, create: bool) -> Tree:
        present = self.trees.get((target.kind.kind, target.namespace, target.name))
        if present and deleting(present):
            raise WriteConflict(
                "it is being deleted; apply it again when it is gone", next_step="wait"
            )
        return await super().replace(target, message, create=create)


@pytest.mark.slow
@pytest.mark.random
async def test_each_write_ends_as_if_the_object_had_been_queried_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_of_tenants, "TreesOfTenants", Refusing)
    assert (
        sum(
            [
                await spared_queries(tmp_path, monkeypatch, f"{SEED} {number}")
                for number in range(cases(SEQUENCES))
            ]
        )
        > 0
    )


async def spared_queries(
    folder: Path, monkeypatch: pytest.MonkeyPatch, seed: str
) -> int:
    """Make the same changes and writes at two fronts, of which one always queries
    first.

    Returns the number of queries that this saves.
    """
    async with a_fleet(folder) as fleet, a_fleet(folder) as asking:
        monkeypatch.setattr(asking.front.workflows, "known", lambda _resource: None)
        for step in range(1, STEPS):
            monkeypatch.setattr(
                managers,
                "utc_now",
                lambda step=step: BEGUN + timedelta(seconds=10 * step),
            )
            told = list[Any]()
            for each in (fleet, asking):
                choose = random.Random(f"{seed} {step}")  # noqa: S311 - repeatable on purpose
                for _ in range(choose.randrange(3)):
                    elsewhere(each, step, choose)
                method, body, kind = drawn(step, choose)
                query = f"fieldManager=m{step % 3}" + (
                    "&force=true" if kind == bodies.APPLY else ""
                )
                told.append(
                    (
                        *await write(each, body, kind, query, method),
                        each.plane.trees.get(KEY),
                    )
                )
            if told[0] != told[1]:
                # Not an assertion, because comparing such trees for a report takes
                # minutes.
                pytest.fail(
                    f"{seed}, step {step}: {method} {body} as {kind}: {told[0][0]} "
                    f"and {told[1][0]}, or other objects"
                )
    return len(asking.plane.touched) - len(fleet.plane.touched)
