"""The fake clouds of a testbed: how their process is started, where they are reached, and the credentials for them.

What is created at them is in the memory of that process. Credentials are kept, in the folder `clouds` of the home.
"""

from collections.abc import Iterable
from functools import partial
from pathlib import Path

from testbed import cloud_process
from testbed.cluster.control_plane import ControlPlane
from testbed.documents import write_json
from testbed.fleet.home import Home
from testbed.process.processes import ProcessSpec
from testbed.process.supervision import Supervision
from testbed.readiness import is_healthy
from testbed.running import CloudsRunning

CLOUDS = "clouds"
PORTS = tuple(f"{CLOUDS}/{part}" for part in cloud_process.PARTS)


def folder(home: Home) -> Path:
    """Where credentials are kept. It is there once fake clouds have been started in this home."""
    return home.folder / CLOUDS


def credentials(home: Home) -> dict[str, Path]:
    """Give the files with the credentials, by the name of the Secret in which the product looks for each."""
    return {cloud_process.secret_name(cloud): cloud_process.credential_file(folder(home), cloud) for cloud in cloud_process.CLOUDS}


def review_url(home: Home, cloud: str) -> str:
    """Where the API server of a cluster that a cloud hands out asks about tokens; empty for a cluster of none."""
    return cloud_process.review_url(cloud, _ports(home)) if cloud else ""


def addresses(home: Home) -> CloudsRunning:
    """Give where they listen."""
    ports = _ports(home)
    return CloudsRunning(
        google_grpc=f"127.0.0.1:{ports['google-grpc']}",
        google_url=f"http://127.0.0.1:{ports['google-http']}",
        aws_url=f"http://127.0.0.1:{ports['aws']}",
        control_url=f"http://127.0.0.1:{ports['control']}",
    )


def process(home: Home, planes: Iterable[tuple[str, ControlPlane]]) -> ProcessSpec:
    """Describe the process; `planes` are the clusters that are handed out, each with its cloud."""
    config = home.folder / "clouds.json"
    clusters = [{"cloud": cloud, "server": plane.server, "pki": str(plane.authority.folder)} for cloud, plane in planes]
    write_json(config, {"folder": str(folder(home)), "ports": _ports(home), "clusters": clusters})
    return ProcessSpec(CLOUDS, cloud_process.command(config))


def wait_until_ready(home: Home, supervision: Supervision, seconds: float) -> None:
    """Return when both answer, and the credentials are written. Raises StartFailed."""
    url = f"{addresses(home).control_url}{cloud_process.REMAINS}"
    supervision.wait_for(CLOUDS, partial(is_healthy, url), seconds, "do not answer")


def _ports(home: Home) -> dict[str, int]:
    return {part: home.port(f"{CLOUDS}/{part}") for part in cloud_process.PARTS}
