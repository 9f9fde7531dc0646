"""`modelplane down`: stop everything that `modelplane up` started on this machine."""

import sys
from typing import Annotated

import typer


def down(
    wipe: Annotated[
        bool,
        typer.Option(
            "--wipe",
            help="Also delete the data: the next `up` starts with an empty fleet.",
        ),
    ] = False,
) -> None:
    """Stop the fleet on this machine; its data is kept for the next `up`.

    For example:
      modelplane down
    """
    from client.local.processes import stop  # noqa: PLC0415 - the testbed is slow to import

    stop(_say, wipe=wipe)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
