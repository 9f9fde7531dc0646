"""The fake clouds of the fleet on this machine."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from shutil import rmtree

import httpx

from fleet_client.configuration import home_folder
from fleet_client.errors import NotFound, Refused
from testbed.cloud_addresses import CALLS, CLOUDS, REMAINS
from testbed.fake_clouds import folder
from testbed.fleet.fleet_file import FleetFile
from testbed.fleet.home import Home
from testbed.running import Running
from testbed.testbed import Testbed

INSTALLATION = "testbed"
"""The id of the installation.

It is part of the names and marks of objects at the fake clouds.
"""
CLOUD_WORKER = "testbed.cloud_worker"
_NEEDED = ("moto", "flask", "flask_cors")
_SECONDS = 10.0
_TITLES = {"GKE": "Google Cloud", "EKS": "AWS"}


@dataclass(frozen=True)
class FakeCloud:
    """One fake cloud.

    `source` is its name in InferenceClusters, `place` its project or account, `objects`
    its objects, and `calls` the calls that changed something.
    """

    source: str
    title: str
    place: str
    objects: list[str]
    calls: list[str]


def with_clouds(home: Path, fleet: FleetFile, *, wanted: bool | None) -> FleetFile:
    """Return the fleet with the clusters at fake clouds, if they are wanted.

    None for `wanted` keeps the choice of the last start. Raise `Refused`.
    """
    credentials = folder(Home(home))
    if wanted is False:
        rmtree(credentials, ignore_errors=True)
    if not (wanted or credentials.is_dir() or fleet.has_clouds):
        return fleet
    if find_spec("fakes") is None:
        raise Refused(
            "the fake clouds are not part of the installed package",
            next_step="run `pip install -e '.[dev]'` in a clone of the repository, or run "
            "`modelplane up --cloud none`",
        )
    if missing := [name for name in _NEEDED if find_spec(name) is None]:
        raise Refused(
            f"the fake clouds need {', '.join(_NEEDED)}; not installed: {', '.join(missing)}",
            next_step=(
                "pip install 'modelplane-temporal[dev]', and run the command again, "
                "or run `modelplane up --cloud none`"
            ),
        )
    return fleet.with_clouds()


def worker_command(running: Running) -> list[str]:
    """Return the module of the worker, and its arguments."""
    if running.clouds is None:
        return ["worker"]
    at = running.clouds
    return [CLOUD_WORKER, at.google_grpc, at.google_url, at.aws_url, at.control_url]


def fake_clouds() -> list[FakeCloud]:
    """Read the state of the fake clouds on this machine.

    Raise `NotFound` if no fake cloud runs.
    """
    running = Testbed(home_folder(), FleetFile.load()).running()
    if running is None or running.clouds is None:
        raise NotFound(
            f"no fake clouds run in {home_folder()}",
            next_step="`modelplane up --cloud fake` starts them",
        )
    with httpx.Client(
        base_url=running.clouds.control_url, trust_env=False, timeout=_SECONDS
    ) as http:
        try:
            remains, calls = http.get(REMAINS).json(), http.get(CALLS).json()
        except (httpx.TransportError, ValueError) as error:
            raise NotFound(
                "the fake clouds do not answer",
                next_step="see `modelplane logs clouds`",
            ) from error
    return [
        FakeCloud(
            each,
            _TITLES[each],
            remains[each]["place"],
            remains[each]["objects"],
            calls[each],
        )
        for each in CLOUDS
    ]
