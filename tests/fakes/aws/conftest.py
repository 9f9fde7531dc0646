"""One fake account for the tests of this folder, reset before each of them."""

from collections.abc import Iterator

import pytest

from fakes.aws.fake import FakeAws


@pytest.fixture(scope="session")
def served() -> Iterator[FakeAws]:
    """Serve an account for all tests."""
    with FakeAws() as account:
        yield account


@pytest.fixture
def aws(served: FakeAws) -> Iterator[FakeAws]:
    """Return the account without objects."""
    served.reset()
    yield served
    assert "\n".join(served.front.defects) == ""
