"""The fake clouds of a testbed: their process, their addresses, and their credentials.

The process keeps the objects in memory. Credentials are stored in the folder `clouds`
of the testbed's home.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from testbed import cloud_addresses
from testbed.cluster.control_plane import ClusterControlPlane
from testbed.documents import write_json
from testbed.fleet.home import Home
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.readiness import is_healthy
from testbed.running import CloudsRunning

CLOUDS = "clouds"
PORTS = tuple(f"{CLOUDS}/{part}" for part in cloud_addresses.PARTS)


def folder(home: Home) -> Path:
    """Return the folder of the credentials.

    It exists once fake clouds have been started in this home.
    """
    return home.folder / CLOUDS


def credentials(home: Home) -> dict[str, Path]:
    """Return the files with the credentials, by the name of the product's Secret."""
    return {
        cloud_addresses.secret_name(cloud): cloud_addresses.credential_file(
            folder(home), cloud
        )
        for cloud in cloud_addresses.CLOUDS
    }


def review_url(home: Home, cloud: str) -> str:
    """Return the URL for token reviews of a cluster, or "" without a cloud."""
    return cloud_addresses.review_url(cloud, _ports(home)) if cloud else ""


def addresses(home: Home) -> CloudsRunning:
    """Return the addresses of the fake clouds."""
    ports = _ports(home)
    return CloudsRunning(
        google_grpc=f"127.0.0.1:{ports['google-grpc']}",
        google_url=f"http://127.0.0.1:{ports['google-http']}",
        aws_url=f"http://127.0.0.1:{ports['aws']}",
        control_url=f"http://127.0.0.1:{ports['control']}",
    )


def process(
    home: Home, planes: Iterable[tuple[str, ClusterControlPlane]]
) -> ProcessSpec:
    """Return the process of the fake clouds.

    `planes` are the clusters that it hands out, each with its cloud.
    """
    config = home.folder / "clouds.json"
    clusters = [
        {"cloud": cloud, "server": plane.server, "pki": str(plane.authority.folder)}
        for cloud, plane in planes
    ]
    write_json(
        config,
        {"folder": str(folder(home)), "ports": _ports(home), "clusters": clusters},
    )
    return ProcessSpec(CLOUDS, cloud_addresses.command(config))


def wait_until_ready(home: Home, supervision: Supervision, seconds: float) -> None:
    """Wait until both clouds respond and the credentials are written.

    Raise StartFailed after a timeout.
    """
    url = f"{addresses(home).control_url}{cloud_addresses.REMAINS}"
    supervision.wait_for(CLOUDS, partial(is_healthy, url), seconds, "do not answer")


def _ports(home: Home) -> dict[str, int]:
    return {part: home.port(f"{CLOUDS}/{part}") for part in cloud_addresses.PARTS}
