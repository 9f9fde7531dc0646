"""A whole EKS cluster at a fake AWS: created, observed again, and deleted."""

import pytest

from activities.clouds.lifecycle.handler import State
from fakes.aws.fake import FakeAws
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.world import World

READS = ("Describe", "Get", "List")


@pytest.fixture
def aws(served: FakeAws) -> FakeAws:
    """Reach the account by HTTP.

    Every kind of object is created and deleted over a real connection.
    """
    served.reset()
    return served


def writes(aws: FakeAws) -> list[str]:
    """Return the writing calls."""
    return [
        each.operation for each in aws.ledger() if not each.operation.startswith(READS)
    ]


@pytest.mark.slow
async def test_a_cluster_is_created_and_a_second_run_changes_nothing_and_a_delete_leaves_nothing(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(an_eks_pool(nodeCount=2, maxNodeCount=4))
    assert (desired.refused, desired.warnings) == ((), ())
    await world.create_all(desired.objects)
    at_cloud = [
        each
        for each in desired.objects
        if world.provider.handler(world.account, each.kind)
    ]
    assert {each.key: world.look(each).state for each in at_cloud} == {
        each.key: State.READY for each in at_cloud
    }
    before = writes(aws)
    again = world.plan(an_eks_pool(nodeCount=2, maxNodeCount=4))
    assert again == desired
    await world.create_all(again.objects)
    assert writes(aws) == before
    await world.delete_all(again.objects)
    assert aws.remains() == []
    assert list(world.provider.audit(world.audit())) == []
