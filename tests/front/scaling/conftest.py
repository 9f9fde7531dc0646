"""Fixtures: the front's paths for autoscalers, without Temporal."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.front.scaling.scaling_under_test import Client, ScalingUnderTest


@pytest.fixture
def served(tmp_path: Path) -> ScalingUnderTest:
    return ScalingUnderTest(tmp_path)


@pytest.fixture
async def client(served: ScalingUnderTest) -> AsyncIterator[Client]:
    async with served.client() as client:
        yield client
