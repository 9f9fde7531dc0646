"""A fake AWS account for each test, reached without HTTP.

Tests of a whole cluster and of lost responses use HTTP.
"""

from collections.abc import Iterator

import pytest

from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from tests.activities.clouds.eks.world import World, world_of


@pytest.fixture(scope="session")
def served() -> Iterator[FakeAws]:
    with FakeAws(role="provisioner") as aws:
        yield aws


@pytest.fixture
def aws(served: FakeAws) -> Iterator[FakeAws]:
    served.reset()
    with direct(served):
        yield served


@pytest.fixture
def world(aws: FakeAws) -> World:
    return world_of(aws)
