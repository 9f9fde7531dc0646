"""The Temporal server of a testbed: how its process is started, and where it is reached."""

from functools import partial
from pathlib import Path

from testbed.fleet.home import Home
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.readiness import is_healthy

TEMPORAL = "temporal"
PORTS = ("temporal", "temporal-ui", "temporal-metrics")
# The queues' default pace is set for shared databases; on SQLite it only adds waiting (a change is placed in 64 ms, not 197).
POLL_RPS_MAX = 2000
# The development server reads namespace and cluster from its database for each request with search attributes, half of all its reads; other
# servers read them every few seconds.
SERVER_SETTINGS = (
    *(f"history.{queue}ProcessorMaxPollRPS={POLL_RPS_MAX}" for queue in ("transfer", "timer", "visibility")),
    "system.forceSearchAttributesCacheRefreshOnRead=false",
)
# As with the clusters' stores, a killed process loses nothing, only a power cut would. A journal that SQLite deletes after every write, and
# a wait for the disk, take half of the server's processor time and most of the time that a request waits.
STORE_SETTINGS = ("journal_mode=WAL", "synchronous=OFF")


def address(home: Home) -> str:
    """Where clients connect."""
    return f"127.0.0.1:{home.port('temporal')}"


def ui_address(home: Home) -> str:
    """Where a browser finds its user interface."""
    return f"http://127.0.0.1:{home.port('temporal-ui')}"


def process(home: Home, program: Path) -> ProcessSpec:
    """Describe the server's process; its data is one file of the home."""
    argv = [
        str(program),
        *("server", "start-dev", "--ip", "127.0.0.1", "--log-level", "warn"),
        *("--port", str(home.port("temporal"))),
        *("--ui-port", str(home.port("temporal-ui"))),
        *("--metrics-port", str(home.port("temporal-metrics"))),
        *("--db-filename", str(home.folder / "temporal.db")),
        *(option for setting in STORE_SETTINGS for option in ("--sqlite-pragma", setting)),
        *(option for setting in SERVER_SETTINGS for option in ("--dynamic-config-value", setting)),
    ]
    return ProcessSpec(TEMPORAL, argv)


def wait_until_ready(home: Home, supervision: Supervision, seconds: float) -> None:
    """Return when the server answers for its namespace. Raises StartFailed."""
    url = f"{ui_address(home)}/api/v1/namespaces/default"
    supervision.wait_for(TEMPORAL, partial(is_healthy, url), seconds, "is not ready")
