"""The Temporal server of a testbed: its process and its addresses."""

from functools import partial
from pathlib import Path

from testbed.fleet.home import Home
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.readiness import is_healthy

TEMPORAL = "temporal"
PORTS = ("temporal", "temporal-ui", "temporal-metrics")
# The default pace of the queues is meant for shared databases. On SQLite it only adds
# latency: with this setting a change is placed in 64 ms instead of 197 ms.
POLL_RPS_MAX = 2000
# The development server reads namespace and cluster from its database for each request
# with search attributes, which is half of all its reads. This setting makes it read
# them every few seconds, as other servers do.
SERVER_SETTINGS = (
    *(
        f"history.{queue}ProcessorMaxPollRPS={POLL_RPS_MAX}"
        for queue in ("transfer", "timer", "visibility")
    ),
    "system.forceSearchAttributesCacheRefreshOnRead=false",
)
# As in the stores of the clusters, only a power cut can lose data, not a killed
# process. Deleting SQLite's journal after every write and waiting for the disk would
# take half of the server's CPU time and most of the time of a request.
STORE_SETTINGS = ("journal_mode=WAL", "synchronous=OFF")


def address(home: Home) -> str:
    """Return the address for clients."""
    return f"127.0.0.1:{home.port('temporal')}"


def ui_address(home: Home) -> str:
    """Return the address of its user interface."""
    return f"http://127.0.0.1:{home.port('temporal-ui')}"


def process(home: Home, program: Path) -> ProcessSpec:
    """Return the server's process. It stores its data in one file in the home."""
    argv = [
        str(program),
        *("server", "start-dev", "--ip", "127.0.0.1", "--log-level", "warn"),
        *("--port", str(home.port("temporal"))),
        *("--ui-port", str(home.port("temporal-ui"))),
        *("--metrics-port", str(home.port("temporal-metrics"))),
        *("--db-filename", str(home.folder / "temporal.db")),
        *(
            option
            for setting in STORE_SETTINGS
            for option in ("--sqlite-pragma", setting)
        ),
        *(
            option
            for setting in SERVER_SETTINGS
            for option in ("--dynamic-config-value", setting)
        ),
    ]
    return ProcessSpec(TEMPORAL, argv)


def wait_until_ready(home: Home, supervision: Supervision, seconds: float) -> None:
    """Wait until the server serves its namespace.

    Raise StartFailed after a timeout.
    """
    url = f"{ui_address(home)}/api/v1/namespaces/default"
    supervision.wait_for(TEMPORAL, partial(is_healthy, url), seconds, "is not ready")
