"""The request path of one cluster, started once for the tests of this folder."""

from collections.abc import Iterator

import pytest

from api_types.sections.stacks import StackSettings
from client.local.envoy import envoy_stack
from tests.environment.shared_testbed import kept_home
from tests.testbed.request_path.request_path import RequestPath, request_path

# Streams may last two minutes after a change of the listener, instead of an hour.
SETTINGS = StackSettings(longest_generation=120)


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RequestPath]:
    """The running path. With a kept home it stays up after the tests."""
    kept = kept_home()
    folder = kept / "path" if kept else tmp_path_factory.mktemp("path")
    with request_path(folder, envoy_stack(SETTINGS), keep=kept is not None) as running:
        yield running
