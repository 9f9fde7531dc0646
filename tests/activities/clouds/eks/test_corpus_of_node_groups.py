"""Handlers report the health issues of the corpus with their error class and next step."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from activities.clouds.desired.graph import DesiredObject, creation_order
from activities.clouds.lifecycle.handler import CloudObservation, State
from api_types.errors import CloudObjectBroken, QuotaExceeded
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


def failed(world: World, pool: DesiredObject) -> CloudObservation:
    """Create the pool, and return its observation when EKS failed to create it."""
    handler = world.provider.handler(world.account, pool.kind)
    assert handler is not None
    handler.create(world.wanted(pool))
    looks = (world.look(pool) for _ in range(LOOKS_MAX))
    return next(each for each in looks if each.state is State.BROKEN)


@pytest.mark.parametrize("entry", ISSUES, ids=[each.name for each in ISSUES])
def test_a_failed_node_group_names_its_error_and_the_next_step(
    world: World, pool: DesiredObject, entry: CorpusEntry
) -> None:
    code, message = str(entry.answer["code"]), str(entry.answer["message"])
    fault = AwsFault(FaultKind.FAIL, "CreateNodegroup", code=code, message=message)
    world.aws.fault(fault)
    found = failed(world, pool)
    verdict = verdict_of((found.cause or CloudObjectBroken)(found.reason))
    missing = [word for word in entry.says if word not in found.reason]
    assert (verdict, missing) == (entry.verdict, []), found.reason


def test_the_scaling_group_gives_the_reason_that_eks_leaves_out(
    world: World, pool: DesiredObject, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = AwsFault(
        FaultKind.FAIL,
        "CreateNodegroup",
        code="AsgInstanceLaunchFailures",
        message="Instances could not be launched",
    )
    world.aws.fault(fault)
    launch = "Launching a new EC2 instance. VcpuLimitExceeded: You have requested more"
    read = world.provider.clients.read

    def with_activity(service: str, operation: str, **given: Any) -> Any:
        if operation == "describe_scaling_activities":
            return {"Activities": [{"StatusCode": "Failed", "StatusMessage": launch}]}
        return read(service, operation, **given)

    monkeypatch.setattr(world.provider.clients, "read", with_activity)
    found = failed(world, pool)
    assert (found.cause, found.reason) == (
        QuotaExceeded,
        f"status CREATE_FAILED; AsgInstanceLaunchFailures: {fault.message}; {launch}",
    )
