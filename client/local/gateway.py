"""The address of the gateway that all models of the local fleet share."""

from pathlib import Path

from testbed.fleet.fleet_file import FleetFile
from testbed.testbed import Testbed


def local_gateway_url(home: Path) -> str | None:
    """Return the address of the control cluster's gateway.

    Return None unless a fleet with a control cluster and a data plane runs in `home`. A
    model's requests go to `<address>/<namespace>/<service>/v1/...`.
    """
    running = Testbed(home, FleetFile.load()).running()
    return (
        (running.control.gateway_url or None) if running and running.control else None
    )
