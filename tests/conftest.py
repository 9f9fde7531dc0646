"""Fixtures that every package's tests share: one testbed for the whole session.

`MODELPLANE_TESTBED_HOME` names a folder whose testbed is used and left running, so that a developer pays for the start once.
With `--lanes`, the processes of pytest-xdist run different files (tests/environment/lanes.py), and one lane shares a testbed.
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
from tests.environment import container_engine
from tests.environment.shared_testbed import Lent, kept_home, shared_testbed, started, turn
from tests.environment.summary import Summary
from tests.environment.times import Times
from tests.environment.whole_files import left_out_by

# In the id of each test that starts a data plane.
DATA_PLANE = ("dataplane", "commands/test_fleet", "testbed/test_lifecycle")

if TYPE_CHECKING:
    from kubernetes import client

    from tests.oracle.client import Oracle


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelplane")
    group.addoption("--lanes", help="processes of each lane, as computing=2,shared=3,own=3; give -n auto with it")
    group.addoption("--budgets", action="store_true", help="print where the time went; fail when a file exceeds its budget")


def pytest_configure(config: pytest.Config) -> None:
    """Report on the testbed, and let the programs of all testbeds use more memory to collect garbage less often."""
    config.pluginmanager.register(Summary(config), Summary.NAME)
    config.pluginmanager.register(Times(config), Times.NAME)
    if config.option.lanes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Lent(), Lent.NAME)
    os.environ.setdefault("GOGC", "400")
    # Fourteen API servers at once would take more than there is; one that has this much collects more often. With 600 MiB those that
    # have the definitions of the serving stack did that most of the time.
    os.environ.setdefault("GOMEMLIMIT", "1000MiB")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Start the processes of all lanes."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    return sum(lanes.parsed(config.option.lanes).values()) if config.option.lanes else None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process its lane."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    if node.config.option.lanes:
        number = int(node.gateway.id.removeprefix("gw"))
        node.workerinput["lane"] = lanes.lane_of_process(number, lanes.parsed(node.config.option.lanes))
        node.workerinput[Lent.NAME] = str(Lent.of(node.config).home)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Share out tests by lanes."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    return lanes.Lanes(config, log, lanes.parsed(config.option.lanes)) if config.option.lanes else None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the files of other lanes, and files without a test for this run."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if lane := _lane(config):
        from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

        if lanes.lane_of_file(collection_path, lanes.parsed(config.option.lanes)) != lane:
            return True
    mark = left_out_by(config.option.markexpr, collection_path.read_text())
    if mark:
        Summary.of(config).leave_out_file(mark, collection_path)
    return True if mark else None


def _lane(config: pytest.Config) -> str:
    """Return the lane of this process; empty without lanes."""
    lane: str = getattr(config, "workerinput", {}).get("lane", "")
    return lane


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
    """Mark the tests that need the oracle or a testbed of their own; refuse an unmarked test that needs a testbed."""
    container_engine.leave_out_without_root(config, items)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "oracle" in fixtures:
            item.add_marker("oracle")
        needs = "testbed_owner" in fixtures or _asks_while_it_runs(item)
        testbed = item.get_closest_marker("testbed")
        if needs and testbed is None:
            raise pytest.UsageError(f"{item.nodeid} needs the testbed: mark it with pytest.mark.testbed")
        if testbed is not None and "shared" not in testbed.args:
            item.add_marker("long")  # it starts a testbed that no other process uses


def _asks_while_it_runs(item: pytest.Item) -> bool:
    """Whether a test says by its mark that a fixture asks for the testbed with `getfixturevalue`, which no signature shows."""
    mark = item.get_closest_marker("testbed")
    return mark is not None and "asked for" in mark.args


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install before the first test: a build takes minutes and must not count against the time limit of the test that came first."""
    if not session.config.option.collectonly and any(item.get_closest_marker("testbed") for item in session.items):
        with suppress(InstallFailed):  # the fixture fails with it again, where it is seen as the failure it is
            Installer().programs(needed(data_plane=any(word in item.nodeid for item in session.items for word in DATA_PLANE)))
            if any(item.get_closest_marker("keda") for item in session.items):
                Installer().programs(KEDA_TOOLS)
    if not session.config.option.collectonly and any(item.get_closest_marker("oracle") for item in session.items):
        from tests.oracle.client import build  # noqa: PLC0415 - only where a test compares with it

        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        with suppress(AssertionError):  # as above
            build(terminal.write_line if terminal else print)


@pytest.fixture(scope="session")
def lent_home(pytestconfig: pytest.Config) -> Path | None:
    """Folder of the testbed that the processes of the lane `shared` use together; None in other processes."""
    return Path(pytestconfig.workerinput[Lent.NAME]) if _lane(pytestconfig) == "shared" else None  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def testbed_home(lent_home: Path | None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the session's testbed."""
    if lent_home:
        return lent_home
    kept = kept_home()
    # Test processes that run side by side have a testbed each.
    return kept / os.environ.get("PYTEST_XDIST_WORKER", "") if kept else tmp_path_factory.mktemp("testbed")


@pytest.fixture(scope="session")
def testbed_owner(testbed_home: Path) -> Testbed:
    """The session's testbed as something to start and stop processes with."""
    return shared_testbed(testbed_home)


@pytest.fixture(scope="session")
def testbed(testbed_owner: Testbed, testbed_home: Path, lent_home: Path | None, pytestconfig: pytest.Config) -> Iterator[Running]:
    """The default fleet, up for the whole session. The first process of a lane starts a shared one, the others wait for it."""
    try:
        with turn(testbed_home):
            already = testbed_owner.running() if lent_home else None
            running = already or started(testbed_owner, Summary.of(pytestconfig))
        yield running
    finally:
        if kept_home() is None and lent_home is None:
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
