"""The deletion of a cluster whose API server is gone, after an annotation allows it."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from api_types.errors import ClusterUnreachable
from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.aws.faults import VpcLeftover
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake, Life
from tests.activities.clouds.lives.virtual_time import run

pytestmark = pytest.mark.slow

# More requests than a deletion would make.
_FAILURES = 1000


@dataclass
class Case:
    """A fake cloud, and a function that leaves behind the load balancers of its only
    cluster.

    The function returns their names.
    """

    fake: Fake
    leave: Callable[[], list[str]]


@pytest.fixture
def gke() -> Iterator[Case]:
    with FakeGoogle() as google:

        def leave() -> list[str]:
            (cluster,) = (
                each
                for each in google.objects()
                if each.rpartition("/")[0].endswith("/clusters")
            )
            return google.plant_leftover(cluster, "forwarding_rule")

        yield Case(gke_fake(google), leave)


@pytest.fixture
def eks() -> Iterator[Case]:
    with FakeAws(role="provisioner") as aws, direct(aws):

        def leave() -> list[str]:
            (cluster,) = aws.cloud.eks.clusters
            return [
                aws.leave(cluster, each)
                for each in VpcLeftover
                if each not in (VpcLeftover.ENDPOINT, VpcLeftover.USER_BALANCER)
            ]

        yield Case(eks_fake(aws), leave)


@pytest.mark.parametrize("cloud", ["gke", "eks"])
def test_leftovers_of_load_balancers_are_swept_and_the_deletion_continues(
    request: pytest.FixtureRequest, cloud: str
) -> None:
    case: Case = request.getfixturevalue(cloud)

    async def live() -> None:
        life = Life(case.fake, random.Random(1))  # noqa: S311 - repeatable on purpose
        with life.temporal.patched():
            try:
                life.begin()
                life.order(case.fake.pool())
                assert await life.until_ready(), life.progress["message"]
                left, before = case.leave(), list(life.cluster.writes)
                assert [
                    name
                    for name in left
                    if not any(each.endswith(name) for each in case.fake.remains())
                ] == []
                life.cluster.failures = [ClusterUnreachable("no answer")] * _FAILURES
                life.delete(skip_cluster=True)
                assert await life.until_gone(), life.progress["message"]
                assert (life.cluster.writes, len(life.cluster.failures)) == (
                    before,
                    _FAILURES,
                )
                assert (case.fake.remains(), case.fake.defects()) == ([], [])
            finally:
                await life.stop()

    run(live, random.Random(1))  # noqa: S311 - repeatable on purpose
