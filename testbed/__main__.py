"""The testbed without the product's client: `python -m testbed COMMAND`.

The commands are install, up, down, status and trouble.
"""

import argparse
import os
import sys
from pathlib import Path

from testbed import cloud_troubles
from testbed.cluster.kube import KubeError
from testbed.fleet.fleet_file import FleetFile, FleetFileError
from testbed.fleet.home import HomeBusy
from testbed.programs.debian import BROWSER
from testbed.programs.download import DownloadRefused
from testbed.programs.install import Installer, InstallFailed, needed
from testbed.programs.versions import ENVOY_TOOLS, KEDA_TOOLS
from testbed.running import Running
from testbed.testbed import Testbed
from testbed.waiting import StartFailed

FAILED, REFUSED = 1, 2


def default_home() -> Path:
    """Return the folder of a testbed unless `--home` names another.

    It is the folder of `modelplane up`.
    """
    if named := os.environ.get("MODELPLANE_HOME"):
        return Path(named).expanduser().absolute()
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return Path(base).expanduser().absolute() / "modelplane" / "testbed"


def main(arguments: list[str] | None = None) -> int:
    """Run one command.

    Return 0 for success, 1 if the command failed or the testbed is not up, and 2 for
    bad usage or an invalid fleet file.
    """
    parser = argparse.ArgumentParser(
        prog="python -m testbed", description="A whole fleet on one machine."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    install = commands.add_parser(
        "install",
        help="install every program that the testbed needs, and start nothing",
    )
    install.add_argument(
        "--all",
        action="store_true",
        help="also install kubectl and helm, which only people use",
    )
    install.add_argument(
        "--browser",
        action="store_true",
        help="also install a browser, for tests of the front's page",
    )
    install.add_argument(
        "--keda",
        action="store_true",
        help="also build KEDA, for tests of its scaling; this takes about ten minutes",
    )
    install.add_argument(
        "--envoy",
        action="store_true",
        help="also build Envoy Gateway and an endpoint picker, for tests of the request "
        "path; this takes about 15 minutes",
    )
    up = commands.add_parser("up", help="start everything, with the existing data")
    up.add_argument(
        "--fleet",
        type=Path,
        help="fleet file; default: a built-in fleet of two clusters",
    )
    up.add_argument(
        "--no-temporal", action="store_true", help="use a Temporal server of your own"
    )
    up.add_argument(
        "--data-plane",
        action="store_true",
        help="also run Traefik and mock engines, which answer requests",
    )
    down = commands.add_parser("down", help="stop everything")
    down.add_argument(
        "--wipe", action="store_true", help="also delete data, keys and logs"
    )
    status = commands.add_parser("status", help="show the running processes")
    troubles = commands.add_parser(
        "trouble", help="list, begin or end a trouble of the fake clouds"
    )
    cloud_troubles.add_arguments(troubles)
    for command in (up, down, status, troubles):
        command.add_argument(
            "--home",
            type=Path,
            default=default_home(),
            help="folder of the testbed (default: %(default)s)",
        )
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
        programs = (
            installer.install_all()
            if options.all
            else installer.programs(needed(data_plane=True))
        )
        if options.browser:
            programs |= {BROWSER.name: installer.browser()}
        if options.keda:
            programs |= installer.programs(KEDA_TOOLS)
        if options.envoy:
            programs |= installer.programs(ENVOY_TOOLS)
            installer.envoy_gateway_chart()
        for name, path in sorted(programs.items()):
            print(f"{name}: {path}")
        return 0
    testbed = Testbed(
        options.home, FleetFile.load(getattr(options, "fleet", None)), _say
    )
    if options.command == "up":
        _print(
            testbed.up(temporal=not options.no_temporal, data_plane=options.data_plane)
        )
    elif options.command == "down":
        testbed.down(wipe=options.wipe)
    elif options.command == "trouble":
        running = testbed.running()
        if running is None or running.clouds is None:
            print(f"no fake clouds run in {options.home}")
            return FAILED
        for line in cloud_troubles.trouble(running.clouds.control_url, options):
            print(line)
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
            f"{cluster.name}  {cluster.server}  gateway "
            f"{cluster.gateway_url or cluster.gateway_address}  "
            f"KUBECONFIG={cluster.kubeconfig}"
        )
    print(f"manifests  {running.manifests}")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
