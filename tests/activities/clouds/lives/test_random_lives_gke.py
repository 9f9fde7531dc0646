"""Random lives of clusters at the fake of Google Cloud.

Each cluster ends Ready or with a condition that says why not, and its deletion leaves
nothing at the cloud. The whole campaign is `make faults-clouds`. A life in which it
finds an error is added to FOUND.
"""

from collections.abc import Iterator

import pytest

from fakes.gcp.fake import FakeGoogle
from tests.activities.clouds.lives.fakes import gke_fake
from tests.activities.clouds.lives.scripts import life_of
from tests.activities.clouds.lives.seeds import seeds

pytestmark = [pytest.mark.random, pytest.mark.slow]

# Numbers of lives, under the seed of every run, that once found an error.
FOUND = (40, 47, 88, 94, 101)


@pytest.fixture(scope="module")
def google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as fake:
        yield fake


@pytest.mark.parametrize(("seed", "number"), seeds(FOUND, 3))
def test_a_life_at_google_cloud(google: FakeGoogle, seed: int, number: int) -> None:
    google.reset()
    ended = life_of(gke_fake(google), number, seed)
    assert ended.wrong == [], ended.line
