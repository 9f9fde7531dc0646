"""Fixtures for the tests of all packages, such as one testbed for the whole session.

`MODELPLANE_TESTBED_HOME` names a folder for a testbed that stays up between runs, so
that a developer waits for its start only once. With `--lanes`, the processes of
pytest-xdist run different files (see tests/environment/lanes.py), and one lane shares a
testbed.
"""

import gc
import os
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from testbed.process.processes import OWNER_VARIABLE
from testbed.programs.install import Installer, InstallFailed, needed
from testbed.programs.versions import ENVOY_TOOLS, KEDA_TOOLS
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.environment import container_engine
from tests.environment.shared_testbed import (
    Lent,
    kept_home,
    shared_testbed,
    started,
    turn,
)
from tests.environment.summary import Summary
from tests.environment.times import Times
from tests.environment.whole_files import left_out_by

# A test starts a data plane if its ID contains one of these texts.
DATA_PLANE = (
    "dataplane",
    "request_path",
    "commands/test_fleet",
    "testbed/test_lifecycle",
)
# A test starts Envoy Gateway if its ID contains this text.
REQUEST_PATH = "testbed/request_path/"

if TYPE_CHECKING:
    from kubernetes import client

    from tests.oracle.client import Oracle


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("modelplane")
    group.addoption(
        "--lanes",
        help="processes of each lane, as computing=2,shared=3,own=3; give -n auto with it",
    )
    group.addoption(
        "--budgets",
        action="store_true",
        help="print where the time went; fail when a file exceeds its budget",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the reports, and let Go programs collect garbage less often."""
    config.pluginmanager.register(Summary(config), Summary.NAME)
    config.pluginmanager.register(Times(config), Times.NAME)
    if config.option.lanes and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Lent(), Lent.NAME)
    # Processes of pytest-xdist inherit it. They lend each other their testbeds.
    if kept_home() is None:
        os.environ.setdefault(OWNER_VARIABLE, str(os.getpid()))
    os.environ.setdefault("GOGC", "400")
    # Fourteen API servers without a limit would use more memory than the machine has.
    # With 600 MiB, API servers with the definitions of a serving stack spend most of
    # their time on garbage collection.
    os.environ.setdefault("GOMEMLIMIT", "1000MiB")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Return the number of processes of all lanes."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    return (
        sum(lanes.parsed(config.option.lanes).values()) if config.option.lanes else None
    )


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process its lane."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    if node.config.option.lanes:
        number = int(node.gateway.id.removeprefix("gw"))
        node.workerinput["lane"] = lanes.lane_of_process(
            number, lanes.parsed(node.config.option.lanes)
        )
        node.workerinput[Lent.NAME] = str(Lent.of(node.config).home)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Distribute the tests by lanes."""
    from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

    return (
        lanes.Lanes(config, log, lanes.parsed(config.option.lanes))
        if config.option.lanes
        else None
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore files of other lanes, and files whose tests are all deselected."""
    if collection_path.suffix != ".py" or not collection_path.name.startswith("test_"):
        return None
    if lane := _lane(config):
        from tests.environment import lanes  # noqa: PLC0415 - only where pytest-xdist is used

        if (
            lanes.lane_of_file(collection_path, lanes.parsed(config.option.lanes))
            != lane
        ):
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
    """Disable garbage collection, and exclude collected tests from later collections.

    They stay in memory anyway, and scanning them takes a fifth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest deselects tests by their marks
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the marks `oracle` and `long`.

    Reject an unmarked test that needs a testbed.
    """
    container_engine.leave_out_without_root(config, items)
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "oracle" in fixtures:
            item.add_marker("oracle")
        needs = "testbed_owner" in fixtures or _asks_while_it_runs(item)
        testbed = item.get_closest_marker("testbed")
        if needs and testbed is None:
            raise pytest.UsageError(
                f"{item.nodeid} needs the testbed: mark it with pytest.mark.testbed"
            )
        if testbed is not None and "shared" not in testbed.args:
            item.add_marker("long")  # it starts a testbed for its process alone


def _asks_while_it_runs(item: pytest.Item) -> bool:
    """Return whether a fixture of the test calls `getfixturevalue` for the testbed.

    No signature shows this, so the test says so in its mark.
    """
    mark = item.get_closest_marker("testbed")
    return mark is not None and "asked for" in mark.args


def pytest_collection_finish(session: pytest.Session) -> None:
    """Install programs before the first test.

    A build takes minutes, which must not count against the time limit of a test.
    """
    if not session.config.option.collectonly and any(
        item.get_closest_marker("testbed") for item in session.items
    ):
        with suppress(
            InstallFailed
        ):  # the fixture raises it again, as the error of a test
            Installer().programs(
                needed(
                    data_plane=any(
                        word in item.nodeid
                        for item in session.items
                        for word in DATA_PLANE
                    )
                )
            )
            if any(item.get_closest_marker("keda") for item in session.items):
                Installer().programs(KEDA_TOOLS)
            if any(REQUEST_PATH in item.nodeid for item in session.items):
                Installer().programs(ENVOY_TOOLS)
    if not session.config.option.collectonly and any(
        item.get_closest_marker("oracle") for item in session.items
    ):
        from tests.oracle.client import build  # noqa: PLC0415 - only where a test compares with it

        terminal = session.config.pluginmanager.get_plugin("terminalreporter")
        with suppress(AssertionError):  # as above
            build(terminal.write_line if terminal else print)


@pytest.fixture(scope="session")
def lent_home(pytestconfig: pytest.Config) -> Path | None:
    """Folder of the testbed that the lane `shared` uses; None in other lanes."""
    return (
        Path(pytestconfig.workerinput[Lent.NAME])  # type: ignore[attr-defined]
        if _lane(pytestconfig) == "shared"
        else None
    )


@pytest.fixture(scope="session")
def testbed_home(
    lent_home: Path | None, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Folder of the session's testbed."""
    if lent_home:
        return lent_home
    kept = kept_home()
    # Each test process has a testbed of its own.
    return (
        kept / os.environ.get("PYTEST_XDIST_WORKER", "")
        if kept
        else tmp_path_factory.mktemp("testbed")
    )


@pytest.fixture(scope="session")
def testbed_owner(testbed_home: Path) -> Testbed:
    """The session's testbed, to start and stop its processes."""
    return shared_testbed(testbed_home)


@pytest.fixture(scope="session")
def testbed(
    testbed_owner: Testbed,
    testbed_home: Path,
    lent_home: Path | None,
    pytestconfig: pytest.Config,
) -> Iterator[Running]:
    """The default fleet, running for the whole session.

    The first process of the lane `shared` starts it, and the others wait for it.
    """
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
    """Return a Kubernetes client for a cluster:

    `kube(testbed.clusters["prod-eu"])`. Each cluster has one client.
    """
    # Loading takes a second, which tests without a cluster should not pay.
    from kubernetes import config  # noqa: PLC0415

    clients: dict[str, client.ApiClient] = {}

    def of(cluster: ClusterRunning) -> "client.ApiClient":
        if cluster.server not in clients:
            clients[cluster.server] = config.new_client_from_config(
                str(cluster.kubeconfig)
            )
        return clients[cluster.server]

    yield of
    for each in clients.values():
        each.close()


@pytest.fixture(scope="session")
def oracle() -> "Iterator[Oracle]":
    """The oracle, which answers with Kubernetes' own code."""
    from tests.oracle.client import Oracle  # noqa: PLC0415 - only where a test compares with it

    running = Oracle()
    yield running
    running.close()
