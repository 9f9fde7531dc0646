"""A cluster whose API server is gone is deleted when an annotation says so: nothing is asked of it (provisioning.md 11, case 64)."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from api_types.errors import ClusterUnreachable
from testbed.clouds.aws.direct import direct
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Leftover
from testbed.clouds.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake, Life
from tests.activities.clouds.lives.virtual_time import run

pytestmark = pytest.mark.slow

# More than would be asked.
_FAILURES = 1000


@dataclass
class Case:
    """A fake cloud, and what has its only cluster leave behind what its Services made. Gives the names."""

    fake: Fake
    leave: Callable[[], list[str]]


@pytest.fixture
def gke() -> Iterator[Case]:
    with FakeGoogle() as google:

        def leave() -> list[str]:
            (cluster,) = (each for each in google.objects() if each.rpartition("/")[0].endswith("/clusters"))
            return google.plant_leftover(cluster, "forwarding_rule")

        yield Case(gke_fake(google), leave)


@pytest.fixture
def eks() -> Iterator[Case]:
    with FakeAws(role="provisioner") as aws, direct(aws):

        def leave() -> list[str]:
            (cluster,) = aws.cloud.eks.clusters
            return [aws.leave(cluster, each) for each in Leftover]

        yield Case(eks_fake(aws), leave)


@pytest.mark.parametrize("cloud", ["gke", "eks"])
def test_prv_64_f18_what_is_left_of_load_balancers_is_swept_and_the_deletion_goes_on(request: pytest.FixtureRequest, cloud: str) -> None:
    case: Case = request.getfixturevalue(cloud)

    async def live() -> None:
        life = Life(case.fake, random.Random(1))  # noqa: S311 - repeatable on purpose
        with life.temporal.patched():
            try:
                life.begin()
                life.order(case.fake.pool())
                assert await life.until_ready(), life.progress["message"]
                left, before = case.leave(), list(life.cluster.writes)
                assert [name for name in left if not any(each.endswith(name) for each in case.fake.remains())] == []
                life.cluster.failures = [ClusterUnreachable("no answer")] * _FAILURES
                life.delete(skip_cluster=True)
                assert await life.until_gone(), life.progress["message"]
                assert (life.cluster.writes, len(life.cluster.failures)) == (before, _FAILURES)
                assert (case.fake.remains(), case.fake.defects()) == ([], [])
            finally:
                await life.stop()

    run(live, random.Random(1))  # noqa: S311 - repeatable on purpose
