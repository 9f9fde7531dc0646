"""`modelplane logs`: the logs of the worker and the other parts of the local fleet."""

import sys
import time
from collections import deque
from pathlib import Path
from typing import Annotated

import typer

from client.output.tables import columns
from fleet_client.configuration import home_folder
from fleet_client.errors import NotFound, Refused

_POLL_SECONDS = 0.3
_KIBI = 1024


def logs(
    part: Annotated[
        str | None,
        typer.Argument(
            help="A part, such as `worker` or `temporal`; without one, the parts are listed."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option(
            "--follow", "-f", help="Continue and print new lines; end with Ctrl-C."
        ),
    ] = False,
    tail: Annotated[
        int, typer.Option("--tail", min=0, help="How many of the last lines to print.")
    ] = 100,
) -> None:
    """Show the log of a part of the testbed.

    For example:
      modelplane logs
      modelplane logs worker --follow
    """
    if part and "/" in part:
        raise Refused(
            f"{part} is an object, and this command shows the logs of the local fleet",
            next_step="`kubectl logs` on its cluster shows those of an engine; "
            "`modelplane get mr -o wide` names the cluster of each replica",
        )
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
            next_step=f"name one of {', '.join(files)}",
        )
    _show(files[part], tail, follow=follow)


def _show(file: Path, tail: int, *, follow: bool) -> None:
    with file.open(encoding="utf-8", errors="replace") as stream:
        sys.stdout.writelines(deque(stream, maxlen=tail))
        while follow:
            sys.stdout.flush()
            time.sleep(_POLL_SECONDS)
            sys.stdout.write(stream.read())


def _size(file: Path) -> str:
    return f"{file.stat().st_size / _KIBI:.0f} KiB"
