"""One fake account for the tests of this folder, as it was at the start before each of them."""

from collections.abc import Iterator

import pytest

from testbed.clouds.aws.fake import FakeAws


@pytest.fixture(scope="session")
def served() -> Iterator[FakeAws]:
    """Serve an account for all tests."""
    with FakeAws() as account:
        yield account


@pytest.fixture
def aws(served: FakeAws) -> Iterator[FakeAws]:
    """Give the account with nothing in it."""
    served.reset()
    yield served
    assert "\n".join(served.front.defects) == ""
