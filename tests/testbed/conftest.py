"""Shared parts of the testbed's tests: waiting with a deadline, and a temporary
namespace.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest
from kubernetes import client

from testbed.running import ClusterRunning, Running
from tests.environment.waiting import TIMEOUT_SECONDS, pauses


class Eventually(Protocol):
    """Call `check` until it returns `equals`. The last result is in the failure."""

    def __call__(
        self,
        check: Callable[[], Any],
        *,
        equals: Any = True,
        within: float = TIMEOUT_SECONDS,
    ) -> None: ...


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    def wait(
        check: Callable[[], Any], *, equals: Any = True, within: float = TIMEOUT_SECONDS
    ) -> None:
        for pause in pauses(within, shortest=0.1):
            if (answer := check()) == equals:
                return
            time.sleep(pause)
        assert answer == equals

    return wait


@pytest.fixture(scope="session")
def cluster(testbed: Running) -> ClusterRunning:
    return testbed.clusters["prod-eu"]


def control_of(running: Running) -> ClusterRunning:
    """Return the control cluster of a testbed that has one."""
    assert running.control
    return running.control


@pytest.fixture
def api(
    kube: Callable[[ClusterRunning], client.ApiClient], cluster: ClusterRunning
) -> client.ApiClient:
    return kube(cluster)


@pytest.fixture
def namespace(api: client.ApiClient, request: pytest.FixtureRequest) -> Iterator[str]:
    core = client.CoreV1Api(api)
    body = {
        "metadata": {
            "generateName": "testbed-",
            "annotations": {"test": request.node.nodeid},
        }
    }
    name = core.create_namespace(body).metadata.name
    yield name
    core.delete_namespace(name)
