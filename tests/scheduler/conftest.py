"""Fixtures of the scheduler's tests."""

from collections.abc import Iterator

import pytest

from tests.oracle.client import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    """Kubernetes' own answers."""
    running = Oracle()
    yield running
    running.close()
