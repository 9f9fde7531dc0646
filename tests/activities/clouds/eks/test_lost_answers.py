"""Creations with a lost response, which were made twice.

Workers that die are in `tests/activities/clouds/lives`.
"""

import pytest

from activities.clouds.lifecycle.handler import State
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.eks.world import World


@pytest.fixture
def aws(served: FakeAws) -> FakeAws:
    """Reach the account by HTTP, because only a real connection can break."""
    served.reset()
    return served


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "operation", "deleting"),
    [
        ("net/vpc", "CreateVpc", "DeleteVpc"),
        ("net/igw", "CreateInternetGateway", "DeleteInternetGateway"),
        ("net/eip", "AllocateAddress", "ReleaseAddress"),
    ],
    ids=["vpc", "igw", "eip"],
)
async def test_duplicates_from_lost_responses_are_removed(
    aws: FakeAws, world: World, key: str, operation: str, deleting: str
) -> None:
    desired = world.plan()
    objects = {each.key: each for each in desired.objects}
    for need in objects[key].needs:
        await world.ensure(objects[need])
    # The client itself repeats a request without a response.
    aws.fault(AwsFault(FaultKind.LOSE_ANSWER, operation=operation))
    await world.ensure(objects[key])
    assert (aws.made(operation), aws.made(deleting)) == (2, 1)
    assert world.look(objects[key]).state is State.READY
