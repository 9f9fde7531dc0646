"""Fixtures that every package's tests share: one testbed for the whole session.

`MODELPLANE_TESTBED_HOME` names a folder whose testbed is used and left running, so that a developer pays for the start once.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.programs.install import Installer, InstallFailed, needed
from testbed.programs.versions import KEDA_TOOLS
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.environment import keda
from tests.environment.shared_testbed import kept_home, shared_testbed, started
from tests.environment.summary import Summary

# In the id of each test that starts a data plane.
DATA_PLANE = ("dataplane", "test_local")

if TYPE_CHECKING:
    from kubernetes import client

    from tests.oracle.client import Oracle


def pytest_configure(config: pytest.Config) -> None:
    """Report on the testbed, and let the programs of all testbeds use more memory to collect garbage less often."""
    config.pluginmanager.register(Summary(config), Summary.NAME)
    os.environ.setdefault("GOGC", "400")
    # Fourteen API servers at once would take more than there is; one that has this much collects more often. With 600 MiB those that
    # have the definitions of the serving stack did that most of the time.
    os.environ.setdefault("GOMEMLIMIT", "1000MiB")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out files by what they need."""
    if config.option.dist != "loadfile":
        return None
    from tests.environment.scheduling import TestbedScheduling  # noqa: PLC0415 - only where pytest-xdist is used

    return TestbedScheduling(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, and never look at what is collected again: it stays, and looking at it takes a fifth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before tests are chosen by their marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs the oracle, note what needs the testbed, and refuse a test that starts it and does not say so."""
    on_testbed = [item for item in items if "testbed_owner" in getattr(item, "fixturenames", ()) or _asks_while_it_runs(item)]
    if hasattr(config, "workerinput"):
        from tests.environment.scheduling import remember  # noqa: PLC0415 - only where pytest-xdist is used

        remember(config, (item.nodeid.partition("::")[0] for item in on_testbed))
    keda.leave_out_unless_there(config, items)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "oracle" in fixtures:
            item.add_marker("oracle")
    for item in on_testbed:
        if item.get_closest_marker("testbed") is None:
            raise pytest.UsageError(f"{item.nodeid} needs the testbed: mark it with pytest.mark.testbed")


def _asks_while_it_runs(item: pytest.Item) -> bool:
    """Whether a test says by its mark that a fixture asks for the testbed with `getfixturevalue`, which no signature shows."""
    mark = item.get_closest_marker("testbed")
    return mark is not None and "asked for" in mark.args


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install before the first test: a build takes minutes and must not count against the time limit of the test that came first."""
    if not session.config.option.collectonly and any(item.get_closest_marker("testbed") for item in session.items):
        with suppress(InstallFailed):  # the fixture fails with it again, where it is seen as the failure it is
            Installer().programs(needed(data_plane=any(word in item.nodeid for item in session.items for word in DATA_PLANE)))
            if any(item.get_closest_marker(keda.MARK) for item in session.items):
                Installer().programs(KEDA_TOOLS)
    if not session.config.option.collectonly and any(item.get_closest_marker("oracle") for item in session.items):
        from tests.oracle.client import build  # noqa: PLC0415 - only where a test compares with it

        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        with suppress(AssertionError):  # as above
            build(terminal.write_line if terminal else print)


@pytest.fixture(scope="session")
def testbed_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the session's testbed."""
    kept = kept_home()
    # Test processes that run side by side have a testbed each.
    return kept / os.environ.get("PYTEST_XDIST_WORKER", "") if kept else tmp_path_factory.mktemp("testbed")


@pytest.fixture(scope="session")
def testbed_owner(testbed_home: Path) -> Testbed:
    """The session's testbed as something to start and stop processes with."""
    return shared_testbed(testbed_home)


@pytest.fixture(scope="session")
def testbed(testbed_owner: Testbed, pytestconfig: pytest.Config) -> Iterator[Running]:
    """The default fleet, up for the whole session."""
    try:
        yield started(testbed_owner, Summary.of(pytestconfig))
    finally:
        if kept_home() is None:
            testbed_owner.down()


@pytest.fixture(scope="session")
def kube() -> Iterator[Callable[[ClusterRunning], "client.ApiClient"]]:
    """A Kubernetes client for one cluster, made once per cluster: `kube(testbed.clusters["prod-eu"])`."""
    from kubernetes import config  # noqa: PLC0415 - takes a second to load, which tests without a cluster do not pay

    clients: dict[str, client.ApiClient] = {}

    def of(cluster: ClusterRunning) -> "client.ApiClient":
        if cluster.server not in clients:
            clients[cluster.server] = config.new_client_from_config(str(cluster.kubeconfig))
        return clients[cluster.server]

    yield of
    for each in clients.values():
        each.close()


@pytest.fixture(scope="session")
def oracle() -> "Iterator[Oracle]":
    """Kubernetes' own answers."""
    from tests.oracle.client import Oracle  # noqa: PLC0415 - only where a test compares with it

    running = Oracle()
    yield running
    running.close()
