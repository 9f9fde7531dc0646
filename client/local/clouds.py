"""The fake clouds of the fleet on this machine: whether it has some, and what is at them."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

import httpx

from client.configuration import home_folder
from client.errors import NotFound, Refused
from testbed.cloud_process import CALLS, CLOUDS, REMAINS
from testbed.fake_clouds import folder
from testbed.fleet.fleet_file import FleetFile
from testbed.fleet.home import Home
from testbed.running import Running
from testbed.testbed import Testbed

INSTALLATION = "testbed"
"""The id of the installation, in the names and marks of what is created at the fake clouds."""
CLOUD_WORKER = "client.local.cloud_worker"
_NEEDED = ("moto", "flask", "flask_cors")
_SECONDS = 10.0
_TITLES = {"GKE": "Google Cloud", "EKS": "AWS"}


@dataclass(frozen=True)
class FakeCloud:
    """One of them: `source` as InferenceClusters have it, its project or account, what is there, and which calls changed something."""

    source: str
    title: str
    place: str
    objects: list[str]
    calls: list[str]


def with_clouds(home: Path, fleet: FleetFile, *, wanted: bool | None) -> FleetFile:
    """Give the fleet with what fake clouds hand out, where they are wanted; None: where the last start had them. Raises `Refused`."""
    credentials = folder(Home(home))
    if wanted is False:
        rmtree(credentials, ignore_errors=True)
    if not (wanted or credentials.is_dir() or fleet.has_clouds):
        return fleet
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise Refused(
            f"the fake clouds need {', '.join(_NEEDED)}, and there is no {' and no '.join(missing)}",
            next_step="pip install 'modelplane-temporal[dev]', and run the command again; `modelplane up --cloud none` goes without them",
        )
    return fleet.with_clouds()


def worker_command(running: Running) -> list[str]:
    """Give the module of the worker, and its arguments."""
    if running.clouds is None:
        return ["worker"]
    at = running.clouds
    return [CLOUD_WORKER, at.google_grpc, at.google_url, at.aws_url, at.control_url]


def fake_clouds() -> list[FakeCloud]:
    """Ask the fake clouds that run on this machine. Raises `NotFound` where none do."""
    running = Testbed(home_folder(), FleetFile.load()).running()
    if running is None or running.clouds is None:
        raise NotFound(f"no fake clouds run in {home_folder()}", next_step="`modelplane up --cloud fake` starts them")
    with httpx.Client(base_url=running.clouds.control_url, trust_env=False, timeout=_SECONDS) as http:
        try:
            remains, calls = http.get(REMAINS).json(), http.get(CALLS).json()
        except (httpx.TransportError, ValueError) as error:
            raise NotFound("the fake clouds do not answer", next_step="see `modelplane logs clouds`") from error
    return [FakeCloud(each, _TITLES[each], remains[each]["place"], remains[each]["objects"], calls[each]) for each in CLOUDS]
