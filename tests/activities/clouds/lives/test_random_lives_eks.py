"""Random lives of clusters at the fake of AWS, as `test_random_lives_gke.py` has them."""

from collections.abc import Iterator

import pytest

from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from tests.activities.clouds.lives.fakes import eks_fake
from tests.activities.clouds.lives.life import Fake
from tests.activities.clouds.lives.scripts import life_of
from tests.activities.clouds.lives.seeds import seeds

pytestmark = [pytest.mark.random, pytest.mark.slow]

# Numbers of lives, under the seed of every run, that once found an error.
FOUND = (4, 112, 158)


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with FakeAws(role="provisioner") as fake, direct(fake):
        yield fake


@pytest.fixture(scope="module")
def eks(aws: FakeAws) -> Fake:
    return eks_fake(aws)


@pytest.mark.parametrize(("seed", "number"), seeds(FOUND, 2))
def test_a_life_at_aws(aws: FakeAws, eks: Fake, seed: int, number: int) -> None:
    aws.reset()
    ended = life_of(eks, number, seed)
    assert ended.wrong == [], ended.line
