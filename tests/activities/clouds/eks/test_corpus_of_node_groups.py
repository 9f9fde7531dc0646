"""Handlers report the health issues of the corpus with their error class and next step."""

import asyncio
from collections.abc import Iterator

import pytest

from activities.clouds.graph import DesiredObject, creation_order
from activities.clouds.lifecycle.handler import State
from api_types.errors import CloudObjectBroken
from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.corpus import CorpusEntry, entries_of, verdict_of
from tests.activities.clouds.eks.world import World, world_of

ISSUES = [each for each in entries_of("aws") if each.request == "eks node group"]
LOOKS_MAX = 100
_LATER = ("pool/", "chart/", "addon/coredns", "addon/aws-efs-csi-driver")


async def without_pools(world: World) -> None:
    for each in creation_order(list(world.plan().objects)):
        handler = world.provider.handler(world.account, each.kind)
        if handler is not None and not each.key.startswith(_LATER):
            await world.ensure(each)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Return a cluster without pools."""
    with FakeAws(role="provisioner") as aws, direct(aws):
        world = world_of(aws)
        asyncio.run(without_pools(world))
        yield world


@pytest.fixture
def pool(world: World) -> Iterator[DesiredObject]:
    """Return the pool, and delete it after the test."""
    (found,) = [each for each in world.plan().objects if each.key == "pool/gpu"]
    yield found
    asyncio.run(world.delete(found))
    # The next group needs another token, or its creation counts as a repeated call.
    world.epochs[found.key] = world.epochs.get(found.key, 0) + 1


@pytest.mark.parametrize("entry", ISSUES, ids=[each.name for each in ISSUES])
def test_a_failed_node_group_names_its_error_and_the_next_step(
    world: World, pool: DesiredObject, entry: CorpusEntry
) -> None:
    code, message = str(entry.answer["code"]), str(entry.answer["message"])
    fault = AwsFault(FaultKind.FAIL, "CreateNodegroup", code=code, message=message)
    world.aws.fault(fault)
    handler = world.provider.handler(world.account, pool.kind)
    assert handler is not None
    handler.create(world.wanted(pool))
    looks = (world.look(pool) for _ in range(LOOKS_MAX))
    found = next(each for each in looks if each.state is State.BROKEN)
    verdict = verdict_of((found.cause or CloudObjectBroken)(found.reason))
    missing = [word for word in entry.says if word not in found.reason]
    assert (verdict, missing) == (entry.verdict, []), found.reason
