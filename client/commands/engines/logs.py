"""`modelplane logs`: the logs of engines, and of the parts of the local fleet."""

import asyncio
import sys
import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer

from client.commands import options
from client.output.tables import columns
from fleet_client.configuration import home_folder, require_temporal
from fleet_client.errors import NotFound, Refused

_POLL_SECONDS = 0.3
_KIBI = 1024
_PART_LINES = 100
# kubectl's number of lines of each pod, if there are several.
_POD_LINES = 10
_PODS_MAX = 50
_LOCAL = "it manages the fleet on this machine, which has its own Temporal"


def logs(
    *,
    word: Annotated[
        str | None,
        typer.Argument(
            metavar="[md/NAME|mr/NAME|PART]",
            help="A deployment, a replica, or a part of the local fleet such as `worker`; "
            "without one, the parts are listed.",
        ),
    ] = None,
    namespace: options.Namespace = None,
    replica: options.Replica = "",
    engine: options.Engine = "",
    member: options.EngineMember = None,
    container: options.Container = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Continue and print new lines; end with Ctrl-C."
        ),
    ] = False,
    previous: Annotated[
        bool,
        typer.Option("--previous", "-p", help="The container's run before the last."),
    ] = False,
    since: options.Since = None,
    tail: Annotated[
        int | None,
        typer.Option(
            "--tail",
            min=-1,
            help="How many of the last lines to print, or -1 for all; default: all of "
            "one pod, 10 of each of several, 100 of a part.",
            show_default=False,
        ),
    ] = None,
    timestamps: Annotated[
        bool, typer.Option("--timestamps", help="Begin each line with its time.")
    ] = False,
    prefix: Annotated[
        bool,
        typer.Option("--prefix", help="Begin each line with its pod, as with several."),
    ] = False,
) -> None:
    """Show the logs of engines, or of a part of the local fleet.

    Engines' logs come from the API server of their cluster, with the kubeconfig in the
    secret store.

    For example:
      modelplane logs md/qwen -n ml --since 5m
      modelplane logs mr/qwen-1414d327 -n ml --engine main --member leader -f
      modelplane logs worker --follow
    """
    if word is None or "/" not in word:
        require_temporal(_LOCAL)
        _show_part(word, _PART_LINES if tail is None else tail, follow=follow)
        return
    # Slow to import.
    from client.engines.log_lines import print_logs  # noqa: PLC0415
    from client.engines.pods import engine_pods  # noqa: PLC0415
    from client.engines.workloads import EngineChoice, engines_target  # noqa: PLC0415
    from fleet_client.configuration import load_settings  # noqa: PLC0415

    target = engines_target(word, namespace)

    async def show() -> None:
        async with engine_pods(
            load_settings(), "logs", target, EngineChoice(replica, engine), member
        ) as pods:
            if len(pods) > _PODS_MAX:
                raise Refused(
                    f"{target.title} has {len(pods)} pods, more than {_PODS_MAX}",
                    next_step="choose with --replica, --engine and --member",
                )
            several = len(pods) > 1
            lines = _POD_LINES if several else -1
            await print_logs(
                [(pod, pod.container(container)) for pod in pods],
                log_options(
                    follow=follow,
                    previous=previous,
                    timestamps=timestamps,
                    since=since,
                    tail=lines if tail is None else tail,
                ),
                prefixed=prefix or several,
                at_once=follow,
            )

    asyncio.run(show())


def log_options(
    *,
    follow: bool,
    previous: bool,
    timestamps: bool,
    since: float | None,
    tail: int,
) -> dict[str, str]:
    """Return the parameters of the request for a log."""
    flags = {"follow": follow, "previous": previous, "timestamps": timestamps}
    found = {name: "true" for name, wanted in flags.items() if wanted}
    if since is not None:
        # Whole seconds, at least one.
        found["sinceSeconds"] = str(max(1, round(since)))
    if tail >= 0:
        found["tailLines"] = str(tail)
    return found


def _show_part(part: str | None, tail: int, *, follow: bool) -> None:
    folder = home_folder() / "logs"
    files = {file.stem: file for file in sorted(folder.glob("*.log"))}
    if not files:
        raise NotFound(
            f"there are no logs in {folder}",
            next_step="`modelplane up` starts a fleet on this machine",
        )
    if part is None:
        if follow:
            raise Refused("which part?", next_step=f"name one of {', '.join(files)}")
        for line in columns(
            ["PART", "SIZE", "FILE"],
            [[name, _size(file), str(file)] for name, file in files.items()],
        ):
            print(line)
        return
    if part not in files:
        raise NotFound(
            f"no part named {part!r} has a log",
            next_step=f"name one of {', '.join(files)}, or `md/NAME` for its engines",
        )
    _show(files[part], tail, follow=follow)


def _show(file: Path, tail: int, *, follow: bool) -> None:
    with file.open(encoding="utf-8", errors="replace") as stream:
        sys.stdout.writelines(deque(stream, maxlen=None if tail < 0 else tail))
        while follow:
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            sys.stdout.write(stream.read())


def _size(file: Path) -> str:
    return f"{file.stat().st_size / _KIBI:.0f} KiB"
