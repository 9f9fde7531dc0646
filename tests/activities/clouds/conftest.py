"""For all tests of clouds: check each request against the SDK, and reach fakes of this process without HTTP."""

from collections.abc import Iterator

import pytest

from activities.clouds.eks import clients
from tests.activities.clouds.requests import checking


@pytest.fixture(scope="session", autouse=True)
def requests_are_checked() -> Iterator[None]:
    """Have every request to AWS checked by botocore's own model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_core", checking(clients._core))
        yield
