"""Use the testbed without the product's client: `python -m testbed install|up|down|status`."""

import argparse
import os
import sys
from pathlib import Path

from testbed.cluster.kube import KubeError
from testbed.fleet.fleet_file import FleetFile, FleetFileError
from testbed.fleet.home import HomeBusy
from testbed.programs.debian import BROWSER
from testbed.programs.download import DownloadRefused
from testbed.programs.install import Installer, InstallFailed, needed
from testbed.programs.versions import KEDA_TOOLS
from testbed.running import Running
from testbed.testbed import Testbed
from testbed.waiting import StartFailed

FAILED, REFUSED = 1, 2


def default_home() -> Path:
    """The folder of a testbed unless `--home` names another."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(base).expanduser() / "modelplane" / "testbed"


def main(arguments: list[str] | None = None) -> int:
    """Run one command. 0 done; 1 failed, or not up; 2 bad usage or a bad fleet file."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description="A whole fleet on one machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser("install", help="have every program the testbed needs; nothing is started")
    install.add_argument("--all", action="store_true", help="also what only people use: kubectl and helm")
    install.add_argument("--browser", action="store_true", help="also a browser, for tests of the front's page")
    install.add_argument("--keda", action="store_true", help="also KEDA, for tests of how it scales: a build of about ten minutes")
    up = commands.add_parser("up", help="start everything, with the data that is there")
    up.add_argument("--fleet", type=Path, help="fleet file; a built-in fleet of two clusters without it")
    up.add_argument("--no-temporal", action="store_true", help="use a Temporal server of your own")
    up.add_argument("--data-plane", action="store_true", help="also run Traefik and a mock engine, so that requests travel")
    down = commands.add_parser("down", help="stop everything")
    down.add_argument("--wipe", action="store_true", help="also delete data, keys and logs")
    status = commands.add_parser("status", help="say what runs")
    for command in (up, down, status):
        command.add_argument("--home", type=Path, default=default_home(), help="folder of the testbed (default: %(default)s)")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except FleetFileError as error:
        print(error, file=sys.stderr)
        return REFUSED
    except (StartFailed, InstallFailed, HomeBusy, DownloadRefused, KubeError) as error:
        print(error, file=sys.stderr)
        return FAILED


def _run(options: argparse.Namespace) -> int:
    if options.command == "install":
        installer = Installer(_say)
        programs = installer.install_all() if options.all else installer.programs(needed(data_plane=True))
        if options.browser:
            programs |= {BROWSER.name: installer.browser()}
        if options.keda:
            programs |= installer.programs(KEDA_TOOLS)
        for name, path in sorted(programs.items()):
            print(f"{name}: {path}")
        return 0
    testbed = Testbed(options.home, FleetFile.load(getattr(options, "fleet", None)), _say)
    if options.command == "up":
        _print(testbed.up(temporal=not options.no_temporal, data_plane=options.data_plane))
    elif options.command == "down":
        testbed.down(wipe=options.wipe)
    else:
        running = testbed.running()
        for name, pid in testbed.processes().items():
            print(f"{name}: {pid or 'not running'}")
        if running is None:
            print(f"not up: {options.home}")
            return FAILED
        _print(running)
    return 0


def _print(running: Running) -> None:
    if running.temporal_address:
        print(f"Temporal  {running.temporal_address}  UI {running.temporal_ui}")
    for cluster in running.all_clusters():
        print(
            f"{cluster.name}  {cluster.server}  gateway {cluster.gateway_url or cluster.gateway_address}  KUBECONFIG={cluster.kubeconfig}"
        )
    print(f"manifests  {running.manifests}")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
