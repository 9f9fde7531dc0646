"""Random lives of clusters at both fake clouds.

Each ends Ready or with a reason, and leaves nothing, whatever goes wrong. The whole
campaign is `make faults-clouds`. A life that it finds is added to FOUND.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import eks_fake, gke_fake
from tests.activities.clouds.lives.life import Fake
from tests.activities.clouds.lives.scripts import life_of
from tests.random_cases import FIXED_SEED, SEED, cases

LIVES = {"GKE": 3, "EKS": 2}
# Further lives, for `make test-long`.
MORE = 20
# Numbers of lives, under the seed of every run, that once found an error.
FOUND: dict[str, tuple[int, ...]] = {"GKE": (40, 47, 88, 94, 101), "EKS": (4, 112, 158)}

pytestmark = pytest.mark.random


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as fake:
        yield fake


@pytest.fixture(scope="module")
def aws() -> Iterator[FakeAws]:
    with FakeAws(role="provisioner") as fake, direct(fake):
        yield fake


@pytest.fixture(scope="module")
def eks(aws: FakeAws) -> Fake:
    return eks_fake(aws)


def seeds(source: str) -> list[Any]:
    """Return the lives of a run, as seed and number."""
    first = cases(LIVES[source])
    return [
        *((FIXED_SEED, number) for number in FOUND[source]),
        *((SEED, number) for number in range(first)),
        *(
            pytest.param(SEED, number, marks=pytest.mark.long)
            for number in range(first, first + MORE)
            if number not in FOUND[source]
        ),
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "number"), seeds("GKE"))
def test_a_life_at_google_cloud(google: FakeGoogle, seed: int, number: int) -> None:
    google.reset()
    ended = life_of(gke_fake(google), number, seed)
    assert ended.wrong == [], ended.line


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "number"), seeds("EKS"))
def test_a_life_at_aws(aws: FakeAws, eks: Fake, seed: int, number: int) -> None:
    aws.reset()
    ended = life_of(eks, number, seed)
    assert ended.wrong == [], ended.line
