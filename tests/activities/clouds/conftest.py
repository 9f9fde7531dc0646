"""Fixtures of all cloud tests: requests are validated, and local fakes are reached
directly.
"""

from collections.abc import Iterator

import pytest

from activities.clouds.eks import sessions
from tests.activities.clouds.requests import checking


@pytest.fixture(scope="session", autouse=True)
def requests_are_checked() -> Iterator[None]:
    """Validate every request to AWS with botocore's own model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "_core", checking(sessions._core))
        yield
