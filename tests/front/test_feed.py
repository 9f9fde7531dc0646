"""What the front reads of an object that is replaced by another one of its name at the same moment."""

import asyncio
from typing import cast

import pytest

from api_types.resources.kinds import BY_KIND
from client.refs.targets import Target
from client.temporal.control_plane import ControlPlane
from front.store.feed import Feed
from front.store.projection import Key, Projection, Tree
from tests.front.fleet_of_tenants import START, an_object

KEY = Key("ModelDeployment", "a", "one")


def of(uid: str, version: int) -> Tree:
    tree = an_object(BY_KIND["ModelDeployment"], "a", "one", version)
    return {**tree, "metadata": {**tree["metadata"], "uid": uid}}


class SlowPlane:
    """A control plane whose one object answers when it is told to."""

    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.asked, self.go = asyncio.Event(), asyncio.Event()

    async def describe(self, _: Target) -> Tree:
        """Give the object."""
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
    ids=["replaced", "created before it was known", "another one answers", "the same answers", "not known"],
)
async def test_the_answer_of_an_object_does_not_take_the_place_of_one_created_since(
    known: str, answered: str, created: str, expected: str
) -> None:
    projection = Projection()
    projection.complete = True
    if known:
        projection.put(KEY, of(known, START))
    plane = SlowPlane(of(answered, START + 1))
    reading = asyncio.create_task(Feed(cast("ControlPlane", plane), projection).read(KEY))
    await plane.asked.wait()
    if created:
        projection.put(KEY, of(created, START + 2))
    plane.go.set()
    await reading
    stored = projection.get(KEY)
    assert stored
    assert stored.uid == expected
