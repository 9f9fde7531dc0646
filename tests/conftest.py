"""Fixtures that every package's tests share: one testbed for the whole session.

`MODELPLANE_TESTBED_HOME` names a folder whose testbed is used and left running, so that a developer pays for the start once.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kubernetes import client, config

from testbed.fleet.fleet_file import BUILT_IN, FleetFile
from testbed.programs.install import Installer, InstallFailed, needed
from testbed.testbed import ClusterRunning, Running, Testbed


def pytest_configure() -> None:
    """Let the programs of all testbeds use more memory to collect garbage less often."""
    os.environ.setdefault("GOGC", "400")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install before the first test: a build takes minutes and must not count against the time limit of the test that came first."""
    if not session.config.option.collectonly and any(item.get_closest_marker("testbed") for item in session.items):
        with suppress(InstallFailed):  # the fixture fails with it again, where it is seen as the failure it is
            Installer().programs(needed(data_plane=any("data_plane" in item.nodeid for item in session.items)))


@pytest.fixture(scope="session")
def testbed_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the session's testbed."""
    kept = os.environ.get("MODELPLANE_TESTBED_HOME")
    # Test processes that run side by side have a testbed each.
    return Path(kept, os.environ.get("PYTEST_XDIST_WORKER", "")) if kept else tmp_path_factory.mktemp("testbed")


@pytest.fixture(scope="session")
def testbed_owner(testbed_home: Path) -> Testbed:
    """The session's testbed as something to start and stop processes with.

    Without a control cluster, which few tests look at; the fleet file lies where `modelplane up` finds it again.
    """
    fleet = testbed_home / "fleet.yaml"
    fleet.parent.mkdir(parents=True, exist_ok=True)
    fleet.write_text(f"{BUILT_IN.read_text()}\ncontrol: false\n")
    return Testbed(testbed_home, FleetFile.load(fleet))


@pytest.fixture(scope="session")
def testbed(testbed_owner: Testbed) -> Iterator[Running]:
    """The default fleet, up for the whole session."""
    try:
        yield testbed_owner.up()
    finally:
        if not os.environ.get("MODELPLANE_TESTBED_HOME"):
            testbed_owner.down()


@pytest.fixture(scope="session")
def kube() -> Iterator[Callable[[ClusterRunning], client.ApiClient]]:
    """A Kubernetes client for one cluster, made once per cluster: `kube(testbed.clusters["prod-eu"])`."""
    clients: dict[str, client.ApiClient] = {}

    def of(cluster: ClusterRunning) -> client.ApiClient:
        if cluster.server not in clients:
            clients[cluster.server] = config.new_client_from_config(str(cluster.kubeconfig))
        return clients[cluster.server]

    yield of
    for each in clients.values():
        each.close()
