"""One testbed with a data plane for the tests of this folder: two clusters behind the
gateway of a control cluster.
"""

from collections.abc import Iterator

import pytest

from testbed.cluster.kube import WATCH_VARIABLE
from testbed.fleet.fleet_file import FleetFile
from testbed.testbed import Testbed

FLEET = """
classes:
  eight:
    devices: [{name: gpu, driver: gpu.nvidia.com, deviceClassName: gpu.nvidia.com, count: 8}]
clusters:
  - {name: eu, pools: [{name: gpus, class: eight, nodes: 12}]}
  - {name: us, pools: [{name: gpus, class: eight, nodes: 12}]}
"""
# How often the testbed's own watches end. Each of them lists again during the requests.
WATCH_SECONDS = 10


@pytest.fixture(scope="session")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """The running testbed, with Temporal. Each module uses its own namespace."""
    folder = tmp_path_factory.mktemp("wired")
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv(WATCH_VARIABLE, str(WATCH_SECONDS))
            testbed.up(data_plane=True)
        yield testbed
    finally:
        testbed.down()
