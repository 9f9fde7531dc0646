"""Writes at a front that has not seen another front's writes, with real workflows."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from front.store.feed import Feed
from tests.front.front_under_test import DEPLOYMENTS, FrontUnderTest, Json, a_front
from tests.workflows.environment.harness import a_deployment, eventually

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.timeout(900)]

PATH = DEPLOYMENTS.format("two-fronts")
MERGE = {"Content-Type": "application/merge-patch+json"}
LABEL = {"metadata": {"labels": {"w": "x"}}}


@pytest.fixture
async def behind(
    front: FrontUnderTest, tmp_path: Path
) -> AsyncIterator[FrontUnderTest]:
    """Another front of the same control plane."""
    async with a_front(front.plane, tmp_path) as another:
        yield another


async def begin(
    front: FrontUnderTest,
    behind: FrontUnderTest,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Create a deployment that both fronts know, then stop their feeds."""
    status, created = await front.ask(
        "POST", PATH, a_deployment(name, "two-fronts", replicas=0)
    )
    assert status == 201, created

    async def known() -> int:
        return (await behind.ask("GET", f"{PATH}/{name}"))[0]

    await eventually(
        known, lambda code: code == 200, what="the deployment at the other front"
    )

    async def nothing(_feed: Feed) -> None:
        await asyncio.sleep(0)

    monkeypatch.setattr(Feed, "poll", nothing)


async def ask(
    front: FrontUnderTest, method: str, path: str, body: Json | None = None
) -> tuple[int, Json]:
    status, answer = await front.ask(
        method, f"{PATH}/{path}", body, **MERGE if method == "PATCH" else {}
    )
    return status, answer


@pytest.mark.parametrize(
    ("patch", "count"), [(LABEL, 1), ({"spec": {"replicas": 0}}, 0)]
)
async def test_a_write_keeps_or_replaces_an_autoscalers_count(
    front: FrontUnderTest,
    behind: FrontUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    patch: Json,
    count: int,
) -> None:
    name = f"scaled-{count}"
    await begin(front, behind, name, monkeypatch)
    status, scaled = await ask(
        front, "PATCH", f"{name}/scale", {"spec": {"replicas": 1}}
    )
    assert (status, scaled["spec"]["replicas"]) == (200, 1)
    # The other front does not know of this.
    assert (await ask(behind, "GET", name))[1]["spec"]["replicas"] == 0
    status, written = await ask(behind, "PATCH", name, patch)
    assert (status, written["spec"]["replicas"]) == (200, count)
    described = await front.plane.describe("ModelDeployment", name, "two-fronts")
    assert (
        described["spec"]["replicas"],
        described["status"]["lastScale"]["replicas"],
    ) == (count, count)
    monkeypatch.undo()
    await front.plane.delete("ModelDeployment", name, "two-fronts")


async def test_a_write_applies_to_the_current_object_and_not_to_a_deleted_one(
    front: FrontUnderTest, behind: FrontUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await begin(front, behind, "anew", monkeypatch)
    known = (await ask(behind, "GET", "anew"))[1]["metadata"]["uid"]
    status, answer = await ask(front, "DELETE", "anew")
    assert status == 200, answer
    # It is being deleted, or is gone.
    assert (await ask(behind, "PATCH", "anew", LABEL))[0] in (404, 409)

    async def is_gone() -> bool:
        return (await ask(behind, "PATCH", "anew", LABEL))[0] == 404

    await eventually(is_gone, bool, what="the end of the deployment")
    status, created = await front.ask(
        "POST", PATH, a_deployment("anew", "two-fronts", replicas=0)
    )
    assert (status, created["metadata"]["uid"] != known) == (201, True)
    assert (
        await ask(
            behind, "PATCH", "anew", {"metadata": {**LABEL["metadata"], "uid": known}}
        )
    )[0] == 422
    status, written = await ask(behind, "PATCH", "anew", LABEL)
    assert (status, written["metadata"]["uid"], written["metadata"]["labels"]) == (
        200,
        created["metadata"]["uid"],
        {"w": "x"},
    )
    monkeypatch.undo()
    await front.plane.delete("ModelDeployment", "anew", "two-fronts")
