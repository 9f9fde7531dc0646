"""Creations whose answer was lost, so that they were made twice. Workers that die are in `tests/activities/clouds/lives`."""

import pytest

from activities.clouds.lifecycle.handler import State
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Fault, Kind
from tests.activities.clouds.eks.world import World


@pytest.fixture
def aws(served: FakeAws) -> FakeAws:
    """Reach the account by HTTP: only a real connection can break."""
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
    ids=["prv-24 vpc", "prv-24 igw", "prv-24 eip"],
)
async def test_what_was_made_twice_because_its_answer_was_lost_is_removed(
    aws: FakeAws, world: World, key: str, operation: str, deleting: str
) -> None:
    desired = world.plan()
    objects = {each.key: each for each in desired.objects}
    for need in objects[key].needs:
        await world.ensure(objects[need])
    # The client itself sends again what was not answered.
    aws.fault(Fault(Kind.LOSE_ANSWER, operation=operation))
    await world.ensure(objects[key])
    assert (aws.made(operation), aws.made(deleting)) == (2, 1)
    assert world.look(objects[key]).state is State.READY
