"""The fleet on this machine: the testbed, a worker, a front, and the settings file.

Worker and front run under the testbed's supervisor like any other process, so `down`
stops them, and a command that crashes leaves no process behind.
"""

import random
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import httpx

from api_types.environment import CONFIG_VARIABLE
from api_types.settings import Settings
from client.local.clouds import INSTALLATION, with_clouds, worker_command
from client.local.envoy import envoy_stack
from client.local.front import FRONT, front_port, front_url, keep_port, start_front
from fleet_client.configuration import (
    home_folder,
    local_settings_file,
    read_settings,
    settings_of,
    write_settings,
)
from fleet_client.errors import CommandFailed, Refused
from testbed.cluster.kube import KubeError
from testbed.cluster.objects import NAMESPACE
from testbed.dataplane.config import obstacle
from testbed.fleet.fleet_file import CONTROL, FleetFile, FleetFileError
from testbed.fleet.home import PORTS, HomeBusy, is_free
from testbed.manifests import KUBECONFIG_KEY, secret_name
from testbed.programs.download import DownloadRefused
from testbed.programs.install import Installer, InstallFailed
from testbed.programs.versions import TOOLS
from testbed.running import Running
from testbed.temporal import TEMPORAL
from testbed.testbed import Testbed
from testbed.waiting import StartFailed, tail

WORKER = "worker"
_HELM = "helm"
# With two processors and a build running, each of the two processes has taken a minute
# to import its modules.
_WAIT_SECONDS = 120.0
_POLL_SECONDS = 0.2

Say = Callable[[str], None]


@dataclass(frozen=True)
class LocalFleet:
    """The processes that `up` started, their settings, and the address of the front."""

    running: Running
    settings: Settings
    temporal_program: Path
    front: str


def start(
    fleet_file: Path | None,
    say: Say,
    *,
    data_plane: bool = True,
    envoy: bool = False,
    clouds: bool | None = None,
) -> LocalFleet:
    """Start the testbed, a worker and a front, unless they run already.

    Data is kept. The fleet file is copied to the home folder, so that the next start
    without one simulates the same fleet. A machine that cannot have a data plane goes
    without, and a message gives the reason. `envoy` gives the simulated clusters Envoy
    Gateway and endpoint pickers; it needs a data plane. `clouds` says whether to start fake clouds;
    None means: as at the last start. Raise `Refused` or `CommandFailed`.
    """
    settings_of({})  # report an invalid setting before programs are built for minutes
    home = home_folder()
    try:
        fleet = with_clouds(home, _fleet(home, fleet_file), wanted=clouds)
        testbed = Testbed(home, fleet, say)
        data_plane = data_plane and _can_have_data_plane(say)
        running = testbed.up(
            data_plane=data_plane,
            envoy=envoy_stack() if envoy and data_plane else None,
        )
        programs = Installer(say).programs(
            tool for tool in TOOLS if tool.name in (TEMPORAL, _HELM)
        )
        settings = _settings(running, testbed, programs[_HELM])
        front = _ensure_worker_and_front(testbed, settings, running, say)
    except FleetFileError as error:
        raise Refused(
            "the fleet file is not usable",
            details=str(error).splitlines(),
            next_step="fix it and run `modelplane up` again",
        ) from error
    except (StartFailed, InstallFailed, HomeBusy, DownloadRefused, KubeError) as error:
        first, *rest = str(error).splitlines() or ["unknown reason"]
        raise CommandFailed(
            f"the fleet did not start: {first}",
            details=rest,
            next_step="fix the cause and run `modelplane up` again",
        ) from error
    return LocalFleet(running, settings, programs[TEMPORAL], front)


def stop(say: Say, *, wipe: bool) -> None:
    """Stop everything that `start` started.

    `wipe` also deletes its data. Raise `Refused` or `CommandFailed`.
    """
    home = home_folder()
    if not (home / "state.json").is_file():
        # Nothing was started there. With `wipe`, a folder that is not a testbed must
        # not be deleted.
        say(f"no fleet was started in {home}")
        return
    fleet = FleetFile.load()
    if not wipe and not any(Testbed(home, fleet, say).processes().values()):
        say(f"nothing was running in {home}")
        say = _ignore  # clean up after an interrupted `up` without a message
    try:
        Testbed(home, fleet, say).down(wipe=wipe)
    except (StartFailed, HomeBusy) as error:
        raise CommandFailed(
            "the fleet did not stop",
            details=str(error).splitlines(),
            next_step="run `modelplane down` again",
        ) from error
    local_settings_file().unlink(missing_ok=True)


def _ignore(_line: str) -> None:
    pass


def _fleet(home: Path, named: Path | None) -> FleetFile:
    kept = home / "fleet.yaml"
    fleet = FleetFile.load(named or (kept if kept.is_file() else None))
    if named and named.resolve() != kept.resolve():
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copyfile(named, kept)
    return fleet


def _can_have_data_plane(say: Say) -> bool:
    why = obstacle()
    if why:
        say(
            f"{why}; requests to models get no answer (`--no-data-plane` hides this message)"
        )
    return why is None


def _settings(running: Running, testbed: Testbed, helm: Path) -> Settings:
    """Write the settings of this fleet for the worker and later commands.

    Return them. They take precedence over the environment: a variable that names
    another Temporal must not send this fleet's secrets there.
    """
    file = local_settings_file()
    listen = _listen(file) if testbed.process_pid(WORKER) else ""
    if not listen:
        # The worker's address is not known, so its health cannot be checked.
        testbed.stop_process(WORKER)
    control: dict[str, str] = {}
    if running.control:
        control = {
            "namespace": NAMESPACE,
            "name": secret_name(CONTROL),
            "key": KUBECONFIG_KEY,
        }
    tree: dict[str, object] = {
        "temporal": {"address": running.temporal_address, "ui": running.temporal_ui},
        "secrets": {"directory": str(running.home / "secrets")},
        "kubeconfig": {"allowLoopback": True},
        "controlCluster": control,
        # Gateways of the testbed drop an endpoint within a fraction of a second.
        "teardown": {"drainSeconds": 1},
        "worker": {"listen": listen or f"127.0.0.1:{_free_port()}"},
        "stack": {"helm": str(helm)},
        "log": {"format": "console"},
        "provision": {"installationId": INSTALLATION} if running.clouds else {},
    }
    write_settings(file, tree)
    return settings_of(tree)


def _listen(file: Path) -> str:
    """Return the address of the running worker.

    Return an empty string if the settings file that it was started with is missing.
    """
    written = read_settings(file)
    worker = written.get("worker")
    return str(worker.get("listen", "")) if isinstance(worker, dict) else ""


def _ensure_worker_and_front(
    testbed: Testbed, settings: Settings, running: Running, say: Say
) -> str:
    """Start the worker and the front if needed, and wait for both.

    Return the address of the front. Raise `StartFailed`.
    """
    known = testbed.processes()
    if WORKER not in known:
        command = [sys.executable, "-m", *worker_command(running)]
        environment = {
            CONFIG_VARIABLE: str(local_settings_file()),
            "MODELPLANE_TEMPORAL__ADDRESS": settings.temporal.address,
            "MODELPLANE_SECRETS__DIRECTORY": str(settings.secrets.directory),
            "MODELPLANE_WORKER__LISTEN": settings.worker.listen,
        }
        testbed.start_process(WORKER, command, environment)
    port = front_port(running.home)
    if FRONT not in known or not port:
        testbed.stop_process(FRONT)  # its address is not known
        # Keep the port if it is free, so that copies of the kubeconfig still work.
        port = port if port and is_free(port) else _free_port()
        start_front(testbed, settings, running.home, local_settings_file(), port)
    keep_port(running.home, port)  # the user may have deleted the kubeconfig
    health = f"http://{settings.worker.listen}/healthz"
    _wait_for(WORKER, health)
    say(f"worker: ready, health at {health}")
    front = front_url(port)
    _wait_for(FRONT, f"{front}/readyz")
    say(f"front: ready at {front}")
    say(
        "front: DEVELOPMENT MODE: no users, no tokens, no TLS; every program on "
        "this machine has all rights in this fleet"
    )
    return front


def _wait_for(name: str, health: str) -> None:
    deadline = time.monotonic() + _WAIT_SECONDS
    while not _healthy(health):
        if time.monotonic() >= deadline:
            log = home_folder() / "logs" / f"{name}.log"
            raise StartFailed(
                f"the {name} does not answer at {health}; the end of {log}:\n{tail(log)}"
            )
        time.sleep(_POLL_SECONDS)


def _healthy(address: str) -> bool:
    try:
        response = httpx.get(address, trust_env=False, timeout=2.0)
    except httpx.TransportError:
        return False
    return response.status_code == httpx.codes.OK


def _free_port() -> int:
    return next(port for port in random.sample(PORTS, len(PORTS)) if is_free(port))
