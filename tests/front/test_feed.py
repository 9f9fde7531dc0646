"""The feed when an object is replaced by another of the same name."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from temporalio.common import SearchAttributePair, TypedSearchAttributes

from activities.messaging.search_attributes import NAME, NAMESPACE
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import NoAnswer
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from front.store import feed
from front.store.feed import Feed
from front.store.projection import LATE_MICROSECONDS, ObjectKey, Projection, Tree
from tests.front.fleet_of_tenants import START, an_object

KEY = ObjectKey("ModelDeployment", "a", "one")


def of(uid: str, version: int) -> Tree:
    tree = an_object(BY_KIND["ModelDeployment"], "a", "one", version)
    return {**tree, "metadata": {**tree["metadata"], "uid": uid}}


class SlowPlane:
    """A control plane whose single object answers when the test says so."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def describe(self, _: Target) -> Tree:
        self.asked.set()
        await self.go.wait()
        return self.tree


@pytest.mark.parametrize(
    ("known", "answered", "created", "expected"),
    [
        ("old", "old", "new", "new"),
        ("", "old", "new", "new"),
        ("old", "new", "", "new"),
        ("old", "old", "", "old"),
        ("", "new", "", "new"),
    ],
    ids=[
        "replaced",
        "created before it was known",
        "another one answers",
        "the same answers",
        "not known",
    ],
)
async def test_the_answer_of_an_old_object_does_not_displace_its_successor(
    known: str, answered: str, created: str, expected: str
) -> None:
    projection = Projection()
    projection.complete = True
    if known:
        projection.put(KEY, of(known, START))
    plane = SlowPlane(of(answered, START + 1))
    reading = asyncio.create_task(
        Feed(cast("ControlPlane", plane), projection).read(KEY)
    )
    await plane.asked.wait()
    if created:
        projection.put(KEY, of(created, START + 2))
    plane.go.set()
    await reading
    stored = projection.get(KEY)
    assert stored
    assert stored.uid == expected


class SilentPlane:
    """A control plane with `running` objects, of which only `answering` ones answer."""

    def __init__(self, *running: str) -> None:
        self.running, self.answering = list(running), set(running)

    async def rows(self, query: str) -> AsyncIterator[Any]:
        """Return all running workflows, except for the query of closed workflows."""
        if "CloseTime" in query:
            return
        for name in self.running:
            attributes = TypedSearchAttributes(
                [SearchAttributePair(NAME, name), SearchAttributePair(NAMESPACE, "a")]
            )
            yield SimpleNamespace(
                workflow_type="ModelDeployment",
                id=f"modeldeployment/a/{name}",
                typed_search_attributes=attributes,
            )

    async def describe(self, target: Target) -> Tree:
        if target.name not in self.answering:
            raise NoAnswer("no worker answers", next_step="start one")
        return an_object(target.kind, "a", target.name, START)

    async def exists(self, target: Target) -> bool:
        return target.name in self.running


async def test_lists_wait_for_objects_at_the_start_but_not_for_later_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(feed, "RELIST_SECONDS", 0.0)
    monkeypatch.setattr(feed, "ASK_AGAIN_SECONDS", 0.0)
    plane, projection = SilentPlane("answers", "silent"), Projection()
    plane.answering = {"answers"}
    following = Feed(cast("ControlPlane", plane), projection)
    await following.poll()
    assert (projection.complete, {key.name for key in projection.unread}) == (
        True,
        {"silent"},
    )
    # No worker has started it.
    plane.running.append("new")
    for _ in range(2):
        await following.poll()
        assert {key.name for key in projection.unread} == {"silent"}
    plane.answering |= {"silent", "new"}
    await following.poll()
    await asyncio.gather(*following._tasks.values())
    assert (
        projection.unread,
        {key.name for key in projection.of_kind("ModelDeployment")},
    ) == (set(), {"answers", "silent", "new"})


async def test_late_visibility_results_are_searched_from_time_to_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane, projection, since = SilentPlane("one"), Projection(), list[int]()
    rows, newest = plane.rows, 5 * LATE_MICROSECONDS

    async def asked(query: str) -> AsyncIterator[Any]:
        if "ModelplaneVersion >" in query:
            since.append(newest - int(query.rpartition(" ")[2]))
        async for row in rows(query):
            yield row

    monkeypatch.setattr(plane, "rows", asked)
    following = Feed(cast("ControlPlane", plane), projection)
    following._followed = newest
    for seconds in (3600.0, 3600.0, 3600.0, 0.0):
        monkeypatch.setattr(feed, "WIDE_SECONDS", seconds)
        await following.poll()
    # The first poll lists everything, and counts as a wide search.
    assert since == [
        feed.RECENT_MICROSECONDS,
        feed.RECENT_MICROSECONDS,
        LATE_MICROSECONDS,
    ]
    monkeypatch.setattr(feed, "WIDE_SECONDS", 60.0)
    following._looked_wide = -60.0
    for _ in range(2):
        await following.poll()
    assert since[3:] == [LATE_MICROSECONDS, feed.RECENT_MICROSECONDS]
