"""One fake Google Cloud for all tests of a process, emptied before each."""

from collections.abc import Iterator

import pytest

from testbed.clouds.gcp.fake import FakeGoogle


@pytest.fixture(scope="session")
def running_google() -> Iterator[FakeGoogle]:
    with FakeGoogle() as google:
        yield google


@pytest.fixture
def google(running_google: FakeGoogle) -> FakeGoogle:
    running_google.reset()
    return running_google
