"""Concurrent writes of one object are sent to Temporal one after the other."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from api_types.messages.entities import Replace
from fleet_client.errors import NoAnswer, Refused, WriteConflict
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import WRITE_WAIT
from front.serving import app
from front.serving.writes import turns
from front.store.projection import ObjectKey, Tree
from tests.front.fleet_of_tenants import Fleet, TreesOfTenants, a_fleet
from tests.workflows.environment.harness import eventually

PATH = "/apis/modelplane.ai/v1alpha1/namespaces/a/modeldeployments/mine"
SERVICE = "/apis/modelplane.ai/v1alpha1/namespaces/a/modelservices/mine"
MERGE, APPLY = (
    {"Content-Type": "application/merge-patch+json"},
    {"Content-Type": "application/apply-patch+yaml"},
)
WRITERS = 20


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with a_fleet(tmp_path) as fleet:
        yield fleet


class Asked:
    """The pending requests of each object, and their maximum."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.waiting: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.go = asyncio.Event()
        self.go.set()
        describe, replace = TreesOfTenants.describe, TreesOfTenants.replace

        async def described(plane: TreesOfTenants, target: Target) -> Tree:
            with self._counted(target):
                await self.go.wait()
                await asyncio.sleep(0)
                return await describe(plane, target)

        async def replaced(
            plane: TreesOfTenants, target: Target, message: Replace, *, create: bool
        ) -> Tree:
            await asyncio.sleep(0)
            return await replace(plane, target, message, create=create)

        monkeypatch.setattr(TreesOfTenants, "describe", described)
        monkeypatch.setattr(TreesOfTenants, "replace", replaced)

    @contextmanager
    def _counted(self, target: Target) -> Iterator[None]:
        name = target.workflow_id
        self.waiting[name] += 1
        self.most[name] = max(self.most[name], self.waiting[name])
        try:
            yield
        finally:
            self.waiting[name] -= 1


def requests_of(number: int) -> tuple[str, str, dict[str, Any], dict[str, str]]:
    """Return a way to write the object: method, path, body, headers."""
    ways: list[tuple[str, str, dict[str, Any], dict[str, str]]] = [
        ("PATCH", PATH, {"metadata": {"labels": {f"w{number}": "x"}}}, MERGE),
        ("PATCH", f"{PATH}/scale", {"spec": {"replicas": number}}, MERGE),
        ("PUT", f"{PATH}/scale", {"metadata": {}, "spec": {"replicas": number}}, {}),
        (
            "PATCH",
            f"{PATH}?fieldManager=m{number}",
            {
                "apiVersion": "modelplane.ai/v1alpha1",
                "kind": "ModelDeployment",
                "metadata": {"name": "mine", "labels": {f"w{number}": "x"}},
            },
            APPLY,
        ),
    ]
    return ways[number % len(ways)]


async def test_writes_of_one_object_take_turns_and_none_is_lost(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    monkeypatch.setattr(turns, "WAIT_SECONDS", 600.0)

    async def write(number: int) -> int:
        method, path, body, headers = requests_of(number)
        return (
            await fleet.ask(method, path, "ann", json.dumps(body).encode(), **headers)
        )[0]

    assert await asyncio.gather(*map(write, range(WRITERS))) == [200] * WRITERS
    tree = json.loads((await fleet.ask("GET", PATH))[1])
    assert {f"w{number}" for number in range(WRITERS) if number % 4 in (0, 3)} <= tree[
        "metadata"
    ]["labels"].keys()
    assert set(asked.most.values()) == {1}


@pytest.mark.slow
async def test_a_write_does_not_wait_for_other_objects_or_for_ever(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(monkeypatch)
    asked.go.clear()
    body = json.dumps({"metadata": {"labels": {"w": "x"}}}).encode()

    async def waiting() -> int:
        return asked.waiting.total()

    first = asyncio.create_task(fleet.ask("PATCH", PATH, "ann", body, **MERGE))
    await eventually(waiting, lambda count: count == 1, what="the first write")
    of_another = asyncio.create_task(fleet.ask("PATCH", SERVICE, "ann", body, **MERGE))
    await eventually(
        waiting, lambda count: count == 2, what="the write of another object"
    )
    monkeypatch.setattr(turns, "WAIT_SECONDS", 0.1)
    status, told, headers = await fleet.answer("PATCH", PATH, "ann", body, **MERGE)
    assert (status, headers["Retry-After"], json.loads(told)["reason"]) == (
        429,
        "1",
        "TooManyRequests",
    )
    assert set(asked.most.values()) == {1}
    asked.go.set()
    assert (await first)[0] == 200
    await of_another
    assert (await fleet.ask("PATCH", PATH, "ann", body, **MERGE))[0] == 200


async def test_writes_behind_an_unanswered_write_fail_with_it(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, go, asked = TreesOfTenants.describe, asyncio.Event(), list[str]()

    async def silent(_plane: TreesOfTenants, target: Target) -> Tree:
        asked.append(target.name)
        await go.wait()
        raise NoAnswer("no worker answers", next_step="start one")

    monkeypatch.setattr(TreesOfTenants, "describe", silent)
    body = json.dumps({"metadata": {"labels": {"w": "x"}}}).encode()
    writes = [
        asyncio.create_task(fleet.ask("PATCH", PATH, "ann", body, **MERGE))
        for _ in range(WRITERS)
    ]

    async def waiting() -> int:
        return sum(
            len(turn.lock._waiters or ())
            for turn in fleet.front.scales._turns._turns.values()
        )

    await eventually(waiting, lambda count: count == WRITERS - 1, what="all writes")
    go.set()
    assert [status for status, _ in await asyncio.gather(*writes)] == [503] * WRITERS
    assert asked == ["mine"]
    # Later clients query again. No client repeats the write by itself, because it may
    # have been carried out.
    status, _, headers = await fleet.answer("PATCH", PATH, "ann", body, **MERGE)
    assert (status, "Retry-After" in headers) == (503, False)
    assert asked == ["mine"] * 2
    monkeypatch.setattr(TreesOfTenants, "describe", describe)
    assert (await fleet.ask("PATCH", PATH, "ann", body, **MERGE))[0] == 200


@pytest.mark.parametrize("path", [PATH, f"{PATH}/scale"])
async def test_a_write_fails_before_aggregating_api_servers_time_out(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    asked = Asked(monkeypatch)
    asked.go.clear()
    monkeypatch.setattr(app, "WRITE_SECONDS", 0.2)
    body = json.dumps({"metadata": {}, "spec": {"replicas": 4}}).encode()
    status, told, headers = await fleet.answer("PATCH", path, "ann", body, **MERGE)
    # It may still be carried out, so clients must not repeat it by themselves.
    assert (status, json.loads(told)["reason"], "Retry-After" in headers) == (
        503,
        "ServiceUnavailable",
        False,
    )
    assert b"the request took too long" in told
    monkeypatch.setattr(app, "WRITE_SECONDS", 50.0)
    asked.go.set()
    assert (await fleet.ask("PATCH", path, "ann", body, **MERGE))[0] == 200


@pytest.mark.parametrize("is_stale", [False, True])
async def test_a_late_write_does_not_displace_a_recreated_object(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, *, is_stale: bool
) -> None:
    replace, key = fleet.plane.replace, ObjectKey("ModelDeployment", "a", "mine")

    async def overtaken(target: Target, message: Replace, *, create: bool) -> Tree:
        tree = await replace(target, message, create=create)
        version = int(tree["metadata"]["resourceVersion"])
        fleet.projection.remove(key, version + 1)
        fleet.projection.put(
            key,
            {
                **tree,
                "metadata": {
                    **tree["metadata"],
                    "uid": "another",
                    "resourceVersion": str(version + 2),
                },
            },
        )
        if is_stale:
            raise WriteConflict("it was modified", next_step="read it again")
        return tree

    monkeypatch.setattr(fleet.plane, "replace", overtaken)
    version = fleet.plane.trees[key]["metadata"]["resourceVersion"]
    body = json.dumps(
        {"metadata": {"labels": {"w": "x"}, "resourceVersion": version}}
    ).encode()
    status, told = await fleet.ask("PATCH", PATH, "ann", body, **MERGE)
    assert status == (409 if is_stale else 200)
    assert is_stale or json.loads(told)["metadata"]["uid"] == "a-mine"
    stored = fleet.projection.get(key)
    assert stored
    assert stored.uid == "another"


KNOWN = ObjectKey("ModelDeployment", "a", "mine")
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


def changed_elsewhere(fleet: Fleet) -> None:
    """Change the object so that this front does not know of it yet."""
    tree = fleet.plane.trees[KNOWN]
    version = int(tree["metadata"]["resourceVersion"]) + 5
    labels = {**tree["metadata"]["labels"], "elsewhere": "yes"}
    fleet.plane.trees[KNOWN] = {
        **tree,
        "metadata": {
            **tree["metadata"],
            "labels": labels,
            "resourceVersion": str(version),
        },
    }
    fleet.plane.changed[KNOWN] = version


@pytest.mark.parametrize("is_known", [True, False])
async def test_a_write_without_a_version_needs_no_query_of_a_known_object(
    fleet: Fleet, *, is_known: bool
) -> None:
    if not is_known:
        changed_elsewhere(fleet)
    fleet.plane.touched.clear()
    status, told = await fleet.ask(
        "PATCH",
        PATH,
        "ann",
        json.dumps({"metadata": {"labels": {"w": "x"}}}).encode(),
        **MERGE,
    )
    labels = json.loads(told)["metadata"]["labels"]
    assert (status, labels) == (
        200,
        {"tier": "gold", "w": "x"} | ({} if is_known else {"elsewhere": "yes"}),
    )
    # One query is made by the control plane, while it replaces the object.
    assert len(fleet.plane.touched) == (1 if is_known else 2)


async def test_a_write_is_repeated_until_no_other_interferes(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    describe, left = fleet.plane.describe, [3]

    async def then_changed(target: Target) -> Tree:
        tree = await describe(target)
        if left[0]:
            left[0] -= 1
            changed_elsewhere(fleet)
        return tree

    changed_elsewhere(fleet)
    monkeypatch.setattr(fleet.plane, "describe", then_changed)
    status, told = await fleet.ask(
        "PATCH",
        PATH,
        "ann",
        json.dumps({"metadata": {"labels": {"w": "x"}}}).encode(),
        **MERGE,
    )
    assert (status, left, json.loads(told)["metadata"]["labels"].get("w")) == (
        200,
        [0],
        "x",
    )


async def test_a_write_is_rejected_only_because_of_the_current_state(
    fleet: Fleet,
) -> None:
    changed_elsewhere(fleet)
    wanted = [
        {"op": "test", "path": "/metadata/labels/elsewhere", "value": "yes"},
        {"op": "add", "path": "/metadata/labels/w", "value": "x"},
    ]
    status, told = await fleet.ask(
        "PATCH", PATH, "ann", json.dumps(wanted).encode(), **JSON_PATCH
    )
    assert (status, json.loads(told)["metadata"]["labels"].get("w")) == (200, "x")
    wanted[0]["value"] = "no"
    assert (
        await fleet.ask("PATCH", PATH, "ann", json.dumps(wanted).encode(), **JSON_PATCH)
    )[0] == 422


async def test_a_write_that_a_workflow_rejects_is_not_repeated(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent = list[Replace]()

    async def refused(_target: Target, message: Replace, *, create: bool) -> Tree:
        sent.append(message)
        raise Refused("not this", next_step="send another" if not create else "")

    monkeypatch.setattr(fleet.plane, "replace", refused)
    status, _ = await fleet.ask(
        "PATCH",
        PATH,
        "ann",
        json.dumps({"metadata": {"labels": {"w": "x"}}}).encode(),
        **MERGE,
    )
    assert (status, len(sent)) == (422, 1)


async def test_a_dry_run_uses_the_current_state(fleet: Fleet) -> None:
    changed_elsewhere(fleet)
    body = json.dumps({"metadata": {"labels": {"w": "x"}}}).encode()
    status, told = await fleet.ask("PATCH", f"{PATH}?dryRun=All", "ann", body, **MERGE)
    assert (status, json.loads(told)["metadata"]["labels"]) == (
        200,
        {"tier": "gold", "w": "x", "elsewhere": "yes"},
    )


def test_the_wait_for_a_turn_exceeds_the_time_of_an_unanswered_write() -> None:
    """With status 429, clients would repeat the write blindly."""
    assert WRITE_WAIT.total_seconds() < turns.WAIT_SECONDS
    assert turns.WAIT_SECONDS + WRITE_WAIT.total_seconds() < app.WRITE_SECONDS
